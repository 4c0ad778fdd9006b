"""Vectors that lie in a subspace: symmetries are found inside it, and nothing is said across it."""

import pytest
import torch

import atlasd as ad
from atlasd.runtime.random import stream


@pytest.fixture(scope="module", params=[torch.float32, torch.float64])
def points(request):
    return torch.randn(500, 2, generator=stream(0, "points"), dtype=request.param)


def twice(v):
    """Vectors of the plane as four components, the last two opposite to the first."""
    return torch.cat([v, -v], dim=1)


def test_a_rotation_of_two_opposite_points(points):
    found = ad.discover(twice(points), points.square().sum(1), cosets=False, progress=False)
    assert found.group.dimension == 1 and "could not be tested" in found.verdict.reason
    turn = found.algebra.basis[0] @ twice(points).double().mT
    across = twice(points).double().mT
    assert float((turn * across).sum(0).abs().max()) < 1e-3 * float(turn.norm(dim=0).max())
    assert float((turn[:2] + turn[2:]).abs().max()) < 1e-3  # it stays in the subspace


def test_a_flow_of_two_opposite_points(points):
    speed = torch.stack([-points[:, 1], points[:, 0]], dim=1) * points.square().sum(1, keepdim=True)
    found = ad.discover_flow(twice(points), twice(speed), action="linear", cosets=False, degree=0)
    assert found.group.dimension == 1 and found.verdict.directions[0].upper < 0.05


def test_a_constant_column_is_left_out(points):
    x = torch.cat([points, torch.full_like(points[:, :1], 7.0)], dim=1)
    found = ad.discover(x, points.norm(dim=1), cosets=False, progress=False)
    turn = found.algebra.basis
    assert (
        len(turn) == 1 and float(turn[:, 2].abs().max()) < 0.02 and float((turn[0] + turn[0].mT)[:2, :2].norm()) < 0.1
    )
    wavy = points.norm(dim=1) + torch.sin(2 * points[:, 0] + points[:, 1]) + points[:, 0]
    assert ad.discover(x, wavy, cosets=False, progress=False).group.dimension == 0


def test_nothing_where_nothing_is(points):
    wavy = points.square().sum(1) + torch.sin(2 * points[:, 0] + points[:, 1]) + points[:, 0]
    assert ad.discover(twice(points), wavy, cosets=False, progress=False).group.dimension == 0


def test_centred_sets_which_no_translation_leaves_among_the_data():
    x = torch.randn(120, 3, 2, generator=torch.Generator().manual_seed(0)).double()
    x = x - x.mean(1, keepdim=True)
    y = sum((x[:, i] - x[:, j]).square().sum(-1) for i in range(3) for j in range(i))
    found = ad.discover(x, y, progress=False, cosets=False)
    assert found.group.name == "SO(2)" and "translations" not in found.verdict.reason
