"""Regression of vectors in closed form: functions of the differences of two vectors of a set."""

import pytest
import torch

from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.forms import FormPredictor


@pytest.mark.parametrize("alike", [True, False])
def test_forces_between_two_bodies(alike):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(900, 3, 2, generator=generator)
    strengths = (1.0, 1.0, 1.0) if alike else (1.0, -2.0, 0.3)
    pairs = zip(strengths, ((0, 1), (0, 2), (1, 2)), strict=True)
    y = sum(s * torch.exp(-(x[:, i] - x[:, j]).square().sum(-1)) for s, (i, j) in pairs)
    fitted = fit_predictor(x, y, predictor=FormPredictor(bumps=300, most=400))
    assert fitted.kind.endswith("all pairs" if alike else "each pair") and fitted.skill > 0.95
    order = x[:, [2, 0, 1]][:, None]
    assert torch.allclose(fitted(order), fitted(x[:, None]), atol=0.3) == alike
