"""Reads a field between its pixels: the one place where interpolation is written."""

from __future__ import annotations

__all__ = ["Fill", "Interpolation", "pixel_grid", "resample"]

import math
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
import torch
from scipy.sparse import csr_matrix
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
        points: Positions in pixels, with shape `(Q, d)` (the same for all fields) or `(*L, Q, d)`, where
            axes of length 1 share their points.
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
    sharing = flat[..., 0].numel() // max(points.shape[:-2].numel(), 1)  # fields that use the same points
    plain = field.device.type == "cpu" and not (points.requires_grad or field.requires_grad)
    if sharing >= 4 and plain and not _traced():
        return _by_matrix(flat, shape, points, interpolation, fill)
    out: Tensor | None = None
    indices, weights = _corners(shape, points, interpolation, fill)
    for corner, weight in zip(indices.unbind(-1), weights.unbind(-1), strict=True):
        if corner.ndim == 1:
            value = flat[..., corner] * weight
        else:
            where = corner.unsqueeze(-2).expand(*flat.shape[:-1], corner.shape[-1])
            value = flat.gather(-1, where) * weight.unsqueeze(-2)
        out = value if out is None else out + value
    assert out is not None
    return out


def _corners(shape: torch.Size, points: Tensor, interpolation: Interpolation, fill: Fill) -> tuple[Tensor, Tensor]:
    """Flat index and weight of every corner of the interpolation stencils, each `(*lead, Q, corners)`."""
    lower = points.detach().floor()
    fraction = points - lower
    index: Tensor | None = None
    weight: Tensor | None = None
    for axis, size in enumerate(shape):
        first, w = _weights(fraction[..., axis], interpolation)
        taps = lower[..., axis, None].long() + torch.arange(first, first + len(w))
        here = torch.stack(w, dim=-1)  # (*lead, Q, taps)
        if fill == "zeros":
            here = here * ((taps >= 0) & (taps < size))
        taps = taps.clamp(0, size - 1)
        if index is None or weight is None:
            index, weight = taps, here
        else:
            index = (index[..., None] * size + taps[..., None, :]).flatten(-2)
            weight = (weight[..., None] * here[..., None, :]).flatten(-2)
    assert index is not None and weight is not None
    return index, weight


def _traced() -> bool:
    """Whether a function transform (jvp, vmap) is under way, which sees torch operations only."""
    return torch._C._functorch.maybe_current_level() is not None or torch.autograd.forward_ad._current_level >= 0


def _by_matrix(flat: Tensor, shape: torch.Size, points: Tensor, interpolation: Interpolation, fill: Fill) -> Tensor:
    """Resampling at points shared by many fields is one sparse matrix: fields that share it go through together.

    Points `(1, K, Q, d)` for fields `(B, K, C, S)` make a block-diagonal matrix with K blocks.
    """
    q = points.shape[-2]
    rest = [i for i, size in enumerate(points.shape[:-2]) if size != 1]
    order = [*rest, *(i for i in range(flat.ndim - 2) if i not in rest), flat.ndim - 2, flat.ndim - 1]
    stacked = flat.permute(order).flatten(0, len(rest) - 1) if rest else flat.unsqueeze(0)  # (blocks, *, C, S)
    blocks, size = stacked.shape[0], stacked.shape[-1]
    given = points.numpy()
    make = _many if given.size <= _TINY else _some if given.size <= _SMALL else _matrix
    matrix = make(given.tobytes(), given.dtype.str, given.shape, tuple(shape), interpolation, fill)
    dense = stacked.flatten(1, -2).movedim(1, 2).reshape(blocks * size, -1)  # (blocks S, fields)
    moved = torch.from_numpy(matrix @ dense.contiguous().numpy()).reshape(blocks, q, -1).movedim(2, 1)
    if not rest:
        return moved.reshape(*flat.shape[:-1], q)
    whole = [flat.shape[i] for i in order[:-1]]
    return moved.reshape(*whole, q).permute([order.index(i) for i in range(len(order))])


def _matrix(
    data: bytes,
    dtype: str,
    lead: tuple[int, ...],
    shape: tuple[int, ...],
    interpolation: Interpolation,
    fill: Fill,
) -> csr_matrix:
    """The sparse matrix of points `(*lead, Q, d)`, given as bytes, for fields of a spatial shape."""
    points = torch.from_numpy(np.frombuffer(data, dtype=dtype).reshape(lead).copy())
    index, weight = _corners(torch.Size(shape), points, interpolation, fill)
    q, taps = index.shape[-2:]
    blocks, size = index[..., 0, 0].numel(), math.prod(shape)
    offset = size * torch.arange(blocks).reshape(-1, 1, 1)
    narrow = max(blocks * size, blocks * q * taps) < 2**31
    columns = (index.reshape(blocks, q, taps) + offset).flatten().to(torch.int32 if narrow else torch.int64)
    starts = np.arange(0, blocks * q * taps + 1, taps, dtype=np.int32 if narrow else np.int64)
    return csr_matrix(
        (weight.flatten().numpy(), columns.numpy(), starts), shape=(blocks * q, blocks * size), copy=False
    )


_TINY, _SMALL = 2**11, 2**13
"""Numbers in a set of points up to which many matrices are kept, and beyond which none is: 64 MB of each at most."""
_many, _some = lru_cache(maxsize=512)(_matrix), lru_cache(maxsize=128)(_matrix)
