"""Regression of vectors in closed form: functions of the differences of two vectors of a set."""

from dataclasses import replace

import pytest
import torch

from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.forms import FormPredictor, _Features
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


@pytest.mark.parametrize("kinked", [True, False])
def test_bumps_of_pairs_are_summed_with_their_mirror_images(kinked):
    x, c = (3 * torch.randn(k, 3, generator=stream(0, "bumps"), dtype=torch.float64) for k in (60, 40))
    x[0] *= 1000  # far away, and the first centre at a place itself: gradients stay finite
    c[0] = x[1]

    def bump(sign):
        r = (x[:, None] - sign * c).norm(dim=-1)
        return (1 + 5**0.5 * r + 5 * r**2 / 3) * (-(5**0.5) * r).exp() if kinked else (-0.5 * r**2).exp()

    features = _Features("", 3, 2, c, 1.0, kinked)
    torch.testing.assert_close(features(x)[:, -40:], bump(1))
    sums = replace(features, inputs=9, tokens=3, alike=True)
    places = x.unflatten(0, (20, 3)).flatten(1).requires_grad_()
    both = sums._bumps(places.unflatten(1, (3, 3)), c)
    torch.testing.assert_close(both, (bump(1) + bump(-1)).unflatten(0, (20, 3)).sum(1))
    assert torch.autograd.grad(both.sum(), places)[0].isfinite().all()


def test_kinks_are_followed_by_kinked_bumps():
    x = torch.randn(400, 2, generator=stream(0, "kinks"))
    fitted = fit_predictor(x, x.abs().sum(1), predictor=FormPredictor())
    assert "kinked" in fitted.kind and fitted.skill > 0.98
    smooth = fit_predictor(x, (2 * x).sin().sum(1), predictor=FormPredictor(waves=0))
    assert "kinked" not in smooth.kind and smooth.skill > 0.99


@pytest.mark.parametrize("kinked", [True, False])
def test_centres_that_lie_together_far_from_all_others(kinked):
    near, far = (torch.randn(100, 3, generator=stream(0, "far", k), dtype=torch.float64) for k in range(2))
    centres = torch.cat([near, 1e4 + 1e-3 * far, 1e4 + far])
    frame = _Features("", 3, 2, centres, 1.0, kinked).frame(torch.ones(309, dtype=torch.float64))
    assert frame.isfinite().all()
