"""Vectors that lie in a subspace: symmetries are found inside it, and nothing is said across it."""

import pytest
import torch

import atlasd as ad
from atlasd.discovery.prepare import prepare
from atlasd.discovery.spectral import along_surfaces
from atlasd.prediction.forms import FormPredictor
from atlasd.runtime.progress import Silent
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


def shell(count, seed):
    """Four-momenta of unit mass."""
    p = torch.randn(count, 3, generator=stream(seed, "shell"), dtype=torch.float64)
    return torch.cat([(1 + p.square().sum(1, keepdim=True)).sqrt(), p], dim=1)


@pytest.mark.parametrize(("mass", "count"), [(True, 6), (False, 16)])
def test_on_a_mass_shell_only_what_keeps_it_is_asked(mass, count):
    x = shell(600, 1) if mass else torch.randn(600, 4, generator=stream(1, "four"), dtype=torch.float64)
    problem, _ = prepare(x, x[:, 1] * x[:, 0], predictor=FormPredictor(), seed=0, progress=Silent())
    every = torch.eye(16, dtype=torch.float64)
    inside = along_surfaces(problem, torch.eye(4, dtype=torch.float64), every)
    assert len(inside) == count and torch.allclose(inside @ inside.mT, torch.eye(count).double(), atol=1e-9)
    if mass:
        x = problem.inputs(torch.arange(100))[:, 0].double()
        raw = problem.units.to_raw(inside.reshape(-1, 4, 4))
        metric = torch.diag(torch.tensor([1.0, -1.0, -1.0, -1.0])).double()
        assert float((raw.mT @ metric + metric @ raw).abs().max()) < 1e-6 * float(raw.abs().max())


def test_the_latitude_on_a_sphere_and_a_field_that_breaks_it():
    x = torch.nn.functional.normalize(torch.randn(600, 3, generator=stream(2, "sphere"), dtype=torch.float64), dim=1)
    found = ad.discover(x, x[:, 2] ** 3, progress=False)
    assert found.group.name == "O(2)" and "lie on a quadric" in found.verdict.reason
    tilted = ad.discover(x, x[:, 2] ** 3 + x[:, 0] * x[:, 1] + 0.4 * x[:, 1], progress=False, cosets=False)
    assert tilted.group.dimension == 0 and tilted.headline == "No symmetry"
