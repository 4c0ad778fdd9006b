"""Regression of vectors in closed form: functions of the differences of two vectors of a set."""

import pytest
import torch

from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.forms import FormPredictor, _bumps, _bumps_both_ways
from atlasd.runtime.random import stream


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


def test_bumps_and_their_mirror_images_share_an_exponential():
    x, c = (3 * torch.randn(k, 3, generator=stream(0, "bumps"), dtype=torch.float64) for k in (60, 40))
    x[0] *= 1000  # far away, where the exponential of a product alone overflows
    bump = lambda sign: torch.exp(-0.5 * (x[:, None] - sign * c).square().sum(-1))  # noqa: E731
    torch.testing.assert_close(_bumps(x, c), bump(1))
    places = x.unflatten(0, (20, 3)).requires_grad_()
    both = _bumps_both_ways(places, c)
    torch.testing.assert_close(both, (bump(1) + bump(-1)).unflatten(0, (20, 3)).sum(1))
    assert torch.autograd.grad(both.sum(), places)[0].isfinite().all()
