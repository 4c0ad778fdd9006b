"""Predictors of pixel classes: the second order learns a bracket's sign, CGNet has the right shapes and a seed."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.actions import gradient
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.random import stream
from atlasd.studies.climate.cgnet import CGNetPredictor, ChartCGNet
from atlasd.studies.climate.second_order import SecondOrderPredictor

ATLAS = Atlas.at([(16, 16), (16, 23)], 12, 9)


@pytest.fixture(scope="module")
def fields():
    """Two smooth fields: background where the first is low, then by the sign of their bracket."""
    k = torch.fft.fftfreq(32)[:, None].square() + torch.fft.rfftfreq(40).square()
    noise = torch.randn(80, 2, 32, 40, generator=stream(0))
    x = torch.fft.irfft2(torch.fft.rfft2(noise) * torch.exp(-170 * k), s=(32, 40))
    x = x / x.std()
    (a, b), (c, d) = ([gradient(x[:, n], axis) for axis in (1, 2)] for n in range(2))
    return x, torch.where(x[:, 0] > 0, torch.where(a * d - b * c > 0, 1, 2), 0)


def test_second_order_learns_a_bracket(fields):
    x, y = fields
    recipe = SecondOrderPredictor(pixels=6000, iterations=40)
    fitted = fit_predictor(x, y, atlas=ATLAS, predictor=recipe)
    patches = ATLAS.input_patches(x[:10])
    out = fitted(patches)
    assert out.shape == (10, 2, 3, 19, 19)
    assert torch.allclose(out.exp().sum(2), torch.ones(()), atol=1e-4)
    assert fitted.skill > 0.6 and fitted.classes == 3
    shuffled = fit_predictor(x, y[torch.randperm(80, generator=stream(1))], atlas=ATLAS, predictor=recipe)
    assert shuffled.skill < 0.2


def test_cgnet(fields):
    x, y = fields
    schedule = Schedule(epochs=1, batch=16, learning_rate=3e-3)
    recipe = CGNetPredictor(widths=(8, 16, 16), blocks=(2, 2), schedule=schedule)
    fitted = fit_predictor(x, y, atlas=ATLAS, predictor=recipe)
    patches = ATLAS.input_patches(x[:4])
    assert fitted(patches).shape == (4, 2, 3, 19, 19) and fitted.reach == 3.0
    again = fit_predictor(x, y, atlas=ATLAS, predictor=recipe)
    assert torch.equal(again(patches), fitted(patches))


def test_the_global_context_reaches_every_pixel():
    made = ChartCGNet(1, 1, 3, (9, 9), widths=(8, 8, 8), blocks=(1, 2), generator=stream(0)).eval()
    x = torch.zeros(1, 1, 1, 65, 65)
    far = x.clone()
    far[..., 0, 0] = 5.0
    assert not torch.allclose(made(x), made(far), atol=1e-7)


@pytest.mark.parametrize("recipe", [SecondOrderPredictor(), CGNetPredictor()])
def test_numbers_are_refused(fields, recipe):
    x, _ = fields
    with pytest.raises(InputError, match="must hold a class for every pixel"):
        fit_predictor(x, x, atlas=ATLAS, predictor=recipe)
