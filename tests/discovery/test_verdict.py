"""The residual and the verdict: the scale, its interval, sensitivity and decisions, against exact answers."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional

import atlasd as ad
from atlasd.discovery.conclude import Conclusion, Kind, closed, commuting, exact_first, promising, words
from atlasd.discovery.decide import Finding, Measurement
from atlasd.discovery.prepare import prepare
from atlasd.discovery.problem import Proposal
from atlasd.discovery.residual import Residual
from atlasd.discovery.result import Direction
from atlasd.discovery.verdict import Judge
from atlasd.limits import CLEAR
from atlasd.prediction.forms import FormPredictor
from atlasd.prediction.moments import MomentNetwork, MomentPredictor
from atlasd.prediction.stencil import StencilPredictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_atlas, heat_fields

TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
MIRROR = torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "verdict"), dtype=torch.float64)


def court_of(x, y=None, tolerance=0.2, **options):
    problem, _ = prepare(x, y, seed=0, progress=Silent(), **options)
    return Judge(problem, tolerance, seed=0, progress=Silent())


def pairwise_strength(f, x, g):
    """The definition, written out over all pairs of different samples."""
    y, b = f(x), f(x @ g.mT)
    apart = (y[:, None] - b[None]).square()
    null = (apart.sum() - apart.diagonal().sum()) / (len(x) * (len(x) - 1))
    return math.sqrt((y - b).square().mean() / null)


@pytest.mark.parametrize("count", [20, 200])
def test_strength_is_the_one_over_all_pairs(count):
    x = normal(count, 2)
    f = lambda z: z[:, 0] ** 2 + 0.3 * z[:, 1]  # noqa: E731
    problem, _ = prepare(x, function=f, seed=0, progress=Silent())
    g = torch.matrix_exp(0.7 * TURN)
    losses = Residual(problem, torch.arange(count)).losses(problem.units.to_standard(g)[None])
    assert float(losses.strength()[0]) == pytest.approx(pairwise_strength(f, x, g), rel=1e-6)


def test_strength_has_no_unit_and_is_bounded():
    eta, mass = 1.5 * normal(500), 3 + 0.3 * torch.rand(500, generator=stream(1, "mass")).double()
    x = torch.stack([mass * eta.cosh(), mass * eta.sinh()], dim=-1)
    judge = court_of(x, function=lambda p: (p[:, 0] ** 2 - p[:, 1] ** 2).log() / 2)
    boost = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    kept, scaling = judge.generators(judge.problem.units.to_standard(torch.stack([boost, torch.eye(2).double()])))
    assert kept.passed and kept.direction.upper < 1e-3
    assert scaling.direction.decision == "broken" and 0.9 < scaling.direction.strength <= 1.0


def test_noise_in_the_labels_widens_and_does_not_shift():
    x = normal(600, 2)
    clean = x.square().sum(-1)
    uppers = []
    for noise in (0.0, 0.1):
        judge = court_of(x, clean + noise * clean.std() * normal(600, seed=1))
        (finding,) = judge.elements(MIRROR[None])
        assert finding.passed and finding.direction.lower < 0.05
        uppers.append(finding.direction.upper)
    assert uppers[0] < uppers[1]


@pytest.mark.parametrize("even, decision", [(True, "cannot tell"), (False, "broken")])
def test_a_predictor_that_is_even_by_design_cannot_confirm_a_mirror(even, decision, monkeypatch):
    products = MomentNetwork.products
    if even:  # without the terms of first order
        monkeypatch.setattr(
            MomentNetwork, "products", lambda net, x: functional.pad(products(net, x)[..., :-2], (0, 2))
        )
    x = normal(600, 3, 2).float()
    total = x.sum(1)
    y = total.square().sum(-1) + 0.7 * total.prod(-1) * total[:, 0]  # an odd part of third order
    few = MomentPredictor(pools=1, schedule=Schedule(epochs=100, batch=64, learning_rate=1e-2))
    judge = court_of(x, y, predictor=few)
    (finding,) = judge.elements(-torch.eye(2).double()[None])
    assert finding.direction.decision == decision
    assert not even or finding.direction.sensitivity < 0.2


@pytest.mark.parametrize("law, clear", [(lambda x: x.prod(-1), True), (lambda x: x.square().sum(-1), False)])
def test_errors_that_change_under_a_mirror_are_noticed(law, clear):
    x = torch.randn(400, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    plane = FormPredictor(degree=1, bumps=1, waves=0)  # holds neither law
    problem, _ = prepare(x, law(x), predictor=plane, seed=0, progress=Silent())
    mirror = -torch.eye(3, dtype=torch.float64)[None]
    assert (Residual(problem, problem.pick(400)).error_change(mirror) > CLEAR) == clear


def test_folds_differ_more_where_labels_are_noisy_and_no_data_are():
    x = normal(40, 3)
    far = 3 * torch.eye(3, dtype=torch.float64)[None]
    differing = []
    for noise in (0.0, 1.0):
        y = x.square().sum(-1) + noise * normal(40, seed=1)
        problem, _ = prepare(x, y, predictor=FormPredictor(bumps=1, waves=0), seed=0, progress=Silent())
        differing.append(float(Residual(problem, problem.pick(40)).fit_variance(far).mean()))
    assert abs(differing[0]) < 1e-3 and differing[1] > 0.1


def test_a_small_step_proves_nothing():
    judge = court_of(normal(300, 2), function=lambda z: z[:, 0] + 0.1 * z[:, 1] ** 2)
    (finding,) = judge.elements(torch.matrix_exp(0.02 * TURN)[None])
    assert finding.direction.decision == "cannot tell" and math.isnan(finding.direction.strength)


@pytest.mark.parametrize("odd, clear", [(1.0, True), (0.0, False)])
def test_a_product_of_three_vectors_shows_in_the_errors_of_a_map_of_sets(odd, clear):
    x = torch.randn(500, 6, 3, generator=torch.Generator().manual_seed(2))
    y = x.sum(1).square().sum(-1) / 10 + odd * torch.linalg.det(x[:, :3]) / 3
    few = MomentPredictor(pools=1, schedule=Schedule(epochs=20, batch=64, learning_rate=1e-2))
    problem, _ = prepare(x, y + 0.3 * normal(500, seed=3), predictor=few, seed=0, progress=Silent())
    mirror = -torch.eye(3, dtype=torch.float64)[None]
    assert (Residual(problem, problem.pick(500)).error_change(mirror) > CLEAR) == clear


@pytest.mark.parametrize(
    ("size", "everywhere", "decision"),
    [(0.25, 0.0, "cannot tell"), (math.pi / 2, 0.0, "symmetry"), (math.pi / 2, 0.07, "cannot tell")],
)
def test_a_clear_breaking_at_a_small_size_or_off_the_data_is_no_symmetry(size, everywhere, decision):
    judge = court_of(normal(300, 2), function=lambda z: z.square().sum(-1))
    scale = torch.ones(300, 1, dtype=torch.float64)
    pair = torch.matrix_exp(torch.stack([size * TURN, -size * TURN]))
    both = torch.full_like(scale, 2.0)
    trial = Measurement(
        pair, 0.01 * scale, scale, 0 * scale, both, coverage=1.0, unrelated=1.0, samples=300, size=size,
        everywhere=everywhere,
    )  # fmt: skip
    finding = judge._one([trial], [trial, replace(trial, size=2 * size)], 0.05)
    assert finding.direction.decision == decision


@pytest.mark.parametrize(("breaking", "passed"), [(0.0, True), (2.0, False)])
def test_a_function_is_asked_beside_the_samples_that_an_element_may_be_fitted_to(breaking, passed):
    along = normal(40, 1)
    x = along * torch.cat([torch.ones(40, 1), normal(40, 1, seed=1).sign()], dim=1)  # on two diagonals
    judge = court_of(x, function=lambda z: z.square().sum(-1) + breaking * (z[:, 0].square() - z[:, 1].square()))
    (finding,) = judge.elements(judge.problem.units.to_standard(TURN)[None])
    assert finding.passed == passed and finding.direction.strength < 1e-3


def test_what_nothing_feels_is_not_testable():
    judge = court_of(normal(300, 3), function=lambda z: z[:, 2])
    mirror = torch.diag(torch.tensor([-1.0, 1.0, 1.0])).double()
    (finding,) = judge.elements(judge.problem.units.to_standard(mirror)[None])
    assert finding.direction.decision == "not testable" and finding.untested


def test_where_no_data_are_nothing_is_said():
    x = normal(400, 2).abs() + 0.5  # the positive quadrant
    judge = court_of(x, x[:, 0] * x[:, 1])
    (finding,) = judge.elements(-torch.eye(2).double()[None])
    assert finding.direction.decision == "cannot tell" and finding.direction.coverage < 0.1


@pytest.mark.parametrize(("breaking", "decision"), [(0.0, "symmetry"), (0.6, "broken")])
def test_a_planted_breaking_changes_the_answer(breaking, decision):
    x = normal(800, 2)
    y = x.square().sum(-1) + breaking * 2 * x[:, 0] * x[:, 1]
    (finding,) = court_of(x, y).generators(TURN[None])
    assert finding.direction.decision == decision


def test_more_samples_make_narrower_intervals():
    widths = []
    for count in (60, 2000):
        x = normal(count, 2)
        (finding,) = court_of(x, x.square().sum(-1) + 0.5 * x[:, 0] ** 2).generators(TURN[None])
        widths.append(finding.direction.upper - finding.direction.lower)
    assert widths[1] < 0.5 * widths[0]


@pytest.mark.parametrize(("lower", "approximately"), [(0.0, False), (0.07, True)])
def test_a_breaking_that_is_clearly_there_is_called_approximate(lower: float, approximately: bool) -> None:
    direction = Direction(0.08, lower, 0.1, 1.0, 1.0, "symmetry", "", 0.2)
    said = commuting("D3", [direction])
    assert ("approximately" in said) is approximately
    assert "10.0%" in said


@pytest.mark.slow
@pytest.mark.parametrize("waves, name", [("isotropic", "D4"), ("separable", "O(2)")])
def test_a_law_with_the_symmetry_of_a_square(waves, name):
    """Fourth differences along both axes: told from a rotation's law where fields cover all angles.

    On sums of a wave along each axis they are the same as those of the square of the Laplacian: the answer says so.
    """
    x = heat_fields(400, initial=waves, generator=torch.Generator().manual_seed(11))
    k = torch.fft.fftfreq(128) * 128 * 2 * torch.pi
    square = k[:, None].square() + k.square()
    law = (k[:, None] ** 4 + k**4) / 16**4 * torch.exp(-square / 20**2)
    y = torch.fft.ifft2(torch.fft.fft2(x) * law).real
    found = ad.discover(x, y, atlas=heat_atlas("three"), predictor=StencilPredictor(), progress=False)
    assert found.answer == name
    assert ("quarter turns of a square" in found.verdict.reason) == (waves == "separable")


@pytest.mark.parametrize("broken", [False, True])
def test_a_coset_is_judged_by_members_that_leave_samples_among_the_data(broken):
    angle, side = 2 * math.pi * torch.rand(1500, generator=stream(3, "angle")).double(), normal(1500, seed=4).sign()
    across = angle + side * (math.pi / 2 + 0.2 * normal(1500, seed=5))
    x = torch.stack([angle.cos(), angle.sin(), across.cos(), across.sin()], -1)
    x = x * (1 + 0.2 * normal(1500, 2, seed=6)).repeat_interleave(2, dim=1)
    q, p = x[:, :2], x[:, 2:]
    y = q.square().sum(1).square() + p.square().sum(1)
    judge = court_of(x, y + (q[:, 0] * p[:, 1] - q[:, 1] * p[:, 0] if broken else 0.0))
    eye, none = torch.eye(2).double(), torch.zeros(2, 2).double()
    basis = torch.stack([torch.block_diag(TURN, none), torch.block_diag(none, TURN)])
    basis = torch.block_diag(TURN, TURN)[None] if broken else basis
    flip, basis = (judge.problem.units.to_standard(z) for z in (torch.block_diag(MIRROR, eye)[None], basis))
    alone, coset = judge.elements(flip)[0], judge.elements(flip, basis)[0]
    assert alone.direction.decision == "cannot tell" and "where data are" in alone.direction.reason
    assert coset.passed != broken
    if not broken:
        assert coset.direction.coverage > 0.9


def test_nothing_judged_is_an_open_question():
    none = Conclusion(torch.zeros(0, 2, 2), [], [])
    said = words(ad.Group(ad.LieAlgebra(torch.zeros(0, 2, 2))), none, none, untested=0, tolerance=0.2)
    assert not said.symmetric and said.reason == "Cannot tell: no transformation could be judged."


def finding(decision, lower, upper, coverage=1.0):
    direction = Direction(upper, lower, upper, 1.0, coverage, decision, f"said of {upper}", 0.2)
    return Finding(direction, torch.eye(2).double(), torch.zeros(1).double())


@pytest.mark.parametrize(
    ("lower", "coverage", "headline"),
    [(0.0, 0.9, "Cannot tell"), (0.0, 0.1, "No symmetry"), (0.15, 0.9, "No symmetry")],
)
def test_open_elements_among_the_data_leave_the_question_open(lower, coverage, headline):
    nothing = torch.zeros(0, 2, 2).double()
    generators = Conclusion(nothing, [], [finding("broken", 0.8, 0.9)])
    elements = Conclusion(torch.eye(2).double()[None], [], [finding("cannot tell", lower, 0.3, coverage)])
    said = words(ad.Group(ad.LieAlgebra(nothing)), generators, elements, untested=0, tolerance=0.2)
    assert not said.symmetric and said.reason.split(":")[0] == headline
    assert "breaking of at least 80%" in said.reason and "said of 0.3" in said.reason


@pytest.mark.parametrize(
    ("lower", "upper", "claimed"), [(0.15, 0.01, True), (0.15, 0.1, False), (math.nan, 0.01, False)]
)
def test_elements_beside_an_undecided_continuous_part(lower, upper, claimed):
    judge = court_of(normal(100, 2), function=lambda z: z.square().sum(-1))
    mirror = torch.diag(torch.tensor([1.0, -1.0])).double()[None]
    alone = Conclusion(torch.cat([torch.eye(2).double()[None], mirror]), [finding("symmetry", 0.0, upper)], [])
    generators = Conclusion(torch.zeros(0, 2, 2).double(), [], [finding("cannot tell", lower, 0.25)])
    kept, elements = exact_first(judge, generators, lambda algebra, most: alone)
    assert len(elements.kept) == claimed and [f.direction.decision for f in kept.dropped] == ["cannot tell"]


@pytest.mark.parametrize("error, dimension", [(0.06, 2), (0.001, 1)])
def test_a_candidate_that_is_known_badly_is_not_set_apart(error, dimension):
    """Rotation and scaling, the second worse by no more than its own error: that is no other class."""
    judge = SimpleNamespace(
        tolerance=0.1, floor=0.01,
        strengths=lambda basis: (torch.tensor([0.0, 0.06])[: len(basis)], torch.tensor([0.01, error])[: len(basis)]),
    )  # fmt: skip
    first, _ = next(
        promising(judge, Proposal(torch.stack([TURN, torch.eye(2).double()])), Kind(closed, lambda _, b: b, 0.01))
    )
    assert len(first) == dimension
