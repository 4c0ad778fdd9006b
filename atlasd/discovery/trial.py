"""One question about a fitted map, and its answer: generators first, then the discrete part."""

from __future__ import annotations

__all__ = ["Clock", "Trial", "leading", "taken"]

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

import torch

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import Settled, exact_first, settle_cosets, settle_generators
from atlasd.discovery.cosets import CosetCandidates, CosetSearch, Proposed
from atlasd.discovery.problem import Problem
from atlasd.discovery.search import Found, Search
from atlasd.discovery.simplest import consistent
from atlasd.discovery.spectral import SpectralSearch
from atlasd.discovery.targets import KINDS, Question
from atlasd.discovery.verdict import Court
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


class Trial:
    """One question and its answer: generators at once, the discrete part when it is asked for.

    Arguments:
        question: The question.
        problem: Maps, action and data.
        search: How generators are searched for.
        tolerance: The largest strength that counts as a symmetry.
        seed: Seed of every random stream.
        shown: Progress display.
        clock: Times of the stages.
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
        nothing = Found(torch.zeros(0, problem.size, problem.size, dtype=torch.float64), unfelt=problem.size**2)
        self.testable = problem.testable > TESTABLE
        self.found: Found = nothing
        self.regardless = getattr(search, "regardless", False)
        same = self._same_nearby(tolerance) if self.testable else None
        if self.testable or self.regardless:
            part = {} if same is None else {"weights": same.weights}
            self.found = stages.do("search", lambda: search.find(problem, seed=seed, progress=shown, **part))
        clock("search")
        self.court = same or Court(problem, tolerance, seed=seed, progress=shown, weights=self.found.weights)
        self.generators: Settled = self._ask(
            "verdict", lambda: settle_generators(self.court, self.found if self.testable else nothing)
        )
        if some and self.testable and isinstance(search, SpectralSearch) and not self.generators.kept:
            self._of_some_charts(search)
        self.generators = self._ask("simplest", lambda: consistent(self.court, self.generators))
        if any(f.gap for f in self.generators.kept):
            self.generators = replace(self.generators, notes=(*self.generators.notes, _GAP))
        clock("verdict")
        self.proposal: CosetCandidates | None = None
        self.elements = Settled(torch.eye(problem.size, dtype=torch.float64)[None], [], [])

    def _same_nearby(self, tolerance: float) -> Court | None:
        """Where fields are shifted, the verdict on those charts on which the law is the same in every direction.

        `None` where it is the same on all charts, or on fewer than two.
        """
        shifts, charts = self.problem.ambient.translations, self.problem.charts
        if charts == 1 or not len(shifts):
            return None
        court = Court(self.problem, tolerance, seed=self.seed, progress=self.shown)
        held = current_stages().do("shifts", lambda: court.holding(shifts, every=True).double())
        return court.on(held) if 2 <= int(held.sum()) < charts else None

    def _ask(self, stage: str, question: Callable[[], T]) -> T:
        """The answer of the court; where it was kept, the court also remembers what it had settled on the way."""
        answer, self.court.memory = current_stages().do(stage, lambda: (question(), self.court.memory))
        return answer

    def _of_some_charts(self, search: SpectralSearch) -> None:
        """No symmetry of all charts together: is there one of some?"""
        charts, basis = self.problem.charts, self.found.basis
        if charts == 1:
            return
        held, own = torch.zeros(charts, dtype=torch.float64), self.found.chart_basis
        if len(basis):
            held = self._ask("charts", lambda: self.court.holding(basis).double())
        if int(held.sum()) < 2 and own is not None:
            # What all charts together propose may be spoiled by a few: some of them propose their own.
            some = own[:: -(-charts // _ASKED)].flatten(0, 1)
            held = self._ask("charts of their own", lambda: self.court.holding(some).double())
        if 2 <= int(held.sum()) < charts:
            self.found = current_stages().do(
                "search of some",
                lambda: search.find(self.problem, seed=self.seed, progress=self.shown, weights=held),
            )
            self.court = self.court.on(held)
            self.generators = self._ask("verdict of some", lambda: settle_generators(self.court, self.found))

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
        undecided = not self.generators.kept and self.undecided
        # Where a continuous part could not be decided, elements of it are not to be claimed one by one.
        if judged is not None and self.testable and not undecided:

            def discrete(algebra: LieAlgebra) -> Settled:
                return settle_cosets(self.court, algebra, judged, self.found.felt, seed=self.seed, progress=self.shown)

            both = self._ask("cosets", lambda: exact_first(self.court, self.generators, discrete))
            self.generators, self.elements = both
        clock("cosets")

    @property
    def undecided(self) -> bool:
        """Whether some generator could not be decided."""
        return any(f.direction.decision == "cannot tell" for f in self.generators.dropped)

    @property
    def group(self) -> Group:
        """What was found, in standard units."""
        return Group(LieAlgebra(self.generators.matrices), self.elements.matrices)

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Larger groups first; where there is none, an open question is the answer before a closed one."""
        return len(self.generators.matrices), len(self.elements.matrices), self.undecided

    @property
    def brief(self) -> str:
        """The continuous part in a few words."""
        count = len(self.generators.kept)
        if count:
            return f"{count} generator{'s' if count > 1 else ''}"
        return "cannot tell" if self.undecided else "none" if self.testable else "not testable"


def leading(trials: Sequence[Trial]) -> list[Trial]:
    """Questions whose discrete part is looked for: those with the largest continuous part, of one kind; else all.

    Conventions in which components are stored may agree on rotations and differ on reflections.
    """
    most = max(len(t.generators.kept) for t in trials)
    first = [t for t in trials if len(t.generators.kept) == most]
    return [t for t in first if not most or t.question.kind == first[0].question.kind]


def taken(best: Trial, trials: Sequence[Trial], aside: Sequence[tuple[Question, str]] = ()) -> list[str]:
    """Which question was answered, where several fitted the data or targets transform along.

    Arguments:
        best: The one that was taken.
        trials: All that were asked.
        aside: Those that were not, and why.
    """
    if len(trials) + len(aside) < 2 and best.question.kind not in KINDS[:2]:
        return []
    others = [f"{t.question.words}: {t.brief}" for t in trials if t is not best]
    others += [f"{q.words}: set aside, {why}" for q, why in aside]
    also = f"; also tried: {'; '.join(others)}" if others else ""
    return [f"the targets were taken as {best.question.words}{also}"]
