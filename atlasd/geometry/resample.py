"""Reads a field between its pixels: the one place where interpolation is written."""

from __future__ import annotations

__all__ = ["Fill", "Interpolation", "pixel_grid", "resample"]

from itertools import product
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from atlasd.errors import InputError

Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
Fill: TypeAlias = Literal["border", "zeros"]


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


def _weights(u: Tensor, interpolation: Interpolation) -> tuple[int, list[Tensor]]:
    """The first tap relative to floor(x), and the weight of each tap at fraction `u`."""
    if interpolation == "bilinear":
        return 0, [1 - u, u]
    # Catmull-Rom (a = -1/2): the only cubic convolution that reproduces quadratics.
    return -1, [
        ((2 - u) * u - 1) * u / 2,
        (u * u * (3 * u - 5) + 2) / 2,
        ((4 - 3 * u) * u + 1) * u / 2,
        (u - 1) * u * u / 2,
    ]


def resample(
    field: Tensor,
    points: Tensor,
    *,
    interpolation: Interpolation = "bicubic",
    fill: Fill = "border",
) -> Tensor:
    """Evaluates fields at fractional pixel positions, differentiably in the positions.

    Arguments:
        field: Fields, with shape `(*L, C, *S)`, `S` of length `d`.
        points: Positions in pixels, with shape `(Q, d)` (the same for all fields) or `(*L, Q, d)`.
        interpolation: `bilinear` or `bicubic` (exact on quadratics away from the border).
        fill: What lies outside: the nearest pixel (`border`) or zero (`zeros`).

    Returns:
        The values, with shape `(*L, C, Q)`.
    """
    if interpolation not in ("bilinear", "bicubic"):
        raise InputError(f"`interpolation` must be 'bilinear' or 'bicubic', got {interpolation!r}.")
    if fill not in ("border", "zeros"):
        raise InputError(f"`fill` must be 'border' or 'zeros', got {fill!r}.")
    d = points.shape[-1]
    shape = field.shape[-d:]
    flat = field.flatten(-d)  # (*L, C, S)
    shared = points.ndim == 2
    lower = points.detach().floor()
    fraction = points - lower
    taps, weights, inside = [], [], []
    for axis in range(d):
        first, w = _weights(fraction[..., axis], interpolation)
        index = [lower[..., axis].long() + first + i for i in range(len(w))]
        inside.append([(i >= 0) & (i < shape[axis]) for i in index])
        taps.append([i.clamp(0, shape[axis] - 1) for i in index])
        weights.append(w)
    if shared and not points.requires_grad:
        return _by_matrix(flat, shape, taps, weights, inside, fill)
    out: Tensor | None = None
    for combination in product(*(range(len(w)) for w in weights)):
        corner, weight = _tap(shape, taps, weights, inside, combination, fill)
        if shared:
            value = flat[..., corner] * weight
        else:
            where = corner.unsqueeze(-2).expand(*flat.shape[:-1], corner.shape[-1])
            value = flat.gather(-1, where) * weight.unsqueeze(-2)
        out = value if out is None else out + value
    assert out is not None
    return out


def _tap(
    shape: torch.Size,
    taps: list[list[Tensor]],
    weights: list[list[Tensor]],
    inside: list[list[Tensor]],
    combination: tuple[int, ...],
    fill: Fill,
) -> tuple[Tensor, Tensor]:
    """Flat index and weight of one corner of the interpolation stencil."""
    index = taps[0][combination[0]]
    weight = weights[0][combination[0]]
    for axis in range(1, len(shape)):
        index = index * shape[axis] + taps[axis][combination[axis]]
        weight = weight * weights[axis][combination[axis]]
    if fill == "zeros":
        for axis, i in enumerate(combination):
            weight = weight * inside[axis][i]
    return index, weight


def _by_matrix(
    flat: Tensor,
    shape: torch.Size,
    taps: list[list[Tensor]],
    weights: list[list[Tensor]],
    inside: list[list[Tensor]],
    fill: Fill,
) -> Tensor:
    """Resampling at points shared by many fields is one sparse matrix: build it once, multiply."""
    corners = [_tap(shape, taps, weights, inside, c, fill) for c in product(*(range(len(w)) for w in weights))]
    q = corners[0][0].shape[0]
    rows = torch.arange(q).repeat(len(corners))
    columns = torch.cat([i for i, _ in corners])
    values = torch.cat([w for _, w in corners]).to(flat.dtype)
    if flat[..., 0].numel() * 8 < q:  # few fields: the dense matrix would cost more than it saves
        out = flat.new_zeros(*flat.shape[:-1], q)
        for index, weight in corners:
            out += flat[..., index] * weight.to(flat.dtype)
        return out
    matrix = flat.new_zeros(q, flat.shape[-1])
    matrix.index_put_((rows, columns), values, accumulate=True)
    return flat @ matrix.mT
