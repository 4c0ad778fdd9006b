"""One block of charts with its data: what questions about vectors and about fields have in common."""

from __future__ import annotations

__all__ = ["Part", "looked_at", "null_loss"]

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.problem import Function, Problem
from atlasd.prediction.predictor import needed
from atlasd.prediction.trivial import centre_crop


def null_loss(squares: Tensor, pulls: Tensor, counts: tuple[Tensor, Tensor], through: Tensor) -> Tensor:
    """Loss over pairs of different samples, from sums that know no pairs.

    Arguments:
        squares: Loss of each label against all predictions, in the mean, `(M, B, K)`.
        pulls: Loss of each prediction against all labels, in the mean, `(M, B, K)`.
        counts: Whether a sample counts, `(M, B, K)`, and how many do, `(M, 1, K)`.
        through: Loss of each label against its own prediction, `(M, B, K)`.
    """
    covered, number = counts
    other = (number - 1).clamp_min(1.0)
    # A sample is never paired with itself.
    squares, pulls = (number * squares - through) / other, (number * pulls - through) / other
    mean = (covered * squares).sum(1, keepdim=True) / number.clamp_min(1.0)
    return squares + pulls - mean


def looked_at(problem: Problem, x: Tensor) -> tuple[int, ...]:
    """Spatial shape of the middle of inputs `(B, K, C, *S)` that the maps look at."""
    whole = tuple(x.shape[3:])
    need = needed(problem.functions)
    return whole if need is None else tuple(min(a, b) for a, b in zip(need, whole, strict=True))


class Part:
    """One block of charts with its data, which are read where they are needed."""

    def __init__(self, problem: Problem, index: Tensor, coverage: Any) -> None:
        self.problem, self.index, self.coverage = problem, index, coverage
        self._data: tuple[Tensor, Tensor, Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None}

    def forget(self) -> None:
        """Drops the data; they are read again when needed."""
        self._data = None

    @property
    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs `(B, K, *in)`, labels and predictions `(B, K, *out)`, both without the pointwise part."""
        if self._data is None:
            x = self.problem.inputs(self.index)
            y = self.problem.labels(self.index, x)
            p = self.predict(x, self.problem.functions)
            if self.problem.pointwise is not None:
                y = centre_crop(y, tuple(p.shape[3:]))
                base = self.problem.pointwise(x, tuple(p.shape[3:]))
                y, p = y - base, p - base
            elif self.problem.is_field:
                y = centre_crop(y, tuple(p.shape[3:]))
            self._data = x, y.to(p.dtype), p
        return self._data

    def predict(self, x: Tensor, functions: Sequence[Function]) -> Tensor:
        """Outputs for inputs `(B, K, *in)` or `(M B, K, *in)` by the map that each sample was held out of."""
        with torch.no_grad():
            if len(functions) == 1:
                return functions[0](x)
            fold = self.problem.fold[self.index]
            fold = fold.repeat(len(x) // len(fold))
            out: Tensor | None = None
            for k, function in enumerate(functions):
                mine = (fold == k).nonzero().flatten()
                if not len(mine):
                    continue
                part = function(x[mine])
                out = part.new_zeros(len(x), *part.shape[1:]) if out is None else out
                out[mine] = part
            assert out is not None
            return out
