"""First order in closed form: exact zeros, chance at one, and directions that nothing feels."""

import pytest
import torch

from atlasd.algebra.known_algebras import sl, so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery import gram
from atlasd.geometry.actions import VectorAction
from atlasd.geometry.atlas import Atlas


def solved(problem, **options):
    sums = gram.accumulate(problem, "search", **options)
    return gram.solve(*gram.pool(*sums.total(), problem.chart_weights()))


def null_space(values, directions, n, below=1e-8):
    return LieAlgebra(directions[values < below].reshape(-1, n, n))


def det(x):
    return x[:, 0, 0] * x[:, 1, 1] - x[:, 0, 1] * x[:, 1, 0]


CASES = {
    "norm": ((2,), lambda x: x.norm(dim=-1), so(2)),
    "norm in space": ((3,), lambda x: x.square().sum(-1).cos(), so(3)),
    "product of two": ((2, 3), lambda x: (x[:, 0] * x[:, 1]).sum(-1), so(3)),
    "interval": ((4,), lambda x: x[:, 1:].square().sum(-1) - x[:, 0].square(), so(1, 3)),
    "area": ((2, 2), det, sl(2)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_algebras_of_invariants(exact, name, dtype):
    shape, function, algebra = CASES[name]
    if name == "product of two":  # p.q alone has more: A + A^T on the pair; the norms leave rotations
        function = lambda x: torch.stack([(x[:, 0] * x[:, 1]).sum(-1), x[:, 0].square().sum(-1)], -1)  # noqa: E731
    problem = exact.problem_of(function, exact.normal(300, *shape, dtype=dtype))
    values, directions, blind = solved(problem)
    assert len(blind) == 0 and (values.diff() >= 0).all()
    found = null_space(values, directions, algebra.size)
    assert found.dimension == algebra.dimension
    assert found.distance(algebra) < (1e-4 if dtype == torch.float32 else 1e-7)
    assert values[algebra.dimension] > 0.01


def test_equivariant_vectors(exact):
    problem = exact.problem_of(
        lambda x: x * x.norm(dim=-1, keepdim=True), exact.normal(300, 3), action=VectorAction(rho_out=lambda g: g)
    )
    values, directions, _ = solved(problem)
    assert null_space(values, directions, 3).distance(so(3)) < 1e-4


def test_no_symmetry_no_zero(exact):
    def cubic(x):
        u, v = x.unbind(-1)
        return u**3 - 0.7 * u * u * v + 1.3 * u * v * v + 0.4 * v**3 + 0.8 * u * u + 0.6 * u - 0.9 * v

    values, _, _ = solved(exact.problem_of(cubic, exact.normal(500, 2)))
    assert values.min() > 0.02


def test_chance_is_one_for_vectors(exact):
    # The gradient of many waves has nothing to do with where it is.
    w, phase = 3 * exact.normal(3, 400, seed=1), 6 * exact.normal(400, seed=2)
    values, _, _ = solved(exact.problem_of(lambda x: (x @ w + phase).cos().sum(-1), exact.normal(3000, 3)))
    assert values.min() > 0.7 and values.max() < 1.4


def test_chance_is_one_for_fields(exact, waves):
    # Pixels in another order: how outputs move has nothing to do with how inputs do.
    order = torch.randperm(15 * 15, generator=torch.Generator().manual_seed(0))

    def scrambled(x):
        return x.flatten(-2)[..., order].unflatten(-1, (15, 15))

    values, _, _ = solved(exact.problem_of(scrambled, waves(80, (15, 15))), batch=16)
    assert values.min() > 0.7 and values.max() < 1.3


def test_rotation_of_a_round_stencil(exact, waves):
    atlas = Atlas.at([(12, 12)], in_radius=10, out_radius=8)
    problem = exact.problem_of(exact.blur, waves(60, (25, 25), length=8.0), atlas=atlas)
    values, directions, _ = solved(problem, batch=16)
    assert values[0] < 0.01 < 0.2 < values[1]
    assert exact.degrees(LieAlgebra(directions[:1].reshape(1, 2, 2)), so(2)) < 1.0


def test_directions_that_nothing_feels_are_not_symmetries(exact):
    x = exact.normal(300, 3)
    x[:, 2] = 0.0  # the data do not move along the third axis, and the function does not see it
    values, _, blind = solved(exact.problem_of(lambda z: z[:, :2].square().sum(-1), x))
    assert len(values) == 4 and blind.shape == (5, 9)
    assert (blind.reshape(5, 3, 3)[:, :2, :2].abs() < 1e-6).all()
    assert int((values < 1e-8).sum()) == 1


def test_streaming_gives_the_same_sums(exact):
    problem = exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(200, 2))
    once = gram.accumulate(problem, "search", batch=1000, shards=1).total()
    parts = gram.accumulate(problem, "search", batch=7, shards=9)
    assert int(parts.counts.sum()) == len(problem.search)
    torch.testing.assert_close(parts.total()[0], once[0])
    # The chance level is a product of two means, which depends a little on the shards.
    torch.testing.assert_close(parts.total()[1], once[1], rtol=0.15, atol=0.05)


def test_resampled_shards(exact):
    problem = exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(200, 2))
    sums = gram.accumulate(problem, "search", shards=4)
    one = sums.total(torch.tensor([2, 2, 2]))[0]
    torch.testing.assert_close(one, sums.residual[2])


def test_a_function_without_forward_derivative_is_differenced(exact):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            return 3 * ctx.saved_tensors[0] ** 2 * grad

    x = exact.normal(4, 5, dtype=torch.float64)
    tangents = exact.normal(2, 4, 5, seed=1, dtype=torch.float64)
    y, pushed = gram.push_forward(Cube.apply, x, tangents)
    torch.testing.assert_close(y, x**3)
    torch.testing.assert_close(pushed, 3 * x**2 * tangents, rtol=1e-3, atol=1e-4)
