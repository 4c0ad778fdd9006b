"""The one formula: zero for symmetries, one for chance, and differentiable."""

import pytest
import torch

import atlasd as ad
from atlasd.discovery.criterion import halves, relative_error, squared
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction, VectorAction
from atlasd.geometry.atlas import Atlas


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_for_a_symmetry_and_not_for_others(exact, dtype):
    x = exact.normal(40, 2, dtype=dtype)
    turn = torch.matrix_exp(0.7 * exact.turn).to(dtype)
    errors = ad.equivariance_error(lambda z: z.norm(dim=-1), VectorAction(), x, turn)
    assert errors.shape == (40,) and errors.dtype == dtype and errors.max() < 1e-10
    assert ad.equivariance_error(lambda z: z.norm(dim=-1), VectorAction(), x, 2 * turn).min() > 0


def test_equivariant_outputs(exact):
    action = VectorAction(rho_out=lambda g: g)
    x, turn = exact.normal(40, 1, 2, dtype=torch.float64), torch.matrix_exp(0.7 * exact.turn)
    errors = ad.equivariance_error(lambda z: z * z.norm(dim=-1, keepdim=True), action, x, turn)
    assert errors.shape == (40, 1) and errors.max() < 1e-20


def test_fields_one_element_per_sample_and_chart(exact, waves):
    x = waves(3, (13, 13), channels=2)[:, :, None]  # (B, K, C, *S)
    quarter = torch.stack([torch.eye(2).double(), exact.turn]).expand(3, 2, 2, 2)
    errors = ad.equivariance_error(lambda z: z.square(), GridAction(), x, quarter)
    assert errors.shape == (3, 2) and errors.max() < 1e-12


def test_gradient_flows_to_g(exact):
    x = exact.normal(40, 2, dtype=torch.float64)
    g = (torch.eye(2).double() + 0.1 * exact.turn).requires_grad_()
    ad.equivariance_error(lambda z: z.norm(dim=-1), VectorAction(), x, g).mean().backward()
    assert g.grad is not None and g.grad.norm() > 0


def test_another_distance(exact):
    x = exact.normal(40, 3)
    action = VectorAction(rho_out=lambda g: g)
    errors = ad.equivariance_error(
        lambda z: z, action, x, torch.eye(3), distance=lambda a, b: (a - b).abs().sum(-1) + 1
    )
    assert torch.equal(errors, torch.ones(40))


def test_g_must_be_square(exact):
    with pytest.raises(InputError, match=r"`g` must have shape \(..., n, n\), got \(2, 3\)"):
        ad.equivariance_error(lambda z: z, VectorAction(), exact.normal(4, 2), torch.zeros(2, 3))


def test_squared_is_per_sample_and_chart():
    a = torch.zeros(2, 3, 4, 5)
    assert torch.equal(squared(a, a + 2), torch.full((2, 3), 4.0))
    assert torch.equal(squared(a[:, :, 0, 0], a[:, :, 0, 0] + 2), torch.full((2, 3), 4.0))


def test_halves_of_a_symmetry_and_of_chance(exact, waves):
    atlas = Atlas.at([(15, 15)], in_radius=12, out_radius=9)
    problem = exact.problem_of(exact.blur, waves(30, (31, 31), length=8.0), atlas=atlas)
    x = problem.patches(problem.test)
    same = halves(problem, x, exact.turn)
    assert same.miss.shape == (len(x), 1)
    assert (relative_error(same.miss, same.chance) < 1e-6).all() and (same.chance > 0).all()
    stretch = halves(problem, x, torch.diag(torch.tensor([1.6, 0.625], dtype=torch.float64)))
    assert 0.1 < (stretch.miss.mean() / stretch.chance.mean()) < 1.5
    known = halves(problem, x, exact.turn, problem.psi(x))
    assert torch.equal(known.miss, same.miss)


def test_the_floor_is_taken_off():
    miss, chance = torch.tensor([0.3, 0.1]), torch.tensor([2.0, 0.0])
    assert relative_error(miss, chance, 0.2).tolist() == [pytest.approx(0.05), 0.0]
