"""Cosets: known groups come back whole, approximate ones are kept, and nothing is invented."""

import math

import pytest
import torch
from atlasd.discovery.coset_error import CosetError, unit_determinant
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.known_algebras import sl, so, trivial
from atlasd.algebra.known_groups import cyclic, dihedral, tetrahedral
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.coset_normalizer import is_rigid, normalize_starts, plain_matrices, random_starts
from atlasd.discovery.cosets import CosetSearch, close_cosets
from atlasd.discovery.problem import Problem
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction, VectorAction
from atlasd.runtime.random import stream


def vectors(function, n: int, seed: int = 0, samples: int = 600, tokens: int | None = None) -> Problem:
    shape = (1, n) if tokens is None else (1, tokens, n)
    x = torch.randn(samples, *shape, generator=stream(seed, "data"))
    index = torch.arange(samples)
    return Problem(function, VectorAction(), n, lambda i: x[i], index[: samples // 2], index[samples // 2 :], 1)


def diamond(x: Tensor) -> Tensor:
    return x.abs().sum(-1)


def arctan(x: Tensor) -> Tensor:
    return torch.atan((x[..., 1] + 0.1) / x[..., 0])


def cubic(x: Tensor) -> Tensor:
    u, v = x.unbind(-1)
    return u**3 - 0.7 * u * u * v + 1.3 * u * v * v + 0.4 * v**3 + 0.8 * u * u - 0.5 * u * v + 0.6 * u - 0.9 * v


def gauge(group: Group, seed: int):
    """A piecewise linear function with exactly the symmetries of a finite group."""
    corners = torch.randn(3, group.size, generator=stream(seed, "corners"), dtype=torch.float64)
    corners = corners / corners.norm(dim=-1, keepdim=True)  # of one length, so that all are corners
    orbit = torch.einsum("gij,kj->gki", group.cosets, corners).flatten(0, 1)
    return lambda x: torch.einsum("...j,gj->...g", x.double(), orbit).amax(-1)


@pytest.mark.parametrize(("method", "seed"), [("normalizer", 0), ("normalizer", 1), ("gradient", 0)])
def test_diamond_is_d4(method, seed):
    problem = vectors(diamond, 2, seed)
    found = CosetSearch(method=method).find(problem, trivial(2), seed=seed)
    group = close_cosets(problem, trivial(2), found)
    assert (group.name, group.order) == ("D4", 8)
    assert torch.equal(found.matrices[0], torch.eye(2, dtype=torch.float64))
    distance = (group.cosets[:, None] - dihedral(4).cosets).flatten(2).norm(dim=-1).amin(1)
    assert float(distance.max()) < math.radians(2.0)


@pytest.mark.parametrize("seed", range(2))
def test_arctan_keeps_the_approximate_half_turn(seed):
    found = CosetSearch().find(vectors(arctan, 2, seed), trivial(2), seed=seed)
    assert len(found) == 2
    assert float((found.matrices[1] + torch.eye(2)).norm()) < 0.1
    assert 1e-3 < float(found.errors[1]) < 0.05
    assert float(found.errors[0]) == 0.0


@pytest.mark.parametrize("seed", range(2))
def test_no_symmetry_gives_the_identity_only(seed):
    found = CosetSearch().find(vectors(cubic, 2, seed), trivial(2), seed=seed)
    assert len(found) == 1
    assert len(found.rejected) > 0
    assert float(found.rejected_errors.min()) > 1e-3


@pytest.mark.parametrize("group", [cyclic(3), cyclic(8), dihedral(5), tetrahedral()], ids=str)
def test_finite_groups_of_oracles(group):
    problem = vectors(gauge(group, seed=1), group.size, seed=1)
    found = CosetSearch(samples=64, starts=48).find(problem, trivial(group.size), seed=1)
    closed = close_cosets(problem, trivial(group.size), found)
    assert (closed.name, closed.order) == (group.name, group.order)


@pytest.mark.parametrize(
    ("algebra", "function", "name"),
    [
        (so(2), lambda x: x.norm(dim=-1), "O(2)"),
        (so(1, 2), lambda x: x[..., 1:].square().sum(-1) - x[..., 0].square(), "O(1,2)"),
        (so(3), lambda x: (-x.square().sum(-1)).exp(), "O(3)"),
    ],
)
def test_normalizer_of_a_form(algebra, function, name):
    noise = torch.randn(algebra.basis.shape, generator=stream(0, "noise"), dtype=torch.float64)
    noisy = LieAlgebra(algebra.basis + 0.003 * noise)
    problem = vectors(function, algebra.size)
    found = CosetSearch().find(problem, noisy, seed=0)
    assert close_cosets(problem, noisy, found).name == name


def test_orientation_forbids_the_reflection():
    def area(x: Tensor) -> Tensor:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]

    found = CosetSearch().find(vectors(area, 2, tokens=2), sl(2), seed=0)
    assert len(found) == 1
    assert float(found.rejected_errors[0]) > 0.5


def test_fields_with_a_rotation_get_the_reflection():
    x = torch.randn(64, 1, 1, 9, 9, generator=stream(0, "fields"))
    x = torch.nn.functional.avg_pool2d(x.flatten(0, 1), 3, 1, 1).unflatten(0, (64, 1))

    def laplace(x: Tensor) -> Tensor:
        kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])[None, None]
        return torch.nn.functional.conv2d(x.flatten(0, 1), kernel).unflatten(0, x.shape[:2])

    index = torch.arange(64)
    problem = Problem(laplace, GridAction(), 2, lambda i: x[i], index, index, 1, radius=2.0, reach=1.0)
    found = CosetSearch().find(problem, so(2), seed=0)
    assert close_cosets(problem, so(2), found).name == "O(2)"
    assert float(found.errors.max()) < 1e-6


def test_normalized_starts_normalize():
    algebra = so(1, 3)
    moved, outside = normalize_starts(algebra, random_starts(32, 4, stream(0, "starts")))
    good = moved[outside < 1e-6]
    assert len(good) >= 16
    assert all(algebra.distance(algebra.adjoint(c)) < 1e-5 for c in good)
    assert is_rigid(algebra)
    assert not is_rigid(trivial(4))
    assert not is_rigid(LieAlgebra(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])))


def test_plain_matrices_and_determinants():
    plain = plain_matrices(3)
    assert len(plain) == 48
    assert torch.equal(plain[0], torch.eye(3, dtype=torch.float64))
    assert torch.allclose(torch.linalg.det(unit_determinant(2 * plain)).abs(), torch.ones(48, dtype=torch.float64))


def test_errors_are_chance_for_unrelated_outputs():
    fast = CosetError(vectors(lambda x: torch.sin(40 * x[..., 0]) + torch.sin(43 * x[..., 1]), 2), 256)
    turn = torch.tensor([[[0.8, -0.6], [0.6, 0.8]]], dtype=torch.float64)
    assert 0.6 < float(fast(turn)) < 1.2
    assert float(fast(torch.eye(2, dtype=torch.float64)[None])) == 0.0


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
