"""Affine groups have names, also after an affine change of coordinates."""

import pytest
import torch

from atlasd.algebra import known
from atlasd.algebra.group import Group
from atlasd.algebra.group_names import fixed_point
from atlasd.algebra.lie import Ambient, LieAlgebra


def homogeneous(linear, shift=None):
    """Linear maps `(k, n, n)` with translations `(k, n)`, as generators."""
    k, n = linear.shape[:2]
    out = torch.zeros(k, n + 1, n + 1, dtype=torch.float64)
    out[:, :n, :n] = linear
    if shift is not None:
        out[:, :n, n] = shift
    return out


def translations(n, k):
    return homogeneous(torch.zeros(k, n, n), torch.eye(n)[:k])


MIRROR = torch.stack([torch.eye(3), torch.diag(torch.tensor([-1.0, 1.0, 1.0]))])
GROUPS = [
    ("SE(2)", known.euclidean(2), None),
    ("E(2)", known.euclidean(2), MIRROR),
    ("SE(3)", known.euclidean(3), None),
    ("Aff+(2)", known.affine(2), None),
    ("T(2)", translations(2, 2), None),
    ("T(1)", translations(3, 1), None),
    ("SO(2)", homogeneous(known.so(2).basis), None),
    ("O(2)", homogeneous(known.so(2).basis), MIRROR),
    ("SO(3)", homogeneous(known.so(3).basis), None),
    ("Galilei(1)", known.galilei(1), None),
    ("Galilei(2)", known.galilei(2), None),
    ("Sim+(2)", torch.cat([known.euclidean(2).basis, homogeneous(torch.eye(2)[None])]), None),
    ("ISO+(1,1)", torch.cat([homogeneous(known.so(1, 1).basis), translations(2, 2)]), None),
    ("exp(so(2) with translations)", homogeneous(torch.block_diag(known.so(2).basis[0], torch.zeros(1, 1))[None],
                                                  torch.tensor([[0.0, 0.0, 1.0]])), None),
    ("SO(2)xT(1)", torch.cat([homogeneous(torch.block_diag(known.so(2).basis[0], torch.zeros(1, 1))[None]),
                              homogeneous(torch.zeros(1, 3, 3), torch.tensor([[0.0, 0.0, 1.0]]))]), None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "algebra", "cosets"), GROUPS, ids=[g[0] for g in GROUPS])
def test_names(name, algebra, cosets):
    group = Group(algebra, cosets, affine=True)
    assert group.name == name
    change = torch.eye(group.size, dtype=torch.float64)
    change[:-1, -1] = torch.randn(group.size - 1, generator=torch.Generator().manual_seed(0)).double()
    moved = change @ group.algebra.basis @ torch.linalg.inv(change)
    assert Group(moved, change @ group.cosets @ torch.linalg.inv(change), affine=True).name == name


def test_the_centre_is_found():
    point = torch.tensor([0.5, -1.5], dtype=torch.float64)
    turn = known.so(2).basis
    moved = homogeneous(turn, -(turn @ point))
    torch.testing.assert_close(fixed_point(Group(moved, affine=True)), point)
    assert fixed_point(Group(known.euclidean(2), affine=True)) is None
    assert fixed_point(Group(known.trivial(3), affine=True)) is None


def test_closing_keeps_affine_maps_affine():
    noise = 0.02 * torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(1)).double()
    noise[:, -1] = 0.0
    closed = LieAlgebra(known.euclidean(2).basis + noise).nearest_algebra()
    assert closed.closure_error() < 1e-9 and bool((closed.basis[:, -1] == 0).all())


def test_random_affine_maps():
    ambient = Ambient(4, affine=True)
    drawn = ambient.random(20, torch.Generator().manual_seed(0))
    torch.testing.assert_close(torch.linalg.det(drawn).abs(), torch.ones(20).double())
    assert bool((drawn[:, -1] == torch.tensor([0.0, 0.0, 0.0, 1.0])).all())
    assert abs(float(ambient.traceless(drawn - torch.eye(4))[3].trace())) < 1e-12
