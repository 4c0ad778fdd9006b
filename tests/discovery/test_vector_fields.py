"""Generators that are not linear."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.runtime.random import stream


def points(count, n, seed=0):
    return torch.randn(count, n, generator=stream(seed, "points"))


def cubic(x):
    return x[:, 0] ** 3 - x[:, 1] ** 2


def quadratic_fields(x, y=None, **options):
    return ad.discover(x, y, action=ad.PolynomialAction(degree=2), progress=False, **options)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_cubic(seed, tmp_path):
    x = 2 * points(1000, 2, seed)
    found = quadratic_fields(x, cubic(x))
    assert found.formulas == ["0.667 y d/dx + x^2 d/dy"] and found.verdict.symmetric
    assert found.group.dimension == 0
    found.save(tmp_path)
    assert ad.load(tmp_path).verdict.symmetric


def test_a_broken_term_is_not_claimed():
    x = 2 * points(600, 2)
    broken = lambda z: cubic(z) / 10 + 0.6 * torch.sin(2 * z[:, 0] + z[:, 1])  # noqa: E731
    assert not quadratic_fields(x, function=broken).verdict.symmetric


def test_linear_fields_are_found_once():
    x = points(400, 2)
    found = quadratic_fields(x, function=lambda z: (z - 1).square().sum(-1))
    assert found.formulas == ["(1 - y) d/dx + (-1 + x) d/dy"] and found.group.name == "SO(2)"
    assert "2 more are multiples" in found.verdict.reason
    sphere = quadratic_fields(points(300, 3), function=lambda z: z.square().sum(-1))
    assert sphere.group.name == "SO(3)"


def test_bad_input():
    with pytest.raises(InputError, match="would fit"):
        ad.discover(points(50, 12), function=cubic, action=ad.PolynomialAction(degree=9), progress=False)
    with pytest.raises(InputError, match="left out for a PolynomialAction"):
        quadratic_fields(points(50, 2), function=cubic, search=ad.GradientSearch())
