"""Badly scaled, very small and very large problems: right, or refused."""

import pytest
import torch

import atlasd as ad
from atlasd.discovery.problem import solve
from atlasd.errors import InputError
from atlasd.runtime.random import stream


def length(p):
    return p.norm(dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-30, 1e12])
def test_units_do_not_matter(dtype, scale):
    x = (torch.randn(300, 2, generator=stream(0, "numerics"), dtype=torch.float64) * scale).to(dtype)
    assert ad.discover(x, function=length, progress=False).group.name == "O(2)"


@pytest.mark.parametrize("size, dimension", [(1, 0), (6, 15)])
def test_one_and_six_dimensions(size, dimension):
    x = torch.randn(400, size, generator=stream(0, "numerics"))
    assert ad.discover_generators(x, function=length).dimension == dimension


def test_a_single_sample_is_refused():
    with pytest.raises(InputError, match="at least 20 samples, got 1"):
        ad.discover(torch.ones(1, 2), function=length, progress=False)


def test_nearly_singular_chance_and_repeated_eigenvalues():
    chance = torch.diag(torch.tensor([1.0, 1.0, 1e-3, 1e-14], dtype=torch.float64))
    residual = 0.5 * chance
    values, directions, blind = solve(residual, chance)
    torch.testing.assert_close(values, torch.full((3,), 0.5, dtype=torch.float64))
    assert directions.shape == (3, 4) and blind.shape == (1, 4) and bool(torch.isfinite(directions).all())
    values, directions, blind = solve(torch.zeros(4, 4).double(), torch.zeros(4, 4).double())
    assert not len(values) and len(blind) == 4
