"""Cosets: known groups come back whole from random starts, approximate ones are kept, and nothing is invented."""

import pytest
import torch
from torch import Tensor

import atlasd as ad
from atlasd.algebra.group import Group
from atlasd.algebra.known import cyclic, dihedral, so, tetrahedral, trivial
from atlasd.algebra.lie import Ambient, LieAlgebra
from atlasd.discovery.coset_gradient import is_rigid, normalize_starts, unit_determinant
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.prepare import prepare
from atlasd.discovery.problem import Problem
from atlasd.errors import InputError
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream


def vectors(function, n: int, seed: int = 0, samples: int = 300) -> Problem:
    x = torch.randn(samples, n, generator=stream(seed, "data"))
    return prepare(x, function=function, seed=seed, progress=Silent())[0]


def diamond(x: Tensor) -> Tensor:
    return x.abs().sum(-1)


def gauge(group: Group, seed: int):
    """A piecewise linear function with exactly the symmetries of a finite group."""
    corners = torch.randn(3, group.size, generator=stream(seed, "corners"), dtype=torch.float64)
    corners = corners / corners.norm(dim=-1, keepdim=True)  # of one length, so that all are corners
    orbit = torch.einsum("gij,kj->gki", group.cosets, corners).flatten(0, 1)
    return lambda x: torch.einsum("...j,gj->...g", x.double(), orbit).amax(-1)


@pytest.mark.parametrize("method", ["normalizer", "gradient"])
def test_the_diamond_has_eight_elements(method):
    x = torch.randn(300, 2, generator=stream(0, "data"))
    found = ad.discover(x, function=diamond, cosets=CosetSearch(method=method), progress=False)
    assert found.group.name == "D4"
    distance = (found.cosets[:, None] - dihedral(4).cosets).flatten(2).norm(dim=-1).amin(1)
    assert float(distance.max()) < 0.05


@pytest.mark.parametrize(
    "group", [cyclic(3), dihedral(5), pytest.param(tetrahedral(), marks=pytest.mark.slow)], ids=str
)
def test_finite_groups_of_functions(group):
    x = torch.randn(400, group.size, generator=stream(1, "data"))
    search = CosetSearch(samples=64, starts=48)
    found = ad.discover(x, function=gauge(group, seed=1), cosets=search, progress=False)
    assert found.group.name == group.name


def test_no_axis_is_preferred():
    """The same group in a frame that no axis knows."""
    frame, _ = torch.linalg.qr(torch.randn(2, 2, generator=stream(5, "frame"), dtype=torch.float64))
    x = torch.randn(300, 2, generator=stream(0, "data"))
    found = ad.discover(x, function=lambda z: diamond(z.double() @ frame), progress=False)
    expected = frame @ dihedral(4).cosets @ frame.mT
    distance = (found.cosets[:, None] - expected).flatten(2).norm(dim=-1).amin(1)
    assert found.group.name == "D4" and float(distance.max()) < 0.05


def test_orientation_forbids_the_reflection():
    x = torch.randn(300, 2, 2, generator=stream(0, "data"))
    area = lambda z: z[:, 0, 0] * z[:, 1, 1] - z[:, 0, 1] * z[:, 1, 0]  # noqa: E731
    assert ad.discover(x, function=area, progress=False).group.name == "SL(2)"


def test_normalized_starts_normalize():
    algebra = so(1, 3)
    moved, outside = normalize_starts(algebra, Ambient(4).random(32, stream(0, "starts")))
    good = moved[outside < 1e-6]
    assert len(good) >= 16
    assert all(algebra.distance(algebra.adjoint(c)) < 1e-5 for c in good)
    assert is_rigid(algebra)
    assert not is_rigid(trivial(4))
    assert not is_rigid(LieAlgebra(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])))


def test_determinants():
    drawn = torch.randn(20, 3, 3, generator=stream(0, "drawn"), dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.det(unit_determinant(drawn)).abs(), torch.ones(20, dtype=torch.float64))


def test_bad_input():
    problem = vectors(diamond, 2)
    with pytest.raises(InputError, match="singular start"):
        CosetSearch(method="gradient").find(problem, trivial(2), seed=0, initial=torch.ones(1, 2, 2))
    with pytest.raises(InputError, match="`initial` must have shape"):
        CosetSearch().find(problem, trivial(2), seed=0, initial=torch.eye(3)[None])
    with pytest.raises(InputError, match="`algebra` must have matrices of size 2"):
        CosetSearch().find(problem, trivial(3), seed=0)
    with pytest.raises(InputError, match="`method` must be"):
        CosetSearch(method="random")
    with pytest.raises(InputError, match="`starts` must be positive"):
        CosetSearch(starts=0)
