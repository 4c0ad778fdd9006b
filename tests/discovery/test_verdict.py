"""Decisions: every one of them, each with its reason."""

import pytest
import torch

from atlasd.discovery.discover import discover
from atlasd.discovery.verdict import Evidence, Gates, decide, element_evidence, field_evidence, vector_evidence
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.random import stream

OPEN = Gates(skill=0.9, testable=0.5)
SIZES = (0.3, 0.6, 1.0)


def evidence(low, high, **changes):
    draws = torch.linspace(low, high, 400, dtype=torch.float64)
    given = {"error": (low + high) / 2, "draws": draws, "chance": 1.0, "moved": 0.5, "coverage": 0.9, "extent": 1.0}
    return Evidence(**{**given, "charts": torch.zeros(1), **changes})


@pytest.mark.parametrize(
    ("found", "gates", "control", "decision", "reason"),
    [
        (evidence(0.001, 0.01), OPEN, None, "symmetry", "below the tolerance 0.05"),
        (evidence(0.001, 0.01), OPEN, 0.6, "symmetry", "below the tolerance"),
        (evidence(0.001, 0.01), OPEN, 0.01, "cannot tell", "untrained predictor of the same kind commutes as well"),
        (evidence(0.2, 0.4), OPEN, None, "broken", "above the tolerance"),
        (evidence(0.2, 0.4, coverage=0.05), OPEN, None, "cannot tell", "moved inputs leave what was fitted to"),
        (evidence(0.02, 0.2), OPEN, None, "cannot tell", "hold the tolerance"),
        (evidence(0.0, 0.0, moved=0.0), OPEN, None, "not testable", "neither moves the data nor is felt"),
        (evidence(0.0, 0.0), Gates(skill=0.1, testable=0.5), None, "cannot tell", "no skill"),
        (evidence(0.0, 0.0), Gates(skill=0.9, testable=0.0), None, "not testable", "same pixel"),
        (evidence(0.0, 0.0), Gates(skill=0.9, testable=0.5, saturated=True), None, "not testable", "saturated"),
    ],
)
def test_decisions(found, gates, control, decision, reason):
    direction = decide(found, gates, 0.05, 1, control)
    assert direction.decision == decision and reason in direction.reason
    assert direction.lower <= direction.error <= direction.upper and direction.tolerance == 0.05


def test_open_gates_refuse_nothing():
    assert OPEN.refusal() is None


def test_more_tests_need_more_certainty():
    found = evidence(0.0, 0.052)
    assert decide(found, OPEN, 0.05, 1).decision == "symmetry"
    assert decide(found, OPEN, 0.05, 10).decision == "cannot tell"


@pytest.fixture(scope="module")
def blurred(exact, waves):
    atlas = Atlas.at([(15, 15), (15, 24)], in_radius=12, out_radius=9)
    return exact.problem_of(exact.blur, waves(60, (31, 40), length=8.0), atlas=atlas)


def test_field_evidence(blurred, exact):
    stretch = torch.tensor([[1.0, 0.0], [0.0, -1.0]]).double()
    ones = torch.ones(2, dtype=torch.float64)
    basis = torch.stack([exact.turn, stretch])
    turn, other = field_evidence(blurred, basis, ones, SIZES, 0.05, seed=stream(0, "draws"))
    assert turn.error < 0.01 and turn.draws.shape == (400,) and turn.charts.shape == (2,) and turn.extent == 1.0
    assert other.error > 0.1 and other.draws.min() > 0.05 and other.extent is None
    assert decide(turn, OPEN, 0.05, 2).decision == "symmetry"
    assert decide(other, OPEN, 0.05, 2).decision == "broken"


def test_vector_evidence(exact):
    problem = exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(600, 2))
    basis = torch.stack([exact.turn, torch.tensor([[1.0, 0.0], [0.0, -1.0]]).double()])
    turn, other = vector_evidence(problem, basis, SIZES, 0.05, seed=stream(0, "draws"))
    assert turn.error < 1e-6 and other.error > 0.1 and turn.chance > 0 and turn.moved > 0.1
    assert decide(other, OPEN, 0.05, 2).decision == "broken"


def test_element_evidence(blurred, exact):
    mirror = torch.tensor([[1.0, 0.0], [0.0, -1.0]]).double()
    stretch = torch.tensor([[1.5, 0.0], [0.0, 1 / 1.5]]).double()
    ones = torch.ones(2, dtype=torch.float64)
    good, bad = element_evidence(blurred, torch.stack([mirror, stretch]), ones, seed=stream(0, "draws"))
    assert good.error < 1e-6 and bad.error > 0.1
    one = torch.ones(1, dtype=torch.float64)
    vectors = exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(600, 2))
    good, bad = element_evidence(vectors, torch.stack([mirror, 2 * mirror]), one, seed=stream(0, "draws"))
    assert good.error < 1e-9 and bad.error > 0.3


def test_bounds_are_seeded(blurred, exact):
    ones = torch.ones(2, dtype=torch.float64)
    a, b, c = (
        field_evidence(blurred, exact.turn[None], ones, SIZES, 0.05, seed=stream(seed, "draws"))[0].draws
        for seed in (0, 0, 1)
    )
    assert torch.equal(a, b) and not torch.equal(a, c)


def test_elements_beyond_the_range_of_the_data_are_not_testable(exact):
    x = exact.normal(600, 2)
    x[:, 0] = x[:, 0].abs()
    problem = exact.problem_of(lambda x: x.norm(dim=-1), x)
    elements = torch.stack([torch.diag(torch.tensor([1.0, -1.0])), torch.diag(torch.tensor([-1.0, 1.0]))]).double()
    good, beyond = element_evidence(problem, elements, torch.ones(1).double(), seed=stream(0, "draws"))
    assert decide(good, Gates(1.0, 1.0), 0.05, 2).decision == "symmetry"
    told = decide(beyond, Gates(1.0, 1.0), 0.05, 2)
    assert told.decision == "not testable" and told.reason.startswith("100% of the moved inputs lie beyond")


def test_what_cannot_be_tested_is_named(exact):
    x = exact.normal(600, 2)
    x[:, 0] = x[:, 0].abs() + 0.1
    found = discover(x, function=lambda p: p[:, 0].square() + 3 * p[:, 1].abs(), progress=False)
    assert found.group.order == 2 and found.group.dimension == 0
    assert "Not testable: diag(-1, 1)" in found.verdict.reason


def test_what_was_judged_at_first_order_only_says_so():
    direction = decide(evidence(0.001, 0.01, first_order=True), OPEN, 0.05, 1)
    assert direction.decision == "symmetry" and "at first order only" in direction.reason
    assert "first order" not in decide(evidence(0.001, 0.01), OPEN, 0.05, 1).reason


def test_scaling_that_leaves_the_data_is_judged_at_first_order_only():
    """Unit vectors: a turn keeps them with the data, no scaling of finite size does."""
    angle = 6.3 * torch.rand(800, generator=stream(0, "angle"), dtype=torch.float64)
    points = torch.stack([angle.cos(), angle.sin()], -1) * (1 + 0.01 * angle.sin()[:, None])
    found = discover(points, function=lambda p: (2 * torch.atan2(p[..., 1], p[..., 0])).sin(), progress=False)
    assert found.group.dimension == 1 and "Judged at first order only: the scaling" in found.verdict.reason
    # Control: where sizes differ, the same scaling is seen at finite size.
    spread = points * torch.exp(0.3 * torch.randn(800, 1, generator=stream(1, "size"), dtype=torch.float64))
    found = discover(spread, function=lambda p: (2 * torch.atan2(p[..., 1], p[..., 0])).sin(), progress=False)
    assert found.group.dimension == 1 and "first order only" not in found.verdict.reason
