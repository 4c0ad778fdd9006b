"""Fields between their pixels, as mixtures of a few, and under stencils."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.geometry.splines import FieldSpline, Fill

_SIDE_BY_SIDE = 128
"""Channels of one stencil each that are worked on together: with few, most of the processor's width stays idle."""
_CONVOLUTION = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Stencils `(K, O, C, *width)` of fields `(B, K, C, *S)`, with shape `(B, K, O, *(S - width + 1))`.

    Arguments:
        weight: One stencil for every chart, or one for all charts, `(1, O, C, *width)`.
        bias: What is added, `(K, O)`.
    """
    weight = weight.to(x.dtype)
    if len(weight) == 1 and x.shape[1] > 1:
        made = convolve(x.flatten(0, 1)[:, None], weight, bias)
        return made[:, 0].unflatten(0, x.shape[:2])
    charts, outputs, channels = weight.shape[:3]
    run = _CONVOLUTION[weight.ndim - 3]
    step = max(_SIDE_BY_SIDE // charts, 1) if channels == outputs == 1 else 1
    parts = []
    for part in (x[: len(x) // step * step], x[len(x) // step * step :]):
        if len(part):
            side = min(step, len(part))
            flat = part.reshape(-1, side * charts * channels, *x.shape[3:])
            stencils = weight.flatten(0, 1).repeat(side, *[1] * (weight.ndim - 2))
            made = run(flat, stencils, groups=side * charts)
            parts.append(made.reshape(len(part), charts, outputs, *made.shape[2:]))
    y = torch.cat(parts) if len(parts) > 1 else parts[0]
    return y if bias is None else y + bias.to(x.dtype)[(..., *[None] * (weight.ndim - 3))]


Interpolation: TypeAlias = Literal["bilinear", "spline"]

_ORDERS = {"bilinear": 1, "spline": 5}


def pixel_grid(shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32) -> Tensor:
    """Offsets of every pixel from the exact centre of an array, in the order of its axes.

    Arguments:
        shape: The spatial shape, of length `d`.

    Returns:
        The offsets, with shape `(prod(shape), d)`.

    Example:
        >>> pixel_grid((2, 2)).tolist()
        [[-0.5, -0.5], [-0.5, 0.5], [0.5, -0.5], [0.5, 0.5]]
    """
    axes = [torch.arange(s, dtype=dtype) - (s - 1) / 2 for s in shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).flatten(0, -2)


def as_spline(
    field: Tensor, dimensions: int, *, interpolation: Interpolation = "spline", fill: Fill = "border"
) -> FieldSpline:
    """Fields `(*L, C, *S)`, ready to be read at many points: `bilinear` is order 1, `spline` order 5."""
    if interpolation not in _ORDERS:
        raise InputError(f"`interpolation` must be 'bilinear' or 'spline', got {interpolation!r}.")
    return FieldSpline(field, dimensions=dimensions, order=_ORDERS[interpolation], fill=fill)


def resample(
    field: Tensor,
    points: Tensor,
    *,
    interpolation: Interpolation = "spline",
    fill: Fill = "border",
) -> Tensor:
    """Evaluates fields at fractional pixel positions, differentiably in the positions.

    Arguments:
        field: Fields, with shape `(*L, C, *S)`, `S` of length `d`.
        points: Positions in pixels, with shape `(*A, Q, d)`; the axes `A` broadcast against `L`. So `(Q, d)` serves
            all fields.
        interpolation: `bilinear`, or `spline` (B-splines of order 5, exact on cubics).
        fill: What lies outside: the nearest pixel (`border`) or zero (`zeros`).

    Returns:
        The values, with shape `(*broadcast(A, L), C, Q)`.

    Example:
        >>> resample(torch.arange(4.0).expand(1, 3, 4), torch.tensor([[1.0, 2.5]])).round(decimals=4).tolist()
        [[2.5]]
    """
    return as_spline(field, points.shape[-1], interpolation=interpolation, fill=fill).at(points)


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
    return FieldSpan(spline, mixture, FieldSpline(basis, d, spline.order, spline.fill))
