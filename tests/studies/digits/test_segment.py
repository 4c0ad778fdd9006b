"""Pixel classes from whole patches: what is fitted, and what is refused."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.random import stream
from atlasd.studies.digits.segment import ChartSegmenter, SegmentPredictor

ATLAS = Atlas.at([(8, 8), (8, 24)], in_radius=7, out_radius=7)


def bars(samples):
    """Upright or lying bars: every lit pixel is named after its bar, so that one pixel alone does not tell."""
    generator = stream(0, "bars")
    x = torch.zeros(samples, 1, 17, 33)
    y = torch.full((samples, 17, 33), 2, dtype=torch.uint8)
    for n in range(samples):
        for column in (8, 24):
            kind = int(torch.randint(2, (), generator=generator))
            row, side = (slice(4, 13), slice(column - 1, column + 2)) if kind else (
                slice(7, 10), slice(column - 4, column + 5))  # fmt: skip
            x[n, 0, row, side] = 1.0
            y[n, row, side] = kind
    return x + 0.05 * torch.randn(x.shape, generator=generator), y


@pytest.mark.parametrize("skips", [True, False])
def test_the_whole_patch_decides(skips):
    x, y = bars(160)
    recipe = SegmentPredictor(
        widths=(8, 16), skips=skips, background=2, schedule=Schedule(epochs=14, batch=16, learning_rate=1e-2)
    )
    fitted = fit_predictor(x, y, atlas=ATLAS, predictor=recipe)
    assert fitted.skill > 0.8 and fitted.classes == 3 and fitted.reach == 0.0
    logits = fitted(ATLAS.input_patches(x[:4]))
    assert logits.shape == (4, 2, 3, 15, 15)


@pytest.mark.parametrize("size", [29, 15, 16])
def test_outputs_are_as_large_as_inputs(size):
    network = ChartSegmenter(2, 1, 11, widths=(4, 8, 8), generator=stream(0)).eval()
    assert network(torch.zeros(3, 2, 1, size, size)).shape == (3, 2, 11, size, size)


def test_what_it_is_not_for():
    x, y = bars(20)
    with pytest.raises(InputError, match="must hold a class for every pixel"):
        fit_predictor(x, x, atlas=ATLAS, predictor=SegmentPredictor())
    margin = Atlas.at([(8, 8)], in_radius=7, out_radius=5)
    with pytest.raises(InputError, match="`out_radius` must equal `in_radius`"):
        fit_predictor(x, y, atlas=margin, predictor=SegmentPredictor())
