"""The problem: which outputs count, which samples may be seen, and what is left of the map."""

from dataclasses import replace

import torch

from atlasd.discovery.setup import prepare
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent


def field_problem(exact, waves, function=None):
    atlas = Atlas.at([(15, 15), (16, 14)], in_radius=12, out_radius=9)
    return exact.problem_of(function or exact.blur, waves(40, (31, 31), length=8.0), atlas=atlas)


def test_splits_do_not_overlap(exact, waves):
    problem = field_problem(exact, waves)
    search, test = set(problem.search.tolist()), set(problem.test.tolist())
    assert not search & test and len(search | test) == 40
    assert torch.equal(problem.indices("test"), problem.test)
    assert sum(len(part) for part in problem.batches("search", 5)) == len(search)
    assert [len(part) for part in problem.batches("test", 5, limit=7)] == [5, 2]


def test_window_is_a_disc_inside_the_patch(exact, waves):
    problem = field_problem(exact, waves)
    window = problem.window((19, 19))
    assert window.shape == (19, 19) and window.min() >= 0 and window.max() <= 1
    assert window[9, 9] > 0.99 and window[0, 0] < 0.01 and window[0, 9] < 0.5
    torch.testing.assert_close(window, torch.rot90(window))


def test_window_drops_what_comes_from_outside(exact, waves):
    problem = field_problem(exact, waves)
    plain = problem.window((19, 19))
    shrunk = problem.window((19, 19), 0.5 * torch.eye(2).double(), (25, 25))
    assert shrunk.sum() < 0.5 * plain.sum() and shrunk[9, 9] > 0.9
    turned = problem.window((19, 19), torch.matrix_exp(0.5 * exact.turn), (25, 25))
    assert turned.sum() > 0.7 * plain.sum()
    each = problem.window((19, 19), torch.stack([0.5 * torch.eye(2).double(), exact.turn])[None], (25, 25))
    assert each.shape == (1, 2, 19, 19)
    torch.testing.assert_close(each[0, 0], shrunk)


def test_vectors_count_everywhere(exact):
    problem = exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(40, 3))
    assert torch.equal(problem.window((4,)), torch.ones(4)) and not problem.is_field


def test_the_pointwise_part_is_removed(exact, waves):
    problem = field_problem(exact, waves, lambda x: exact.blur(x) + 3 * x + x**3)
    plain = field_problem(exact, waves)
    x = problem.patches(problem.test)
    assert problem.is_field and problem.pointwise is not None
    # What is left is the same whatever pointwise map is added.
    torch.testing.assert_close(problem.psi(x), plain.psi(x), atol=2e-3, rtol=0)
    assert problem.outputs(x).square().mean() > 10 * problem.psi(x).square().mean()


def test_weights_of_charts(exact, waves):
    problem = field_problem(exact, waves)
    assert torch.equal(problem.chart_weights(), torch.ones(2, dtype=torch.float64))
    other = problem.with_weights(torch.tensor([2.0, 0.0]))
    assert other.chart_weights().tolist() == [2.0, 0.0] and problem.chart_weights().tolist() == [1.0, 1.0]


def test_charts_apart(exact, waves):
    problem = field_problem(exact, waves)
    assert problem.apart(torch.tensor([0.01, 0.5])).tolist() == [False, True]


def test_targets_are_the_data(exact):
    assert exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(40, 3)).targets is None
    x, y = exact.normal(60, 2), torch.arange(60) % 3
    setup = prepare(x, y, seed=0, progress=Silent(), predictor=MLPPredictor(schedule=Schedule(epochs=1)))
    assert setup.problem.classes == 3 and setup.problem.targets is not None
    assert setup.problem.targets(torch.tensor([4, 5])).tolist() == [[1], [2]]


def test_charts_stand_apart_by_more_than_their_noise(exact, waves):
    atlas = Atlas.at([(15, 15), (16, 14), (14, 16)], in_radius=12, out_radius=9)
    problem = exact.problem_of(exact.blur, waves(40, (31, 31), length=8.0), atlas=atlas)
    errors = torch.tensor([0.005, 0.077, 0.004], dtype=torch.float64)
    assert problem.apart(errors).tolist() == [False, True, False]
    noisy = replace(problem, noise=torch.tensor([0.0, 0.05, 0.0], dtype=torch.float64))
    assert not noisy.apart(errors).any()  # a poor predictor explains it
    assert not problem.apart(errors.clamp_min(0.04)).any()  # not far from the others
    assert problem.apart(errors.clamp_min(0.2)).all()  # nothing commutes anywhere
