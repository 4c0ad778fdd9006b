"""How far an answer lies from the truth: between spans of matrices, invariant metrics, or fields on the data."""

from __future__ import annotations

__all__ = ["FieldAngle", "Measure", "MetricCosine", "SpanAngle", "angle_of_fields"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from atlasd.algebra.invariants import metric, metric_cosine
from atlasd.algebra.lie import LieAlgebra


class Measure(Protocol):
    """A figure by which answers are compared with the truth; `name` is the heading of its column."""

    @property
    def name(self) -> str:
        """The heading of the column."""

    @property
    def digits(self) -> int:
        """Decimals that are kept."""

    def __call__(self, parts: tuple[Tensor, ...], data: Any) -> float:
        """The figure of claimed generators `(k, ...)`, one tensor for each part of the data."""

    def miss(self, value: float) -> float:
        """The figure as an error: 0 is best."""


@dataclass(frozen=True, eq=False)
class SpanAngle:
    """Largest angle between the span claimed and the true algebra, in degrees; 90 where dimensions differ."""

    truth: LieAlgebra
    name: str = "error_deg"
    digits: int = 4

    def __call__(self, parts: tuple[Tensor, ...], data: Any = None) -> float:
        """Degrees."""
        found = LieAlgebra(parts[0])
        if found.size != self.truth.size:
            return 90.0
        return math.degrees(math.asin(min(found.distance(self.truth), 1.0)))

    def miss(self, value: float) -> float:
        """The same."""
        return value


@dataclass(frozen=True, eq=False)
class MetricCosine:
    """Cosine between the invariant metrics of the claim and of the true algebra; 0 without a claim."""

    truth: LieAlgebra
    name: str = "metric_cosine"
    digits: int = 9

    def __call__(self, parts: tuple[Tensor, ...], data: Any = None) -> float:
        """The cosine."""
        found = LieAlgebra(parts[0])
        return metric_cosine(metric(found).form, metric(self.truth).form) if found.dimension else 0.0

    def miss(self, value: float) -> float:
        """What is missing to 1."""
        return 1 - value


@dataclass(frozen=True, eq=False)
class FieldAngle:
    """Largest angle between claimed and true vector fields at the samples, in degrees, the mean over all parts.

    Fields are what generators do to the data, so that matrices, affine maps and polynomials are measured alike.

    Arguments:
        fields: From the data, the number of a part and generators `(k, ...)` to fields `(k, N, n)`.
        truth: From the data and the number of a part to true fields `(j, N, n)`.
    """

    fields: Callable[[Any, int, Tensor], Tensor]
    truth: Callable[[Any, int], Tensor]
    name: str = "error_deg"
    digits: int = 6

    def __call__(self, parts: tuple[Tensor, ...], data: Any) -> float:
        """Degrees."""
        angles = [angle_of_fields(self.fields(data, i, p), self.truth(data, i)) for i, p in enumerate(parts)]
        return sum(angles) / len(angles)

    def miss(self, value: float) -> float:
        """The same."""
        return value


def angle_of_fields(found: Tensor, truth: Tensor) -> float:
    """Largest principal angle between the spans of fields `(k, ...)`, in degrees; 90 where dimensions differ.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> round(angle_of_fields(x[None], (x + torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))[None]))
        45
    """
    if len(found) != len(truth):
        return 90.0
    if not len(found):
        return 0.0
    a, b = (torch.linalg.qr(_unit(f).mT).Q for f in (found, truth))
    # Sines from what is left over: cosines near 1 would lose half of the digits.
    left = torch.linalg.matrix_norm(b - a @ (a.mT @ b), ord=2)
    return math.degrees(math.asin(min(float(left), 1.0)))


def _unit(fields: Tensor) -> Tensor:
    rows = fields.detach().double().flatten(1)
    return rows / rows.norm(dim=1, keepdim=True).clamp_min(1e-300)
