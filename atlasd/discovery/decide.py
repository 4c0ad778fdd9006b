"""Decisions: an interval against the tolerance, and which findings belong to the exact class."""

from __future__ import annotations

__all__ = ["Finding", "approximate", "decide", "exact_class", "root"]

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from atlasd.discovery.result import Decision, Direction
from atlasd.limits import APART, MOST
from atlasd.runtime.codec import storable


@storable()
@dataclass(frozen=True, eq=False)
class Finding:
    """What was measured of one generator or element.

    Arguments:
        direction: The decision with its figures.
        element: The transformation that decided, `(n, n)`.
        charts: Strength on every chart, `(K,)`.
        unfelt: Whether nothing in the data feels it.
        gap: Whether data cover the largest size that was judged and not smaller ones.
    """

    direction: Direction
    element: Tensor
    charts: Tensor
    unfelt: bool = False
    gap: bool = False

    @property
    def passed(self) -> bool:
        """Whether it is a symmetry."""
        return self.direction.decision == "symmetry"


def root(square: float) -> float:
    """The amplitude of a square; 0 for one that came out negative."""
    return math.sqrt(max(square, 0.0)) if math.isfinite(square) else square


def decide(
    ratio: float, low: float, upper: float, kappa: float, coverage: float, tolerance: float, extent: float | None
) -> Direction:
    """Compares the interval with the tolerance.

    Arguments:
        ratio: The estimate, a ratio of squares, as the predictor shows it.
        low: Its lower end.
        upper: The upper end of the strength, with what the predictor may not show.
        kappa: Share of a planted breaking that the predictor shows; 1 where nothing had to be planted.
        coverage: Share of the transformed samples that lie where data are.
        tolerance: The largest strength that counts as a symmetry.
        extent: The largest size that was judged.
    """
    lower = root(low)
    strength = min(root(ratio) / max(kappa, MOST), 1.0)
    decision: Decision
    if lower > tolerance:
        decision, reason = "broken", f"breaking at least {lower:.0%}, above the tolerance of {tolerance:.0%}"
    elif upper <= tolerance:
        decision, reason = "symmetry", f"breaking at most {upper:.1%}, below the tolerance of {tolerance:.0%}"
    elif kappa < MOST:
        decision = "cannot tell"
        reason = f"of a planted breaking of {tolerance:.0%} only {kappa:.0%} would have been noticed"
        return Direction(math.nan, 0.0, math.nan, kappa, coverage, decision, reason, tolerance, extent)
    else:
        decision = "cannot tell"
        reason = f"the interval from {lower:.0%} to {min(upper, 1.0):.0%} straddles the tolerance of {tolerance:.0%}"
    return Direction(strength, lower, upper, kappa, coverage, decision, reason, tolerance, extent)


def exact_class(findings: Sequence[Finding], floor: float) -> int:
    """How many of the findings, best first, belong to the best class; strengths below a floor are all exact."""
    count = len(findings)
    for k in range(1, count):
        best = max(max(f.direction.upper for f in findings[:k]), floor)
        if min(f.direction.lower for f in findings[k:]) > APART * best:
            return k
    return count


def approximate(finding: Finding) -> Finding:
    """A finding of a weaker class: within the tolerance, yet clearly apart from the exact ones."""
    d = finding.direction
    reason = f"approximate only: breaking of {d.strength:.0%}, clearly more than that of the exact ones"
    return replace(finding, direction=replace(d, decision="approximate", reason=reason))
