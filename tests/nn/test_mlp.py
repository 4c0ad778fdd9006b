"""Perceptrons on vectors: their invariants, what they commute with, and that they win on small data."""

import subprocess
import sys

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.nn import EquivariantMLP, EquivariantSetMLP, scalar, tensor, vector
from atlasd.nn.groups import elements_inside, elements_outside
from atlasd.runtime.random import stream

SHEAR = torch.eye(4, dtype=torch.float64) + 0.3 * torch.randn(4, 4, generator=stream(0, "shear"), dtype=torch.float64)
GROUPS = {
    "SO(3)": ad.known.special_orthogonal(3),
    "O(3)": ad.known.orthogonal(3),
    "SO+(1,3)": ad.known.lorentz(1),
    "Sp(4)": ad.Group(ad.known.sp(4)),
    "SL(2)": ad.known.special_linear(2),
    "octahedral": ad.known.octahedral(),
    "sheared Sp(4)": ad.Group(ad.known.sp(4).conjugate(SHEAR)),
}
every = pytest.mark.parametrize("name", GROUPS)


@pytest.mark.parametrize(
    ("group", "vectors", "count"),
    [
        (ad.known.orthogonal(3), 3, 6),  # scalar products
        (ad.known.special_orthogonal(3), 3, 7),  # and the volume
        (ad.known.lorentz(1), 3, 6),
        (ad.known.lorentz(1), 4, 11),
        (ad.Group(ad.known.sp(4)), 3, 3),  # antisymmetric products
        (ad.known.special_linear(2), 3, 3),
        (ad.known.special_linear(3), 3, 1),
        (ad.known.cyclic(4), 1, 3),  # x^2 + y^2 and two of degree four
    ],
    ids=str,
)
def test_generating_invariants(group, vectors, count):
    degree = 4 if group.size == 2 else None
    assert len(EquivariantMLP(group, vectors * vector(), scalar(), width=2, degree=degree).invariants) == count


def test_the_default_degree_reaches_the_order_of_the_outputs():
    group = ad.known.special_linear(2)
    net = EquivariantMLP(group, 3 * vector(), tensor(2), width=4, generator=stream(0)).double()
    x = torch.randn(9, 3, 2, generator=stream(1), dtype=torch.float64)
    g = elements_inside(group, 1, generator=stream(2))[0]
    torch.testing.assert_close(net(x @ g.mT), net(x) @ tensor(2).matrix(g).mT, rtol=1e-8, atol=1e-8)
    with pytest.raises(InputError, match=r"up to degree 1 transforms as T\(2\); raise `degree`"):
        EquivariantMLP(group, 3 * vector(), tensor(2), width=4, degree=2)


def test_a_finite_group_is_not_taken_for_a_larger_one():
    """Points that only a rotation by another angle maps to each other are told apart, or a warning is given."""
    group = ad.known.dihedral(5)
    net = EquivariantMLP(group, vector(), scalar(), width=8, generator=stream(0)).double()
    x = torch.randn(20, 2, generator=stream(1), dtype=torch.float64)
    still = net(x).detach()
    for g in group.cosets:
        torch.testing.assert_close(net(x @ g.mT), still)
    turn = ad.known.so(2).exp(torch.tensor([0.3], dtype=torch.float64))
    assert float((net(x @ turn.mT) - still).detach().abs().max()) > 0.01 * float(still.std())
    with pytest.warns(UserWarning, match="those of a larger group than D5, whose own have degrees up to 10"):
        EquivariantMLP(group, vector(), scalar(), width=8, degree=2)


@every
def test_outputs_follow_the_inputs(name):
    group = GROUPS[name]
    outputs = 2 * scalar() + 2 * vector()
    net = EquivariantMLP(group, 3 * vector() + 2 * scalar(), outputs, width=8, generator=stream(0)).double()
    n = group.size
    x = torch.randn(20, 3 * n + 2, generator=stream(1), dtype=torch.float64)
    net.standardise(x)
    inside = elements_inside(group, 4, generator=stream(2), scale=0.5)
    rep_in = 3 * vector() + 2 * scalar()

    def miss(g):
        left, right = net(x @ rep_in.matrix(g).mT), net(x) @ outputs.matrix(g).mT
        return float(((left - right).norm() / right.norm()).detach())

    assert max(miss(g) for g in inside) < 1e-8
    if group.dimension < n * n - 1:
        assert min(miss(g) for g in elements_outside(group, 4, generator=stream(2), scale=0.5)) > 1e-3


@every
def test_sets_do_not_depend_on_order_or_padding(name):
    group = GROUPS[name]
    degree = 4 if name == "octahedral" else None  # less is that of all rotations
    net = EquivariantSetMLP(group, 2 * scalar(), width=8, degree=degree, generator=stream(0)).double()
    x = torch.randn(6, 5, group.size, generator=stream(1), dtype=torch.float64)
    net.standardise(x)
    y = net(x)
    torch.testing.assert_close(net(x[:, [3, 1, 0, 4, 2]]), y)
    torch.testing.assert_close(net(torch.cat([x, 0 * x], 1)), y)
    g = elements_inside(group, 1, generator=stream(2), scale=0.5)[0]
    torch.testing.assert_close(net(x @ g.mT), y, rtol=1e-7, atol=1e-8)
    assert (net(x * 1.3) - y).abs().max() > 1e-4


def test_matrices_come_in_and_go_out():
    group = ad.known.special_orthogonal(3)
    net = EquivariantMLP(group, tensor(2) + vector(), tensor(2), width=8, degree=2, generator=stream(0)).double()
    x = torch.randn(7, 12, generator=stream(1), dtype=torch.float64)
    g = elements_inside(group, 1, generator=stream(2))[0]
    moved = x @ (tensor(2) + vector()).matrix(g).mT
    torch.testing.assert_close(net(moved), net(x) @ tensor(2).matrix(g).mT)


def test_float32_networks_are_invariant_under_large_boosts():
    net = EquivariantMLP(ad.known.lorentz(1), 3 * vector(), scalar(), generator=stream(0))
    x = torch.randn(50, 3, 4, generator=stream(1), dtype=torch.float64)
    boost = torch.matrix_exp(3.0 * torch.tensor([[0, 1.0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]).double())
    y = net(x.double()).detach()
    assert float((net(x @ boost.mT).detach() - y).abs().max() / y.std()) < 1e-4
    assert net(x.float()).dtype == torch.float32


def fit(net, x, y, steps=150):
    optimiser = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        optimiser.zero_grad()
        (net(x)[:, 0] - y).square().mean().backward()
        optimiser.step()
    return net


def test_small_data_and_coordinates_that_are_learned():
    metric = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0]))
    x = torch.randn(600, 2, 4, generator=stream(0))
    y = torch.tanh(torch.einsum("ba,ac,bc->b", x[:, 0], metric, x[:, 1]) / 2)
    noise = 0.05 * torch.randn(4, 4, generator=stream(1), dtype=torch.float64)
    tilted = ad.Group(ad.known.so(1, 3).conjugate(torch.matrix_exp(noise)))
    errors = {}
    for adapt in (False, True):
        net = EquivariantMLP(tilted, 2 * vector(), scalar(), 24, adapt=adapt, generator=stream(2))
        net.standardise(x[:300])
        fit(net, x[:300], y[:300])
        errors[adapt] = float((net(x[300:])[:, 0] - y[300:]).square().mean().sqrt().detach())
    torch.manual_seed(0)
    plain = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(8, 24), torch.nn.SiLU(), torch.nn.Linear(24, 24), torch.nn.SiLU(),
        torch.nn.Linear(24, 1),
    )  # fmt: skip
    fit(plain, x[:300], y[:300])
    rival = float((plain(x[300:])[:, 0] - y[300:]).square().mean().sqrt().detach())
    assert errors[True] < errors[False] < rival and errors[True] < 0.25 * rival
    assert net.conjugated.algebra.distance(ad.known.so(1, 3)) < 0.5 * tilted.algebra.distance(ad.known.so(1, 3))
    g = elements_inside(net.conjugated, 1, generator=stream(3), scale=0.5)[0]
    torch.testing.assert_close(net(x @ g.mT.float()), net(x), atol=1e-3, rtol=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_exported_programs_load_with_torch_alone(tmp_path):
    net = EquivariantMLP(ad.known.lorentz(1), 2 * vector(), scalar() + vector(), 8, generator=stream(0)).eval()
    x = torch.randn(4, 2, 4, generator=stream(1))
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    torch.save({"x": x, "y": net(x).detach()}, tmp_path / "data.pt")
    code = (
        "import sys, torch; net = torch.export.load(sys.argv[1]).module(); d = torch.load(sys.argv[2])\n"
        "assert torch.allclose(net(d['x']), d['y'], atol=1e-5) and 'atlasd' not in sys.modules"
    )
    files = [str(tmp_path / "net.pt2"), str(tmp_path / "data.pt")]
    subprocess.run([sys.executable, "-I", "-c", code, *files], check=True, timeout=120)


def test_modules_are_saved_and_loaded(tmp_path):
    net = EquivariantMLP(ad.known.lorentz(1), 2 * vector(), scalar(), 8, generator=stream(0))
    torch.save(net, tmp_path / "net.pt")
    x = torch.randn(4, 2, 4, generator=stream(1))
    assert torch.equal(torch.load(tmp_path / "net.pt", weights_only=False)(x), net(x))


def test_what_cannot_be_done_is_said():
    with pytest.raises(InputError, match=r"GL\+\(2\).*leaves no polynomial.*could only be constant"):
        EquivariantMLP(ad.known.general_linear_plus(2), 2 * vector(), scalar())
    with pytest.raises(InputError, match="must have 8 numbers"):
        EquivariantMLP(ad.known.lorentz(1), 2 * vector(), scalar(), 4)(torch.zeros(2, 9))
    with pytest.raises(InputError, match="`width` and `depth`"):
        EquivariantMLP(ad.known.lorentz(1), 2 * vector(), scalar(), 0)
    with pytest.raises(InputError, match=r"shape \(B, P, 4\)"):
        EquivariantSetMLP(ad.known.lorentz(1), scalar(), 4)(torch.zeros(2, 4))


@pytest.mark.parametrize("unit", [1e-3, 1e3])
def test_targets_start_the_linear_map_and_give_the_units(unit):
    x = torch.randn(800, 2, 3, generator=stream(3), dtype=torch.float64)
    force = unit * ((x * x).sum((1, 2)).unsqueeze(1) * x[:, 0] - 2 * x[:, 1])
    y = torch.cat([5 * unit + unit * (x[:, 0] * x[:, 1]).sum(1, keepdim=True), force], 1)
    group, outputs = ad.known.special_orthogonal(3), scalar() + vector()
    net = EquivariantMLP(group, 2 * vector(), outputs, generator=stream(0)).double()
    fresh = torch.randn(100, 2, 3, generator=stream(4), dtype=torch.float64)
    force = unit * ((fresh * fresh).sum((1, 2)).unsqueeze(1) * fresh[:, 0] - 2 * fresh[:, 1])
    truth = torch.cat([5 * unit + unit * (fresh[:, 0] * fresh[:, 1]).sum(1, keepdim=True), force], 1)

    def error():
        with torch.no_grad():
            return float(((net(fresh) - truth).square().mean(0) / truth.var(0)).mean().sqrt())

    net.standardise(x)
    without = error()
    net.standardise(x, y)
    assert error() < 0.3 < 0.9 < without
    g = elements_inside(group, 1, generator=stream(2))[0]
    assert torch.allclose(net(fresh @ g.mT), net(fresh) @ outputs.matrix(g).mT, atol=1e-6 * unit)
    with pytest.raises(InputError, match="must have 4 numbers"):
        net.standardise(x, y[:, :2])
