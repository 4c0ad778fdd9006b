"""Reads a field between its pixels."""

from __future__ import annotations

__all__ = ["Fill", "Interpolation", "as_spline", "pixel_grid", "resample"]

from typing import Literal, TypeAlias

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.splines import FieldSpline, Fill

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
