"""Finite size: the error of a generator, and its descent to the exact one."""

import pytest
import torch

from atlasd.discovery.refine import FiniteCriterion, minimise, pooled, scaled
from atlasd.geometry.atlas import Atlas

EVERY = torch.eye(4, dtype=torch.float64).reshape(4, 2, 2)


@pytest.fixture(scope="module")
def criterion(exact, waves):
    atlas = Atlas.at([(15, 15), (15, 24)], in_radius=12, out_radius=9)
    problem = exact.problem_of(exact.blur, waves(40, (31, 40), length=8.0), atlas=atlas)
    return FiniteCriterion(problem, problem.patches(problem.search[:12]), (0.4, 1.0))


def even(criterion):
    return torch.full((len(criterion.steps),), 1 / len(criterion.steps), dtype=torch.float64)


def test_scaled_has_operator_norm_one(exact):
    a = scaled(exact.normal(5, 3, 3, dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.matrix_norm(a, ord=2), torch.ones(5, dtype=torch.float64))
    assert torch.equal(scaled(torch.zeros(2, 2).double()), torch.zeros(2, 2).double())
    torch.testing.assert_close(scaled(7 * exact.turn), exact.turn)


def test_errors_tell_a_turn_from_the_rest(criterion, exact):
    turn = criterion.errors(exact.turn, even(criterion))
    assert turn.shape == (12, 2) and turn.max() < 0.01
    for other in ([[0.0, 1.0], [1.0, 0.0]], [[1.0, 0.0], [0.0, -1.0]], [[0.0, 1.0], [0.0, 0.0]]):
        assert criterion.errors(torch.tensor(other).double(), even(criterion)).mean() > 0.05


def test_measure_agrees_with_errors(criterion, exact):
    a = scaled(exact.turn + 0.4 * EVERY[1])
    miss, chance = criterion.measure(a)
    assert miss.shape == chance.shape == (4, 12, 2)
    level = chance + 0.1 * chance.mean(1, keepdim=True)
    torch.testing.assert_close((miss / level).mean(0), criterion.errors(a, even(criterion)))


def test_one_generator_per_chart(criterion, exact):
    a = torch.stack([exact.turn, scaled(EVERY[1])])
    both = criterion.errors(a, even(criterion))
    torch.testing.assert_close(both[:, 0], criterion.errors(a[0], even(criterion))[:, 0])
    torch.testing.assert_close(both[:, 1], criterion.errors(a[1], even(criterion))[:, 1])


def test_first_order_model(criterion, exact):
    a = scaled(exact.turn + 0.3 * EVERY[0])
    model = criterion.linearise(a, EVERY, even(criterion))
    assert model.slope.shape == (12, 2, 4) and model.curve.shape == (12, 2, 4, 4)
    torch.testing.assert_close(model.error, criterion.errors(a, even(criterion)))
    step = 1e-3
    slope = [
        (criterion.errors(a + step * e, even(criterion)) - criterion.errors(a - step * e, even(criterion))).mean()
        for e in EVERY
    ]
    found, expected = model.slope.mean((0, 1)), torch.stack(slope) / (2 * step)
    # The common part of the chance level is not differentiated: the direction is right, the size nearly.
    assert torch.nn.functional.cosine_similarity(found, expected, dim=0) > 0.98
    assert (found - expected).norm() < 0.25 * expected.norm()


def test_descends_to_the_turn(criterion, exact):
    start = scaled(exact.turn + torch.tensor([[0.3, 0.2], [0.0, -0.3]]).double())
    a, errors = minimise(criterion, start, EVERY, torch.ones(2, dtype=torch.float64))
    angle = torch.rad2deg(torch.acos((a * exact.turn).sum().abs() / (a.norm() * exact.turn.norm())))
    assert angle < 1.0 and errors.shape == (2,) and errors.exp().max() < 0.01
    assert torch.linalg.matrix_norm(a, ord=2).item() == pytest.approx(1.0)


def test_descends_for_every_chart_apart(criterion, exact):
    start = scaled(exact.turn + torch.tensor([[0.2, 0.0], [0.2, 0.0]]).double())
    a, _ = minimise(criterion, start, EVERY, torch.ones(2, dtype=torch.float64), apart=True)
    assert a.shape == (2, 2, 2)
    for own in a:
        assert (own * exact.turn).sum().abs() / (own.norm() * exact.turn.norm()) > 0.999


def test_stays_in_its_subspace(criterion, exact):
    symmetric = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.7071], [0.7071, 0.0]]]).double()
    a, errors = minimise(criterion, symmetric[0], symmetric, torch.ones(2, dtype=torch.float64), iterations=3)
    torch.testing.assert_close(a, a.mT)
    assert errors.exp().min() > 0.02


def test_one_bad_chart_bends_little():
    errors = torch.full((10, 3), 1e-3, dtype=torch.float64)
    errors[:, 2] = 1.0
    weights = torch.ones(3, dtype=torch.float64)
    assert pooled(errors, weights).exp() < 0.05
    assert pooled(errors, torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)).exp().item() == pytest.approx(1.3e-3)


def test_what_is_frozen_is_the_nearer_sign_of_each_sample(criterion, exact):
    a = scaled(exact.turn + 0.4 * EVERY[1])
    miss, _ = criterion.measure(a)
    frozen = criterion.freeze(a, 0.5)
    errors = (miss / frozen.levels).unflatten(0, (2, 2)).mean(0)  # (2, B, K)
    assert torch.equal(frozen.backwards, errors[1] < errors[0]) and 0 < frozen.backwards.sum() < 24
    torch.testing.assert_close(criterion.nearer_errors(a, frozen), errors.amin(0))
    assert frozen.counted.sum(0).tolist() == [6, 6]
    assert errors.amin(0)[frozen.counted].max() <= errors.amin(0)[~frozen.counted].max()


def test_what_is_frozen_stays_at_another_generator(criterion, exact):
    a, b = scaled(exact.turn + 0.4 * EVERY[1]), scaled(exact.turn - 0.4 * EVERY[0])
    frozen = criterion.freeze(a, 1.0)
    miss, _ = criterion.measure(b)
    errors = (miss / frozen.levels).unflatten(0, (2, 2)).mean(0)
    expected = torch.where(frozen.backwards, errors[1], errors[0])
    torch.testing.assert_close(criterion.nearer_errors(b, frozen), expected)
    assert frozen.counted.all() and (expected > errors.amin(0)).any()
