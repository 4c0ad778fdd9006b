"""How far an answer lies from the truth: between spans of matrices, invariant metrics, or fields on the data."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.invariants import metric, metric_cosine
from atlasd.algebra.lie import LieAlgebra


@dataclass(frozen=True, eq=False)
class Measure:
    """A figure by which answers are compared with the truth.

    Arguments:
        digits: Decimals that are kept.
        figure: From claimed generators `(k, ...)`, one tensor for each part of the data, and the data to the figure.
        best: The figure of the truth itself.
    """

    name: str
    digits: int
    figure: Callable[[tuple[Tensor, ...], Any], float]
    best: float = 0.0

    def __call__(self, parts: tuple[Tensor, ...], data: Any = None) -> float:
        """The figure, rounded."""
        return round(self.figure(parts, data), self.digits)

    def error(self, value: float) -> float:
        """The figure as an error: 0 is best."""
        return abs(self.best - value)


def span_angle_to(truth: LieAlgebra) -> Measure:
    """Largest angle between the span claimed and the true algebra, in degrees; 90 where dimensions differ."""

    def figure(parts: tuple[Tensor, ...], _: Any) -> float:
        found = LieAlgebra(parts[0])
        same = found.size == truth.size
        return math.degrees(math.asin(min(found.distance(truth), 1.0))) if same else 90.0

    return Measure("error_deg", 4, figure)


def metric_likeness(truth: LieAlgebra) -> Measure:
    """Cosine between the invariant metrics of the claim and of the true algebra; 0 without a claim."""

    def figure(parts: tuple[Tensor, ...], _: Any) -> float:
        found = LieAlgebra(parts[0])
        return metric_cosine(metric(found).form, metric(truth).form) if found.dimension else 0.0

    return Measure("metric_cosine", 9, figure, best=1.0)


def field_angle(fields: Callable[[Any, int, Tensor], Tensor], truth: Callable[[Any, int], Tensor]) -> Measure:
    """Largest angle between claimed and true vector fields at the samples, in degrees, the mean over all parts.

    Fields are what generators do to the data, so that matrices, affine maps and polynomials are measured alike.

    Arguments:
        fields: From the data, the number of a part and generators `(k, ...)` to fields `(k, N, n)`.
    """

    def figure(parts: tuple[Tensor, ...], data: Any) -> float:
        angles = [angle_of_fields(fields(data, i, p), truth(data, i)) for i, p in enumerate(parts)]
        return sum(angles) / len(angles)

    return Measure("error_deg", 6, figure)


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
    rows = [f.detach().double().flatten(1) for f in (found, truth)]
    a, b = (torch.linalg.qr((f / f.norm(dim=1, keepdim=True).clamp_min(1e-300)).mT).Q for f in rows)
    # Sines from what is left over: cosines near 1 would lose half of the digits.
    left = torch.linalg.matrix_norm(b - a @ (a.mT @ b), ord=2)
    return math.degrees(math.asin(min(float(left), 1.0)))
