"""One reading of the targets, tried from search to cosets; and whether translations would add to its group."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import Conclusion, conclude_cosets, conclude_generators, consistent, exact_first
from atlasd.discovery.cosets import CosetCandidates, CosetSearch, Proposed
from atlasd.discovery.problem import Problem, Proposal, Search
from atlasd.discovery.result import ChartFinding, Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.discovery.targets import KINDS, Question
from atlasd.discovery.verdict import Judge
from atlasd.geometry.actions import AffineAction, VectorAction
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.progress import Progress
from atlasd.runtime.stages import current_stages

T = TypeVar("T")
TESTABLE = 1e-3
"""Share of the targets' spread below which nothing is left to be tested: rounding."""

_GAP = (
    "data cover large steps and not the smaller ones between: a law with a finite group of these large steps alone, "
    "such as the quarter turns of a square, would give the same data"
)
"""Waves along two axes are taken to such waves by quarter turns alone, and on them every such law is a rotation's."""

_ASKED = 6
"""Charts whose own generators are tried on the others."""


class Clock:
    """Seconds of every stage, one after the other.

    Arguments:
        budget: Seconds after which no new stage is begun; `None` for no limit.
    """

    def __init__(self, budget: float | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self.budget = budget
        self.started = self._last = time.perf_counter()

    @property
    def over(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and time.perf_counter() - self.started > self.budget

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now


class Attempt:
    """One question and its answer: generators at once, the discrete part when it is asked for.

    Arguments:
        some: Whether some charts are asked where all of them together show nothing.
    """

    def __init__(
        self,
        question: Question,
        problem: Problem,
        search: Search,
        tolerance: float,
        seed: int,
        shown: Progress,
        clock: Clock,
        *,
        some: bool = True,
    ) -> None:
        self.question, self.problem, self.seed, self.shown = question, problem, seed, shown
        stages = current_stages()
        nothing = Proposal(torch.zeros(0, problem.size, problem.size, dtype=torch.float64), untested=problem.size**2)
        self.testable = problem.testable > TESTABLE
        self.found: Proposal = nothing
        self.regardless = getattr(search, "regardless", False)
        same = self._same_nearby(tolerance) if self.testable else None
        if self.testable or self.regardless:
            part = {} if same is None else {"weights": same.weights}
            self.found = stages.do("search", lambda: search.find(problem, seed=seed, progress=shown, **part))
        clock("search")
        self.judge = same or Judge(problem, tolerance, seed=seed, progress=shown, weights=self.found.weights)
        self.generators: Conclusion = self._ask(
            "verdict", lambda: conclude_generators(self.judge, self.found if self.testable else nothing)
        )
        if some and self.testable and isinstance(search, SpectralSearch) and not self.generators.kept:
            self._of_some_charts(search)
        self.generators = self._ask("simplest", lambda: consistent(self.judge, self.generators))
        if any(f.gap for f in self.generators.kept):
            self.generators = replace(self.generators, notes=(*self.generators.notes, _GAP))
        clock("verdict")
        self.proposal: CosetCandidates | None = None
        self.elements = Conclusion(torch.eye(problem.size, dtype=torch.float64)[None], [], [])

    def _same_nearby(self, tolerance: float) -> Judge | None:
        """Where fields are shifted, the verdict on those charts on which the law is the same in every direction.

        `None` where it is the same on all charts, or on fewer than two.
        """
        shifts, charts = self.problem.ambient.translations, self.problem.charts
        if charts == 1 or not len(shifts):
            return None
        judge = Judge(self.problem, tolerance, seed=self.seed, progress=self.shown)
        held = current_stages().do("shifts", lambda: judge.holding(shifts, every=True).double())
        return judge.on(held) if 2 <= int(held.sum()) < charts else None

    def _ask(self, stage: str, question: Callable[[], T]) -> T:
        """The verdict; where it was kept, the judge also gets back what it had found on the way."""
        answer, self.judge.memory = current_stages().do(stage, lambda: (question(), self.judge.memory))
        return answer

    def _of_some_charts(self, search: SpectralSearch) -> None:
        """No symmetry of all charts together: is there one of some?"""
        charts, basis = self.problem.charts, self.found.basis
        if charts == 1:
            return
        held, own = torch.zeros(charts, dtype=torch.float64), self.found.chart_basis
        if len(basis):
            held = self._ask("charts", lambda: self.judge.holding(basis).double())
        if int(held.sum()) < 2 and own is not None:
            # What all charts together propose may be spoiled by a few: some of them propose their own.
            some = own[:: -(-charts // _ASKED)].flatten(0, 1)
            held = self._ask("charts of their own", lambda: self.judge.holding(some).double())
        if 2 <= int(held.sum()) < charts:
            self.found = current_stages().do(
                "search of some",
                lambda: search.find(self.problem, seed=self.seed, progress=self.shown, weights=held),
            )
            self.judge = self.judge.on(held)
            self.generators = self._ask("verdict of some", lambda: conclude_generators(self.judge, self.found))

    def _propose(self, cosets: CosetSearch) -> Proposed:
        """As in the paper, cosets of what was proposed, under the maps that it was proposed for."""
        taken = self.found.basis if self.regardless else self.generators.matrices
        same, algebra = self.problem.with_function(self.found.function), LieAlgebra(taken)
        self.proposal = current_stages().do(
            "coset search", lambda: cosets.find(same, algebra, seed=self.seed, progress=self.shown)
        )
        return Proposed(self.proposal)

    def add_cosets(self, cosets: CosetSearch | None, clock: Clock) -> None:
        """Finds the discrete part, where there is time for it."""
        if cosets is not None and clock.over:
            note = "the discrete part was not looked for, since the budget of time was used up"
            self.generators = replace(self.generators, notes=(*self.generators.notes, note))
            return
        judged: CosetSearch | Proposed | None = cosets
        if cosets is not None and cosets.regardless:
            judged = self._propose(cosets)
            clock("coset search")
        if judged is not None and self.testable:
            discrete = partial(
                conclude_cosets, self.judge, search=judged, relevant=self.found.relevant, seed=self.seed,
                progress=self.shown,
            )  # fmt: skip
            both = self._ask("cosets", lambda: exact_first(self.judge, self.generators, discrete))
            self.generators, self.elements = both
        clock("cosets")

    @property
    def group(self) -> Group:
        """What was found, in standard units."""
        return Group(LieAlgebra(self.generators.matrices), self.elements.matrices)

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Larger groups first; where there is none, an open question is the answer before a closed one."""
        return len(self.generators.matrices), len(self.elements.matrices), self.generators.undecided

    @property
    def brief(self) -> str:
        """The continuous part in a few words."""
        count = len(self.generators.kept)
        if count:
            return f"{count} generator{'s' if count > 1 else ''}"
        return "cannot tell" if self.generators.undecided else "none" if self.testable else "not testable"


def leading(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Questions whose discrete part is looked for: those with the largest continuous part, of one kind; else all.

    Conventions in which components are stored may agree on rotations and differ on reflections.
    """
    most = max(len(t.generators.kept) for t in attempts)
    first = [t for t in attempts if len(t.generators.kept) == most]
    return [t for t in first if not most or t.question.kind == first[0].question.kind]


def taken(best: Attempt, attempts: Sequence[Attempt], aside: Sequence[tuple[Question, str]] = ()) -> list[str]:
    """Which question was answered, where several fitted the data or targets transform along.

    Arguments:
        best: The one that was taken.
        aside: Those that were not, and why.
    """
    if len(attempts) + len(aside) < 2 and best.question.kind not in KINDS[:2]:
        return []
    others = [f"{t.question.words}: {t.brief}" for t in attempts if t is not best]
    others += [f"{q.words}: set aside, {why}" for q, why in aside]
    also = f"; also tried: {'; '.join(others)}" if others else ""
    return [f"the targets were taken as {best.question.words}{also}"]


def more_with_translations(best: Attempt, search: SpectralSearch) -> list[str]:
    """A note, where affine maps make up a larger group than linear ones.

    Asked where outputs are invariant and the map feels every component; a full search and verdict follow only where
    first order leaves room for more generators than were found, and for more than linear maps had.

    Arguments:
        best: The question about linear maps, with its answer.
    """
    problem, judge = best.problem, best.judge
    if problem.is_field or problem.action != VectorAction() or not best.testable or best.found.relevant is not None:
        return []
    posed, stages = _with_translations(problem), current_stages()
    found = search.at_first_order(posed)
    known = len(best.generators.matrices)
    near, before = (sum(v <= judge.tolerance**2 for v in f.spectrum) for f in (found, best.found))
    if near <= max(known, before):
        return []
    judge = Judge(posed, judge.tolerance, seed=best.seed, progress=best.shown)
    wider = stages.do("translations", lambda: conclude_generators(judge, search.refined(posed, found)))
    if len(wider.matrices) <= known:
        return []
    group = Group(LieAlgebra(wider.matrices), affine=True, noise=wider.noise)
    count = len(wider.matrices)
    return [
        f"with translations there is more: {count} generator{'s' * (count > 1)} in place of {known}, {group.name}; "
        "pass action=ad.AffineAction()"
    ]


def _with_translations(problem: Problem) -> Problem:
    """The same maps and data, with translations beside linear maps."""
    frame = torch.block_diag(problem.units.frame, torch.ones(1, 1, dtype=torch.float64))
    samples = replace(problem.samples, units=replace(problem.units, frame=frame))
    return replace(problem, samples=samples, action=AffineAction())


def without_lost_charts(found: Discovery, atlas: Atlas, lost: Mapping[int, str]) -> Discovery:
    """A discovery from some of the charts, as one of the whole atlas in which the lost charts are named.

    Arguments:
        found: What the other charts gave.
        lost: Numbers of the lost charts, and why they were lost.
    """
    others = iter(found.charts)
    nan = float("nan")
    charts = tuple(
        ChartFinding(tuple(chart.center), nan, True, nan, f"left out: {lost[k]}") if k in lost else next(others)
        for k, chart in enumerate(atlas.charts)
    )
    own = found.chart_generators
    if own is not None:
        whole = own.new_full((len(charts), *own.shape[1:]), nan)
        whole[[k for k in range(len(charts)) if k not in lost]] = own
        own = whole
    names = ", ".join(map(str, sorted(lost)))
    reason = f"{found.verdict.reason} Note: charts {names} were left out: {next(iter(lost.values()))}."
    return replace(found, charts=charts, chart_generators=own, verdict=replace(found.verdict, reason=reason))
