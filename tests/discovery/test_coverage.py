"""Coverage: inputs like those fitted to, and inputs that are not."""

import pytest
import torch

from atlasd.discovery.coverage import Coverage, Neighbours, Range, Totals
from atlasd.geometry.atlas import Atlas


@pytest.fixture(scope="module")
def striped(exact):
    """Fields that vary along rows only, as a problem, with what is known of them."""
    position = torch.arange(31.0)[:, None].expand(31, 31)
    phase = torch.rand(80, 1, 1, 1, generator=torch.Generator().manual_seed(0)) * 6.28
    x = (0.6 * position + phase).sin()
    atlas = Atlas.at([(15, 15)], in_radius=12, out_radius=9)
    problem = exact.problem_of(exact.blur, x, atlas=atlas)
    return problem, Coverage(problem, problem.patches(problem.search))


def test_new_samples_are_covered(striped):
    problem, cover = striped
    assert cover(problem.patches(problem.test)) > 0.9


def test_what_the_data_hold_is_covered_and_a_turn_is_not(striped, exact):
    problem, cover = striped
    x = problem.patches(problem.test)
    shear = torch.tensor([[1.0, 0.0], [0.7, 1.0]], dtype=torch.float64)  # moves along the columns, where nothing varies
    assert cover(problem.action.on_input(shear, x)) > 0.9
    assert cover(problem.action.on_input(exact.turn, x)) < 0.1


def test_a_turn_of_round_data_is_covered(exact, waves):
    atlas = Atlas.at([(15, 15)], in_radius=12, out_radius=9)
    problem = exact.problem_of(exact.blur, waves(200, (31, 31), length=8.0), atlas=atlas)
    cover = Coverage(problem, problem.patches(problem.search))
    x = problem.patches(problem.test)
    assert cover(problem.action.on_input(torch.matrix_exp(0.8 * exact.turn), x)) > 0.7
    assert cover(problem.action.on_input(0.3 * torch.eye(2).double(), x)) < 0.5


def test_large_vectors_are_not_covered(exact):
    problem = exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(400, 3))
    cover = Coverage(problem, problem.patches(problem.search))
    x = problem.patches(problem.test)
    assert cover(x) > 0.9 and cover(20 * x) < 0.1


def test_only_named_charts_count(exact, waves):
    x = waves(60, (31, 50))
    x[..., 25:] = 100 * torch.randn(60, 1, 31, 25, generator=torch.Generator().manual_seed(0))
    atlas = Atlas.at([(15, 12), (15, 37)], in_radius=12, out_radius=9)
    problem = exact.problem_of(exact.blur, x, atlas=atlas)
    patches = problem.patches(problem.test)
    calm = Coverage(problem, problem.patches(problem.search), torch.tensor([0]))
    changed = patches.clone()
    changed[:, 1] = 0.0
    assert calm(patches) == calm(changed)


def test_neighbours(exact):
    near = Neighbours(exact.normal(500, 2))
    assert near(exact.normal(200, 2, seed=1)).double().mean() > 0.7
    assert not near(exact.normal(200, 2, seed=1) + 10).any()


def test_range_knows_signs_and_padding(exact):
    x = exact.normal(300, 3, 2)
    x[..., 0] = x[..., 0].abs() + 0.01  # like an energy
    x[::2, 2] = 0.0  # padding
    inside = Range(x)
    flip = torch.tensor([1.0, -1.0])
    assert bool(inside(x).all())
    assert float(inside(x * flip).double().mean()) > 0.9
    assert not bool(inside(-x * flip).any())
    assert not bool(inside(20 * x).all())
    assert Range(x[:, 0])(x[:5, 0]).shape == (5,)


def test_totals_know_a_shell(exact):
    x = exact.normal(400, 6, 3)
    x = x / x.sum(1).norm(dim=-1)[:, None, None]  # every set adds up to length 1
    same = Totals(x)
    turned = x @ torch.matrix_exp(0.5 * torch.tensor([[0.0, 1, 0], [-1, 0, 0], [0, 0, 0]])).mT
    assert float(same(turned).double().mean()) > 0.7
    assert not bool(same(1.2 * x).any())
    assert bool(Totals(x[:, 0])(5 * x[:, 0]).all())  # single vectors: nothing is asked
