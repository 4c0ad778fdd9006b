"""Fields as mixtures of a few: what is linear in fields is computed for those few alone."""

from __future__ import annotations

__all__ = ["FieldSpan", "frame_of", "span_of"]

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.geometry.splines import FieldSpline

_LEFT = 1e-5
"""Share of the amplitude of fields that mixtures may leave out: interpolation leaves more."""
_FIRST = 32


@dataclass(frozen=True, eq=False)
class FieldSpan:
    """Fields `(*L, C, *S)` as mixtures of R fields, read at any points as a `FieldSpline` is.

    Fields that are smooth, or come from a law with few parameters, are mixtures of far fewer than there are of them.
    Where points are the same for all of them, only the few are interpolated.

    Arguments:
        whole: The fields as they are, for points that differ from field to field.
        mixture: Weights, with shape `(*L, C, R)`.
        basis: The few, as one field of R channels, `(R, *S)`.
    """

    whole: FieldSpline
    mixture: Tensor
    basis: FieldSpline

    @property
    def shape(self) -> tuple[int, ...]:
        """The spatial shape."""
        return self.basis.shape

    def at(self, points: Tensor) -> Tensor:
        """Values at points `(*A, Q, d)`, with shape `(*broadcast(A, L), C, Q)`, as `FieldSpline.at` gives them."""
        lead = self.mixture.ndim - 2
        shared = points.shape[:-2][-lead:]
        if points.ndim < 2 + lead or math.prod(shared) != 1:
            return self.whole.at(points)
        return self.mixed(self.basis.at(points.reshape(*points.shape[: -2 - lead], *points.shape[-2:])))

    def mixed(self, values: Tensor) -> Tensor:
        """The same mixtures of values `(*A, R, Q)` that are linear in the fields, `(*A, *L, C, Q)`."""
        flat = self.mixture.flatten(0, -2) @ values
        return flat.unflatten(-2, self.mixture.shape[:-1])


def frame_of(rows: Tensor, most: int) -> Tensor | None:
    """An orthonormal frame `(D, R)` that leaves out less than `_LEFT` of rows `(N, D)`.

    `None` where that takes more than `most` directions. A few random mixtures of the rows span them, or more are drawn.
    """
    generator, size = torch.Generator().manual_seed(0), min(_FIRST, most)
    square = float(rows.square().sum())
    while size:
        drawn = torch.randn(len(rows), size, generator=generator, dtype=torch.float64)
        q = torch.linalg.qr(rows.mT @ drawn).Q
        seen = rows @ q
        values, directions = torch.linalg.eigh(seen.mT @ seen)
        left = square - float(values.sum())
        if left <= _LEFT**2 * square:
            return q @ directions[:, left + values.cumsum(0) > _LEFT**2 * square]  # ascending: small ones come first
        size = min(4 * size, most) if size < most else 0
    return None


def span_of(spline: FieldSpline) -> FieldSpan | FieldSpline:
    """Fields as mixtures of a few, where a third of their number or of their pixels suffices; else as they are."""
    values, d = spline.values, spline.dimensions
    rows = values.flatten(-d).flatten(0, -2).double()  # (N, D)
    frame = frame_of(rows, min(rows.shape) // 3)
    if frame is None:
        return spline
    mixture = (rows @ frame).to(values.dtype).unflatten(0, values.shape[:-d])
    basis = frame.mT.to(values.dtype).unflatten(1, spline.shape)
    return FieldSpan(spline, mixture, FieldSpline(basis, d, spline.order, spline.edge, spline.fill))
