"""The rows of a verdict, in the words that the page, the notebook and the terminal share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atlasd.discovery.result import Direction, Discovery
from atlasd.report.sentences import MISSING, answer_sentences, headline, interval, share
from atlasd.report.templates import render

MARKS: dict[str, str] = {
    "symmetry": "✓",
    "approximate": "≈",
    "broken": "✕",
    "not testable": "∅",
    "cannot tell": "?",
    "left out": "−",
}
"""A sign for each decision: colour alone does not tell them apart."""
COLUMNS = ("", "decision", "breaking (confidence interval)", "sensitivity", "coverage", "why")
OTHERS = "Other transformations that were judged"


@dataclass(frozen=True)
class Row:
    """One transformation that was judged, ready to print.

    Arguments:
        name: `generator 1`, `coset 2` or `other 3`.
        decision: The decision in a word.
        breaking: Strength of the breaking with its confidence interval; a dash where nothing was measured.
        sensitivity: Share of a planted breaking that would have been noticed.
        coverage: Share of the transformed samples that lie where data are.
        reason: Why it was decided so.
    """

    name: str
    decision: str
    breaking: str
    sensitivity: str
    coverage: str
    reason: str

    @property
    def sign(self) -> str:
        """The sign of the decision."""
        return MARKS[self.decision]


def judged_rows(discovery: Discovery) -> list[tuple[str, list[Row]]]:
    """Rows by heading; the identity is no finding and has none."""
    verdict = discovery.verdict
    groups = [
        ("Generators", [_row(f"generator {k + 1}", d) for k, d in enumerate(verdict.directions)]),
        ("Cosets", [_row(f"coset {k + 1}", d) for k, d in enumerate(verdict.cosets) if k]),
        (OTHERS, _others(verdict.rejected)),
    ]
    return [(heading, rows) for heading, rows in groups if rows]


def _others(rejected: Sequence[Direction]) -> list[Row]:
    """Approximate ones first; what did not get into the group is never called a symmetry."""
    ranked = sorted(rejected, key=lambda d: d.decision != "approximate")
    return [_row(f"other {k + 1}", d, kept=False) for k, d in enumerate(ranked)]


def _row(name: str, d: Direction, kept: bool = True) -> Row:
    decision = "left out" if d.decision == "symmetry" and not kept else d.decision
    return Row(name, decision, interval(d), _sensitivity(d), share(d.coverage), d.reason)


def _sensitivity(d: Direction) -> str:
    """Breakings are planted only where a symmetry may be claimed; elsewhere the figure is a default."""
    planted = d.sensitivity != 1.0 or d.decision in ("symmetry", "approximate")
    return share(d.sensitivity) if planted else MISSING


def chosen_tolerance(discovery: Discovery) -> float | None:
    """The tolerance of the verdict, or `None` if nothing was judged."""
    verdict = discovery.verdict
    judged = (*verdict.directions, *verdict.rejected, *verdict.cosets)
    given = [d.tolerance for d in judged if math.isfinite(d.tolerance)]
    return given[0] if given else None


_MOST_ROWS = 12


def notebook_html(discovery: Discovery) -> str:
    """A fragment that shows well on any background."""
    left, groups = _MOST_ROWS, []
    for heading, rows in judged_rows(discovery):
        if left > 0:
            groups.append((heading, rows[:left]))
        left -= len(rows)
    return render(
        "notebook.html",
        answer=headline(discovery)[0],
        sentences=answer_sentences(discovery),
        columns=COLUMNS,
        groups=groups,
        more=max(-left, 0),
    )
