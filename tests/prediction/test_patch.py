"""The perceptron on patches."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.patch import PatchPredictor

SMALL = PatchPredictor(width=3, hidden=(16, 16), pixels=1500, steps=150, iterations=100)


def test_second_order_is_exact(rough, two_charts):
    y = rough.roll(1, -1) * rough.roll(1, -2) + rough.roll(-1, -1)
    fitted = fit_predictor(rough, y, atlas=two_charts, predictor=SMALL)
    assert fitted.skill > 0.9999 and fitted.reach == pytest.approx(2**0.5)


def test_powers_of_the_pixel_are_exact(rough, stencil_map, two_charts):
    fitted = fit_predictor(rough, stencil_map(rough) + rough**3, atlas=two_charts, predictor=SMALL)
    assert fitted.skill > 0.9999


def test_the_perceptron_learns_what_is_left(rough, stencil_map, two_charts):
    y = torch.sin(2 * stencil_map(rough))
    assert fit_predictor(rough, y, atlas=two_charts, predictor=SMALL).skill > 0.8


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_rows_and_fields_agree(rough, stencil_map, two_charts, kind):
    x = rough.to(kind)
    fitted = fit_predictor(x, stencil_map(x).square(), atlas=two_charts, predictor=SMALL)
    patches = two_charts.input_patches(x[:4])
    out = fitted(patches)
    assert out.shape == (4, 2, 1, 9, 9) and out.dtype == kind
    middle = patches[:, :, :, 5:8, 5:8].flatten(2).movedim(1, 0)  # about the central pixel
    assert torch.allclose(fitted.function.on_rows(middle).movedim(0, 1), out[:, :, :, 4, 4], atol=1e-4)


def test_several_channels(two_charts):
    x = torch.randn(80, 2, 22, 24, generator=torch.Generator().manual_seed(0))
    y = torch.stack([x[:, 0] * x[:, 1].roll(1, -1), x[:, 1].roll(1, -2)], dim=1)
    assert fit_predictor(x, y, atlas=two_charts, predictor=SMALL).skill > 0.999


def test_what_it_cannot_be_fitted_to(rough):
    with pytest.raises(InputError, match="must be odd"):
        PatchPredictor(width=4)
    with pytest.raises(InputError, match="must not be a PatchPredictor"):
        fit_predictor(torch.randn(50, 2), torch.randn(50), predictor=SMALL)
    with pytest.raises(InputError, match="must not be a PatchPredictor"):
        fit_predictor(rough, rough, atlas=Atlas.whole(), predictor=SMALL)
