"""What was measured of one transformation and its inverse, sample by sample."""

from __future__ import annotations

__all__ = ["Measured"]

import math
from dataclasses import dataclass

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
    coverage: float
    telling: float
    samples: int
    size: float

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
