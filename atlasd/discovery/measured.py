"""What was measured of one transformation and its inverse, sample by sample."""

from __future__ import annotations

__all__ = ["Measured"]

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlasd.discovery.decide import root
from atlasd.limits import TWO_SIDED


@dataclass(frozen=True, eq=False)
class Measured:
    """One transformation and its inverse: rows of samples, and what they say."""

    pair: Tensor  # (2, n, n)
    excess: Tensor  # (B, K)
    scale: Tensor
    plain: Tensor
    covered: Tensor  # of the two, how many take a sample to where data are
    coverage: float
    telling: float
    samples: int
    size: float

    @classmethod
    def joined(cls, members: Sequence[Measured]) -> Measured:
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
        count, telling = int((most.sum(1) > 0).sum()), min(m.telling for m in members)
        return replace(
            first, excess=excess, scale=scale, plain=plain, covered=most, coverage=held * float(most.sum()),
            telling=telling, samples=count,
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
