"""Planted functions, and waves that are left in errors."""

from __future__ import annotations

import pytest
import torch

from atlasd.data.samples import Samples
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.forms import FormPredictor
from atlasd.prediction.plants import draw_plants
from atlasd.prediction.skill import strongest_wave
from atlasd.runtime.random import stream


def test_odd_and_even_functions_of_sets_are_planted_apart():
    x = torch.randn(50, 4, 3, generator=stream(0, "x"))
    samples = Samples.check(x, x.sum((1, 2)), None, minimum=20).standard()
    odd, even = draw_plants(samples, 2, stream(0, "plants"))
    z = samples.inputs(torch.arange(50))
    assert odd(z).std() > 0.1 and torch.allclose(odd(-z), -odd(z), atol=1e-5)
    assert even(z).std() > 0.1 and torch.allclose(even(-z), even(z), atol=1e-5)


def _inputs(count: int, size: int, seed: int) -> torch.Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_wave_in_six_dimensions_under_noise(seed: int) -> None:
    units = torch.tensor([1.0, 10.0, 0.1, 1.0, 3.0, 1.0], dtype=torch.float64)
    x = units * _inputs(1500, 6, seed) + 5
    wave = torch.tensor([2.0, 0.0, -2.0, 1.0, 1.0, 0.0], dtype=torch.float64) / units
    errors = torch.sin(x @ wave)[:, None] + 0.7 * _inputs(1500, 1, seed + 10)
    found = strongest_wave(x, errors, torch.Generator().manual_seed(seed))
    assert found is not None
    assert float(((found * found[0].sign() - wave) * units).norm()) < 0.15


@pytest.mark.parametrize("seed", range(5))
def test_noise_holds_no_wave(seed: int) -> None:
    errors = _inputs(1500, 2, seed + 100)
    assert strongest_wave(_inputs(1500, 3, seed), errors, torch.Generator().manual_seed(seed)) is None


def test_regression_follows_a_wave_that_bumps_cannot() -> None:
    x = _inputs(1500, 6, 3)
    y = x[:, :3].square().sum(-1) + torch.sin(2 * x[:, 3:].sum(-1))
    with_waves, without = (fit_predictor(x, y, predictor=FormPredictor(waves=w)).skill for w in (4, 0))
    assert with_waves > 0.99
    assert without < 0.95
