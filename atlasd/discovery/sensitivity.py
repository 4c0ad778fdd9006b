"""Sensitivity by injection: which share of a breaking that was planted in the targets would have been noticed?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.discovery.problem import Function, Problem, in_comparison
from atlasd.discovery.residual import Residual
from atlasd.prediction.plants import Planted
from atlasd.runtime.progress import Progress

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
        # What a map that is linear in its inputs cannot see is looked for in what it leaves over.
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
