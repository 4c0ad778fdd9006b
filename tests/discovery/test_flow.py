"""Symmetries and conserved quantities of flows with known answers."""

import pytest
import torch

import atlasd as ad
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conserved import find_conserved
from atlasd.discovery.flow import FlowPredictor, _quotient
from atlasd.errors import InputError
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream


def states(count, n, seed=0):
    return torch.randn(count, n, generator=stream(seed, "states"), dtype=torch.float64)


def hopf(v, broken=0.0):
    x, y = v.unbind(-1)
    r = x * x + y * y
    return torch.stack([x - y - x * r, x + y - y * r + broken * x * x], dim=-1)


def oscillator(v, damping=0.0):
    return torch.stack([v[:, 1], -v[:, 0] - damping * v[:, 1]], dim=-1)


def lorenz(v):
    x, y, z = v.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], dim=-1)


def noisy(y, share, seed=1):
    return y + share * y.square().mean().sqrt() * torch.randn(y.shape, generator=stream(seed, "noise"), dtype=y.dtype)


def conserved(x, dx, degree=None, functions=None):
    """Conserved quantities and the sentence about them, without a search for symmetries."""
    options = {"degree": degree, "functions": functions or {}, "tolerance": 0.2, "seed": 0, "progress": Silent()}
    return find_conserved(x, dx, predictor=FlowPredictor(), **options)


def test_rotation_about_another_point():
    x = states(400, 2)
    found = ad.discover_flow(x + 5, noisy(hopf(x), 0.03), cosets=False, degree=0)
    assert found.group.name == "SO(2)" and "centre is (5" in found.verdict.reason
    assert ad.discover_flow(x, hopf(x), action="linear", cosets=False, degree=0).group.name == "SO(2)"


def test_a_broken_term_is_not_claimed():
    x = states(400, 2)
    found = ad.discover_flow(x, noisy(hopf(x, broken=1.2), 0.03), cosets=False, degree=0)
    assert not found.verdict.symmetric


def test_the_flow_is_divided_out():
    x = states(300, 2)
    found = ad.discover_flow(x, oscillator(x), cosets=False)
    assert found.group.name == "R+" and found.trivial is not None
    turn = found.trivial[:2, :2] / found.trivial[:2, :2].norm()
    torch.testing.assert_close(turn, torch.tensor([[0.0, 1.0], [-1.0, 0.0]]).double() / 2**0.5, atol=1e-4, rtol=0)


def test_what_the_flow_commutes_with_stays_an_algebra():
    """Two damped oscillators: complex matrices, of which the flow is a multiple of the identity."""
    one, i = torch.eye(2).double(), torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    units = torch.eye(4).double().reshape(4, 2, 2)
    basis = torch.cat([torch.stack([torch.kron(u, one), torch.kron(u, i)]) for u in units])
    flow = torch.tensor([-0.1, 1.0, 0.0, 0.0, 0.0, 0.0, -0.1, 1.0]).double()
    rows = torch.einsum("kij,bj->kbi", basis, states(50, 4)).flatten(1)
    rest = LieAlgebra(_quotient(basis, flow, rows))
    assert rest.dimension == 7 and rest.closure_error() < 1e-9
    assert not rest.contains(torch.einsum("k,kij->ij", flow, basis))
    # Positions, momenta and their bracket: what is a bracket cannot be split off.
    heisenberg = torch.zeros(3, 3, 3).double()
    heisenberg[0, 0, 1] = heisenberg[1, 1, 2] = heisenberg[2, 0, 2] = 1.0
    rows = torch.einsum("kij,bj->kbi", heisenberg, states(50, 3)).flatten(1)
    assert _quotient(heisenberg, torch.tensor([0.0, 0.0, 1.0]).double(), rows) is None


def test_a_contraction_is_known_as_well_as_the_flow():
    """A rotation commutes with the scaling of the plane; where it contracts, outputs and their errors are stretched."""
    x = 2 * torch.rand(400, 2, generator=stream(3, "box"), dtype=torch.float64) - 1
    found = ad.discover_flow(x, noisy(oscillator(x), 0.03), cosets=False, degree=0)
    assert found.group.name == "R+" and found.verdict.directions[0].upper < 0.03


def bent(x):
    """The flow of u' = u^2, w' = w in coordinates with u = x, w = y - x^2."""
    u, w = x[:, 0], x[:, 1] - x[:, 0] ** 2
    return torch.stack([u**2, w + 2 * u**3], dim=-1)


def test_a_symmetry_that_is_not_linear():
    x = states(200, 2)
    found = ad.discover_flow(x, bent(x), action=ad.PolynomialAction(degree=2), degree=0)
    assert found.symmetries.formulas == ["(y - x^2) d/dy"] and found.verdict.symmetric
    broken = bent(x) + 0.4 * bent(x).std() * torch.sin(2 * x.flip(1))
    assert not ad.discover_flow(x, broken, action=ad.PolynomialAction(degree=2), degree=0).verdict.symmetric


def test_next_states():
    x = states(300, 2)
    after = x + 0.1 * hopf(x)
    assert ad.discover_flow(x, after=after, cosets=False, degree=0).group.name == "SO(2)"


def test_a_cyclic_coordinate():
    x = states(300, 2)
    speeds = torch.stack([1 + x[:, 1] ** 3, x[:, 1] - x[:, 1] ** 2], dim=-1)
    found = ad.discover_flow(x, speeds, cosets=False, degree=0)
    assert found.group.name == "T(1)" and abs(float(found.algebra.basis[0, 0, 2])) == pytest.approx(1)


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_energy_of_an_oscillator(share):
    x = states(600, 2)
    found, _ = conserved(x, noisy(oscillator(x), share))
    assert len(found) == 1
    c = dict(zip(found[0].names, found[0].coefficients.tolist(), strict=True))
    assert abs(c["x^2"] - c["y^2"]) < 0.1 and abs(c["x y"]) < 0.1
    assert share or found[0].formula == "x^2 + y^2"


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_nothing_is_conserved(seed):
    x = states(600, 2, seed)
    damped = ad.discover_flow(x, oscillator(x, damping=0.3), cosets=False)
    assert not damped.conserved and damped.reason.startswith("Nothing is conserved")
    assert not conserved(8 * (x3 := states(600, 3, seed)), lorenz(8 * x3))[0]


def test_a_coordinate_that_stays():
    x = states(400, 3)
    still = torch.stack([-1.5 * x[:, 1] * x[:, 2], 1.5 * x[:, 2] * x[:, 0], 0 * x[:, 0]], dim=-1)
    assert [c.formula for c in conserved(x, still)[0]] == ["z", "x^2 + y^2"]
    drifting = torch.cat([still[:, :2], -0.1 * x[:, 2:]], dim=1)
    assert [c.formula for c in conserved(x, drifting)[0]] == ["x^2 + y^2"]


def test_a_charge_in_a_magnetic_field():
    """Its energy may hold any function of the centre of its circle, and is written without."""
    x = states(300, 4)
    speeds = torch.cat([x[:, 2:], 1.5 * x[:, [3, 2]] * torch.tensor([1.0, -1.0]).double()], dim=1)
    found, _ = conserved(x, speeds, degree=2)
    assert [c.formula for c in found] == ["x1 + 0.667 x4", "x2 - 0.667 x3", "x3^2 + x4^2"]


def test_a_component_of_the_flow_that_is_zero():
    x = states(300, 2)
    found = ad.discover_flow(x, torch.stack([x[:, 1], 0 * x[:, 0]], dim=-1), action="linear", cosets=False)
    assert found.group.name == "R+"
    assert [c.formula for c in found.conserved] == ["y"]
    with pytest.raises(InputError, match="zero everywhere"):
        ad.discover_flow(x, 0 * x)


def test_states_of_one_orbit():
    """What holds on one orbit, such as its equation, is told apart from what holds on all."""
    angle = 6.3 * torch.rand(300, generator=stream(0, "angle"), dtype=torch.float64)
    circle = torch.stack([angle.cos(), angle.sin()], dim=-1)
    found, said = conserved(circle, oscillator(circle), degree=2)
    assert found and "one level of it" in said and "need not be conserved on others" in said
    assert "one level" not in conserved(x := states(300, 2), oscillator(x), degree=2)[1]


def test_names_of_components():
    x = states(300, 2)
    found = ad.discover_flow(x, oscillator(x), cosets=False, names=["q", "p"], degree=2)
    assert [c.formula for c in found.conserved] == ["q^2 + p^2"]
    assert found.symmetries.formulas == ["q d/dq + p d/dp"]
    with pytest.raises(InputError, match="`names` must name each of the 2 components"):
        ad.discover_flow(x, oscillator(x), names=["q"])


def test_given_functions():
    q, p = states(600, 2), states(600, 2, seed=3)
    q = q / q.norm(dim=1, keepdim=True) * (0.5 + torch.rand(600, 1, generator=stream(0, "radius")).double())
    x = torch.cat([q, p], dim=1)
    speeds = torch.cat([p, -q / q.norm(dim=1, keepdim=True) ** 3], dim=1)
    found, said = conserved(x, speeds, degree=2, functions={"1/r": lambda z: 1 / z[:, :2].norm(dim=1)})
    assert len(found) == 2
    momentum = found[0]
    c = dict(zip(momentum.names, momentum.coefficients.tolist(), strict=True))
    assert abs(c["x1 x4"] + c["x2 x3"]) < 0.05 and "1/r" in found[1].formula
    assert said.startswith("Conserved among")


def test_bad_input():
    x = states(100, 2)
    with pytest.raises(InputError, match="`dx` or `after` must be given"):
        ad.discover_flow(x)
    with pytest.raises(InputError, match="one shape"):
        ad.discover_flow(x, x[:50])
    with pytest.raises(InputError, match="'affine', 'linear' or a PolynomialAction"):
        ad.discover_flow(x, x, action="projective")
    with pytest.raises(InputError, match="would fit"):
        ad.discover_flow(x, hopf(x), cosets=False, degree=40)
    with pytest.raises(InputError, match="differentiable values"):
        ad.discover_flow(x, hopf(x), cosets=False, functions={"one": lambda z: torch.ones(len(z))})
