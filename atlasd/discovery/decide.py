"""Sensitivity to planted breakings, measurements of a transformation, and the decision against the tolerance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from atlasd.discovery.problem import Function, Problem, in_comparison
from atlasd.discovery.residual import Residual
from atlasd.discovery.result import Decision, Direction
from atlasd.limits import APART, MOST, TWO_SIDED
from atlasd.prediction.plants import Planted
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

_DRAWS = 1999
_BLOCKS = 400


@storable()
@dataclass(frozen=True, eq=False)
class Finding:
    """What was measured of one generator or element.

    Arguments:
        direction: The decision with its figures.
        element: The transformation that decided, `(n, n)`.
        charts: Strength on every chart, `(K,)`.
        untested: Whether nothing in the data depends on it.
        gap: Whether data cover the largest size that was judged and not smaller ones.
    """

    direction: Direction
    element: Tensor
    charts: Tensor
    untested: bool = False
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
        upper: The upper end of the strength, with what the predictor may not show.
        kappa: Share of a planted breaking that the predictor shows; 1 where nothing had to be planted.
        coverage: Share of the transformed samples that lie where data are.
        extent: The largest size that was judged.
    """
    lower = min(root(low), 1.0)
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


@dataclass(frozen=True, eq=False)
class Measurement:
    """One transformation and its inverse: rows of samples, and what they say."""

    pair: Tensor  # (2, n, n)
    excess: Tensor  # (B, K)
    scale: Tensor
    plain: Tensor
    covered: Tensor  # of the two, how many take a sample to where data are
    coverage: float
    unrelated: float
    samples: int
    size: float
    everywhere: float = 0.0  # what the map says of all samples, also where no data are: a ratio of squares

    @classmethod
    def joined(cls, members: Sequence[Measurement]) -> Measurement:
        """Members of one coset as one: of each sample the mean over those that take it to where data are."""
        first = members[0]
        covered = torch.stack([m.covered for m in members])
        most = covered.amax(0)
        share = most / covered.sum(0).clamp_min(1.0)
        excess, scale, plain = (
            share * torch.stack([getattr(m, name) for m in members]).sum(0) for name in ("excess", "scale", "plain")
        )
        # Charts that do not count are covered nowhere, and so is their share of the first.
        held = first.coverage / max(float(first.covered.sum()), 1e-300)
        count, unrelated = int((most.sum(1) > 0).sum()), min(m.unrelated for m in members)
        return replace(
            first, excess=excess, scale=scale, plain=plain, covered=most, coverage=held * float(most.sum()),
            unrelated=unrelated, samples=count,
        )  # fmt: skip

    @property
    def element(self) -> Tensor:
        """The transformation itself."""
        return self.pair[0]

    def ratio(self, weights: Tensor) -> float:
        bottom = float((self.scale @ weights).sum())
        return float((self.excess @ weights).sum()) / bottom if bottom > 0 else math.inf

    def error(self, weights: Tensor) -> float:
        """Half the width of an interval of the ratio."""
        e, d = self.excess @ weights, self.scale @ weights
        mean = float(d.mean())
        if not mean > 0:
            return math.inf
        return TWO_SIDED * float((e - self.ratio(weights) * d).std()) / mean / len(e) ** 0.5

    def hidden(self, weights: Tensor) -> float:
        """The largest strength that a breaking can have which the predictor does not show at all.

        What is unexplained may change its sign under the transformation: twice its amplitude.
        """
        return 2 * root(self.unexplained(weights))

    def unexplained(self, weights: Tensor) -> float:
        """What the predictor leaves unexplained, a ratio of squares."""
        left, scale = (float((z @ weights).sum()) for z in (self.plain, self.scale))
        return left / scale if scale > 0 else math.inf

    def charts(self) -> Tensor:
        """Strength on every chart, `(K,)`; NaN where nothing can be said."""
        bottom = self.scale.sum(0)
        ratio = torch.where(bottom > 0, self.excess.sum(0) / bottom.clamp_min(1e-300), math.nan)
        return ratio.clamp_min(0.0).sqrt()


def interval(
    e: Tensor, d: Tensor, level: float, generator: torch.Generator, *, known: bool
) -> tuple[float, float, float, bool]:
    """Ratio of means with both ends of its interval, and whether the scale is determined at all.

    A studentised bootstrap over whole samples: right for skewed losses with heavy tails.

    Arguments:
        e: Excess of every sample, `(B,)`.
        d: Its scale, `(B,)`.
        level: Probability that the truth lies beyond one of the ends.
        known: Whether the map is known everywhere, so that the scale needs no test.
    """
    keep = (e != 0) | (d != 0)
    e, d = e[keep], d[keep]
    if not len(e):
        return math.nan, -math.inf, math.inf, False
    blocks = min(len(e), _BLOCKS)
    e, d = (torch.stack([part.mean() for part in z.tensor_split(blocks)]) for z in (e, d))
    mean = float(d.mean())
    error = float(d.std()) / len(d) ** 0.5 if len(d) > 1 else math.inf
    if not known and not mean > TWO_SIDED * error:
        return math.nan, -math.inf, math.inf, False
    ratio = float(e.mean()) / mean
    spread = (e - ratio * d).std() / len(e) ** 0.5 / mean
    if float(spread) <= 1e-12 * max(abs(ratio), 1e-12):
        return ratio, ratio, ratio, True
    pick = torch.randint(len(e), (_DRAWS, len(e)), generator=generator)
    de, dd = e[pick], d[pick]
    bottom = dd.mean(1).clamp_min(0.1 * mean)
    again = de.mean(1) / bottom
    own = (de - again[:, None] * dd).std(1) / len(e) ** 0.5 / bottom
    t = (again - ratio) / own.clamp_min(0.05 * float(spread))
    low, high = (float(t.quantile(q)) for q in (level, 1 - level))
    return ratio, ratio - high * float(spread), ratio - low * float(spread), True


def interpolate(rungs: Tensor, displaced: float) -> float:
    """The cost of moving the data so far, linear between rungs; through the origin, and flat beyond the last."""
    x, y = [0.0, *rungs[:, 0].tolist()], [0.0, *rungs[:, 1].tolist()]
    for (a, b), (u, v) in zip(pairwise(x), pairwise(y), strict=True):
        if displaced <= b:
            return u + (v - u) * (displaced - a) / max(b - a, 1e-300)
    return y[-1]


_FIELDS = 48
"""Fields on which planted breakings are looked for: each has many pixels."""


@dataclass(frozen=True)
class Recovery:
    """What refitting shows of planted breakings; of several, the one that shows least decides.

    Held-out errors say how good a map is where data are, and not where it is asked. Those of refitted plants say both.

    Arguments:
        share: Share of the amplitude of a planted breaking that is noticed.
        beyond: Error for transformed inputs, as a share of the planted breaking, beyond twice that where samples are:
            two errors of equal size differ by no more.
        growth: By how much the square of the error grows from samples to transformed ones, relative to the former.
    """

    share: float
    beyond: float
    growth: float


class Sensitivity:
    """Plants breakings of the size of the tolerance, has them fitted the same way, and looks at what comes back.

    Arguments:
        residual: Residuals on held-out samples.
        tolerance: The strength that is planted.
        weights: Weights of the charts, `(K,)`.
    """

    def __init__(
        self, problem: Problem, residual: Residual, tolerance: float, weights: Tensor, progress: Progress
    ) -> None:
        self.problem, self.residual, self.tolerance = problem, residual, tolerance
        self.weights, self.progress = weights, progress
        self._some = residual.few(_FIELDS) if problem.is_field else residual
        self.sizes: list[float] | None = None
        self._planted: list[tuple[Planted, tuple[Function, ...]]] | None = None
        self._hidden: Tensor | None = None

    def __call__(self, pair: Tensor) -> Recovery:
        """What is recovered of planted breakings under an element and its inverse, `(2, n, n)`."""
        fits = self.problem.fits
        assert fits is not None
        if self._planted is None:
            if self.sizes is None:
                self.sizes = self._sizes(pair[0])
            planted = fits.planted(self.problem.samples, self.sizes, self.progress)
            self._planted = [(p, in_comparison(self.problem, fs)) for p, fs in planted]
        # A map that is linear in its inputs cannot see some breakings; these are looked for in its errors.
        blind = getattr(fits.recipe, "linear", False)
        unseen = [p.function for p, _ in self._planted if blind and not getattr(p.function, "linear", True)]
        asked = [(p, fs) for p, fs in self._planted if p.function not in unseen]
        sums = torch.einsum("pmkc,k->pc", self._some.recovered(pair, asked), self.weights)
        seen, there, error, before = sums[sums[:, 1] > 0].unbind(1)
        shares = (seen / there).tolist()
        beyond = ((error - 4 * before) / there).clamp_min(0.0).sqrt().tolist()
        growth = (error / before.clamp_min(1e-300) - 2).clamp_min(0.0).tolist()
        if unseen:
            shares.append(self._by_products(unseen))
        # A breaking may be of any kind that was planted: the one that is seen least decides.
        share = min(max(min(shares, default=0.0), 0.0), 1.0)
        return Recovery(share, max(beyond, default=0.0), max(growth, default=0.0))

    def _by_products(self, plants: Sequence[Function]) -> float:
        """Share of planted products that products of neighbouring values see; none where they explain the errors."""
        if self._hidden is None:
            self._hidden = self.residual.hidden(plants)
        left, *planted = torch.einsum("pkc,k->pc", self._hidden, self.weights)
        losses = self.residual.losses(torch.eye(self.problem.size, dtype=torch.float64)[None])
        scale = float((losses.scale @ self.weights).sum() / (losses.plain @ self.weights).sum())
        if float(left[0] / left[1]) > self.tolerance**2 * scale:
            return 0.0
        return min(float((p[0] / p[1]).clamp_min(0.0)) for p in planted)

    def _sizes(self, element: Tensor) -> list[float]:
        """Sizes at which plants break an element by the tolerance."""
        fits = self.problem.fits
        assert fits is not None
        if self.problem.classes:
            return [0.5, 0.5]
        ones = [(Planted(h, 1.0), self.problem.functions) for h in fits.plants[:: max(1, len(fits.plants) - 1)]]
        losses = self.residual.losses(element[None])
        level = float((losses.scale @ self.weights).mean())
        squares = torch.einsum("pk,k->p", self.residual.recovered(element[None], ones)[:, 0, :, 1], self.weights)
        # What an element leaves as it is breaks nothing, in any size.
        least = 1e-6 * max(float(squares.max()), 1e-300)
        return [self.tolerance * (max(level, 0.0) / float(s)) ** 0.5 if float(s) > least else 0.0 for s in squares]
