"""Fields as B-splines: coefficients once per field, then values and gradients at any points."""

from __future__ import annotations

__all__ = ["REACH", "Edge", "FieldSpline", "Fill", "pixel_slopes", "spline_coefficients", "spline_weights"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from atlasd.errors import InputError

Edge: TypeAlias = Literal["free", "mirror"]
Fill: TypeAlias = Literal["border", "zeros"]

REACH = 12
"""Pixels to keep around points: what lies beyond changes a spline of order 5 by less than 0.43^12 = 4e-5."""

_ENTRIES, _ROWS = 2**18, 2**13  # at most so many results, or points, per call of the kernel: they stay in the cache


def spline_weights(fraction: Tensor, order: int) -> Tensor:
    """Values of the uniform B-splines that overlap a point, in the order of their centres.

    Arguments:
        fraction: The position minus its floor, with shape `(*,)`.
        order: The degree of the polynomial pieces, odd.

    Returns:
        The weights of the coefficients at floor - (order - 1) / 2 to floor + (order + 1) / 2, with shape
        `(*, order + 1)`.

    Example:
        >>> (120 * spline_weights(torch.zeros(()), 5)).round().tolist()
        [1.0, 26.0, 66.0, 26.0, 1.0, 0.0]

    References:
        de Boor, On calculating with B-splines, Journal of Approximation Theory 6 (1972).
    """
    weights = torch.ones_like(fraction)[..., None]
    for m in range(1, order + 1):
        # Position within the support [0, m + 1] of each spline; the last centre has the smallest one.
        inside = fraction[..., None] + torch.arange(m, -1, -1, dtype=fraction.dtype, device=fraction.device)
        none = torch.zeros_like(fraction)[..., None]
        later, earlier = torch.cat([none, weights], -1), torch.cat([weights, none], -1)
        weights = (inside * later + (m + 1 - inside) * earlier) / m
    return weights


def _slopes(fraction: Tensor, order: int) -> Tensor:
    """Derivatives of `spline_weights`, with the same shape: differences of the splines of one order less."""
    lower = spline_weights(fraction, order - 1)
    none = torch.zeros_like(lower[..., :1])
    return torch.cat([none, lower], -1) - torch.cat([lower, none], -1)


def _extension(size: int, order: int, edge: Edge) -> Tensor:
    """Matrix `(size + order, size)` that continues coefficients beyond both ends, as far as splines overlap."""
    rows = list(torch.eye(size, dtype=torch.float64))
    degree = min(3, size - 1)
    for j in range(1, (order + 1) // 2 + 1):
        if edge == "mirror" and size > 1:
            first, last = rows[2 * j - 1], rows[-2 * j]
        else:
            signs = [(-1) ** k * math.comb(degree + 1, k + 1) for k in range(degree + 1)]
            first = torch.stack([s * rows[k] for k, s in enumerate(signs)]).sum(0)
            last = torch.stack([s * rows[-1 - k] for k, s in enumerate(signs)]).sum(0)
        rows = [first, *rows, last]
    return torch.stack(rows[1:])  # one less is needed on the left


def _prefilter(size: int, order: int, edge: Edge) -> Tensor:
    """Matrix `(size + order, size)` from the values along an axis to coefficients, continued beyond both ends."""
    extension = _extension(size, order, edge)
    weights = spline_weights(torch.zeros((), dtype=torch.float64), order)
    values = torch.stack([w * extension[t : t + size] for t, w in enumerate(weights.tolist())]).sum(0)
    return torch.linalg.solve(values, extension, left=False)


def _continued(field: Tensor, dimensions: int, order: int, edge: Edge) -> Tensor:
    """Coefficients of fields `(*L, *S)`, continued beyond the edges, with the grid first: `(*S + order, *L)`."""
    lead, shape = field.shape[:-dimensions], field.shape[-dimensions:]
    out = _grid_first(field, dimensions)
    done = 1
    for size in shape:
        out = _prefilter(size, order, edge).to(field).contiguous() @ out.reshape(done, size, -1)
        done *= size + order
    return out.reshape(*(size + order for size in shape), *lead)


def _grid_first(field: Tensor, dimensions: int) -> Tensor:
    """Fields `(*L, *S)` as a matrix with a row per pixel, `(prod(S), prod(L))`."""
    lead, shape = field.shape[:-dimensions], field.shape[-dimensions:]
    return field.reshape(math.prod(lead), math.prod(shape)).mT.contiguous()


def _check(order: int, edge: str) -> None:
    if order not in (1, 3, 5):
        raise InputError(f"`order` must be 1, 3 or 5, got {order}; 5 is the default.")
    if edge not in get_args(Edge):
        raise InputError(f"`edge` must be 'free' or 'mirror', got {edge!r}; 'free' is the default.")


def spline_coefficients(x: Tensor, *, dimensions: int = 2, order: int = 5, edge: Edge = "free") -> Tensor:
    """B-spline coefficients of fields: the spline through all their values.

    Arguments:
        x: Fields, with shape `(*, *S)`, `S` of length `dimensions`.
        dimensions: The number of spatial axes.
        order: 1, 3 or 5.
        edge: See `FieldSpline`. With `mirror` this is `scipy.ndimage.spline_filter`.

    Returns:
        The coefficients, with the shape of `x`, differentiable.

    Example:
        >>> spline_coefficients(torch.tensor([1.0, 1.0, 1.0]), dimensions=1).round(decimals=5).tolist()
        [1.0, 1.0, 1.0]

    References:
        Unser, Splines: a perfect fit for signal and image processing, IEEE Signal Processing Magazine 16 (1999).
    """
    _check(order, edge)
    grid = _continued(x, dimensions, order, edge)
    for axis, size in enumerate(x.shape[-dimensions:]):
        grid = grid.narrow(axis, (order - 1) // 2, size)
    return grid.movedim(tuple(range(dimensions)), tuple(range(-dimensions, 0)))


def pixel_slopes(x: Tensor, axis: int, *, order: int = 5, edge: Edge = "free") -> Tensor:
    """Derivative of the spline through fields along one axis, at the pixels, with the shape of `x`.

    Arguments:
        x: Fields, with shape `(*, *S)`.
        axis: The axis of the derivative; only values along it count.
        order: 3 or 5.
        edge: See `FieldSpline`.

    Example:
        >>> pixel_slopes(torch.arange(1.0, 7.0) ** 2, 0).round(decimals=3).tolist()
        [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    """
    _check(order, edge)
    size = x.shape[axis]
    prefilter = _prefilter(size, order, edge)
    slopes = _slopes(torch.zeros((), dtype=torch.float64), order).tolist()
    matrix = torch.stack([w * prefilter[t : t + size] for t, w in enumerate(slopes)]).sum(0).to(x)
    return (x.movedim(axis, -1) @ matrix.mT).movedim(-1, axis)


@dataclass(frozen=True, eq=False)
class FieldSpline:
    """Fields as B-splines. Coefficients are computed at first use and kept.

    Evaluation is one pass over weighted rows of a table (`embedding_bag`). For 760 fields of 45 x 45 at 33 x 33 points
    it takes 2.5 ms in float32 on one thread; a sparse matrix takes 4.8 ms, one gather per tap 27 ms, a dense matrix
    46 ms.

    Arguments:
        values: Fields, with shape `(*L, C, *S)`, `S` of length `dimensions`.
        dimensions: The number of spatial axes, 1 to 3.
        order: 1 (linear), 3 or 5.
        edge: How coefficients continue beyond the edge. `free`: as a cubic, so that cubics are exact everywhere.
            `mirror`: as in `scipy.ndimage`; slopes at the edge become 0, which is felt some 5 pixels inside.
        fill: What lies outside: the nearest point of the edge (`border`), or zero from one pixel on (`zeros`).

    Example:
        >>> ramp = torch.arange(5.0).expand(1, 5, 5)
        >>> FieldSpline(ramp).at(torch.tensor([[2.0, 1.25]])).round(decimals=4).tolist()
        [[1.25]]
    """

    values: Tensor
    dimensions: int = 2
    order: int = 5
    edge: Edge = "free"
    fill: Fill = "border"

    def __post_init__(self) -> None:
        _check(self.order, self.edge)
        if self.fill not in get_args(Fill):
            raise InputError(f"`fill` must be 'border' or 'zeros', got {self.fill!r}; 'border' is the default.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The spatial shape."""
        return tuple(self.values.shape[-self.dimensions :])

    @cached_property
    def _table(self) -> Tensor:
        """Continued coefficients with the grid first, `(prod(S + order), *L, C)`."""
        return _continued(self.values, self.dimensions, self.order, self.edge).flatten(0, self.dimensions - 1)

    def at(self, points: Tensor) -> Tensor:
        """Values at points, differentiable in the points and in the fields.

        Arguments:
            points: Positions in pixels, with shape `(*A, Q, d)`. Leading axes broadcast against those of the
                fields: `(Q, d)` serves all fields; `(M, 1, 1, Q, d)` gives fields `(B, K, C, *S)` at M sets of points.

        Returns:
            The values, with shape `(*broadcast(A, L), C, Q)`. Where all points of a set are pixels: the pixels,
            without rounding.
        """
        return self._evaluate(points, gradient=False)[0]

    def with_gradient(self, points: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Values at points as in `at`, and their slopes along each of the d axes, all with shape `(*, C, Q)`."""
        value, *slopes = self._evaluate(points, gradient=True)
        return value, tuple(slopes)

    def _evaluate(self, points: Tensor, *, gradient: bool) -> list[Tensor]:
        # Geometry in float64: float32 positions on a large field lose the fraction.
        axes = [_taps(points[..., a].double(), s, self.order, self.fill, gradient) for a, s in enumerate(self.shape)]
        starts, weights = [start for start, _ in axes], [weight for _, weight in axes]
        sizes = [size + self.order for size in self.shape]
        out = _gather(self._table, sizes, starts, [w[0] for w in weights])
        wanted = [self._exact(points, out) if _is_plain(points) else out]
        for axis in range(self.dimensions if gradient else 0):
            along = [w[1] if a == axis else w[0] for a, w in enumerate(weights)]
            wanted.append(_gather(self._table, sizes, starts, along))
        return wanted

    def _exact(self, points: Tensor, out: Tensor) -> Tensor:
        """`out`, with the pixels themselves where all points of a set are pixels."""
        whole = (points == points.round()).flatten(-2).all(-1)  # (*A,)
        if not bool(whole.any()):
            return out
        axes = [_taps(points[..., a].double(), s, 0, self.fill, False) for a, s in enumerate(self.shape)]
        table = _grid_first(self.values, self.dimensions).unflatten(1, self.values.shape[: -self.dimensions])
        pixels = _gather(table, list(self.shape), [start for start, _ in axes], [w[0] for _, w in axes])
        return torch.where(whole[..., None, None], pixels, out)


def _taps(position: Tensor, size: int, order: int, fill: Fill, gradient: bool) -> tuple[Tensor, list[Tensor]]:
    """First coefficient that counts at each position, and the weights `(*, order + 1)`, with their slopes if asked."""
    inside = position.clamp(0, size - 1)
    start = inside.detach().floor()
    fraction = inside - start
    weights = [spline_weights(fraction, order)]
    beyond = position - inside
    fade = (1 - beyond.abs()).clamp_min(0) if fill == "zeros" else torch.ones_like(beyond)
    if gradient:
        slopes = _slopes(fraction, order) * (fade * (beyond == 0))[..., None]
        if fill == "zeros":
            slopes = slopes - weights[0] * (beyond.sign() * (fade > 0))[..., None]
        weights.append(slopes)
    weights[0] = weights[0] * fade[..., None]
    return start.long(), weights


def _gather(table: Tensor, sizes: list[int], starts: list[Tensor], weights: list[Tensor]) -> Tensor:
    """Weighted sums of table entries, for every point and field.

    Arguments:
        table: Numbers on a grid, with shape `(prod(sizes), *L, C)`.
        starts: The first index along each axis, with shape `(*A, Q)`.
        weights: The weights along each axis, with shape `(*A, Q, taps)`.

    Returns:
        The sums, with shape `(*broadcast(A, L), C, Q)`.
    """
    fields, sets = list(table.shape[1:-1]), list(starts[0].shape[:-1])
    rank = max(len(fields), len(sets))
    fields, sets = [1] * (rank - len(fields)) + fields, [1] * (rank - len(sets)) + sets
    # Axes along which points and fields go together, along which only points change, and the other ones.
    both = [i for i in range(rank) if fields[i] != 1 and sets[i] != 1]
    only = [i for i in range(rank) if i not in both and sets[i] != 1]
    rest = [i for i in range(rank) if i not in both and i not in only]
    grid, channels, points = len(table), table.shape[-1], starts[0].shape[-1]
    blocks = math.prod(fields[i] for i in both)
    table = table.reshape(grid, *fields, channels)
    table = table.permute([*(i + 1 for i in both), 0, *(i + 1 for i in [*only, *rest]), rank + 1])
    flat = table.reshape(blocks * grid, -1)  # (blocks S, fields)

    def rows(z: Tensor) -> Tensor:
        z = z.reshape(*sets, *z.shape[starts[0].ndim - 1 :])
        return z.permute([*both, *only, *rest, *range(rank, z.ndim)]).flatten(0, rank)

    offsets = grid * torch.arange(blocks, device=table.device)
    offset = offsets.repeat_interleave(points * math.prod(sets[i] for i in only))
    first, factors = [rows(start) for start in starts], [rows(w).to(table.dtype) for w in weights]

    def sums(part: slice) -> Tensor:
        """Sums for a part of the rows, with shape `(sets, fields, Q)`."""
        index, weight = _corners(sizes, [i[part] for i in first], [w[part] for w in factors], offset[part])
        return _weighted_sum(flat, index, weight).unflatten(0, (-1, points)).mT

    out = _by_parts(sums, len(offset), points, flat, factors)
    out = out.reshape(*(sets[i] for i in [*both, *only]), *(fields[i] for i in rest), channels, points)
    order = [*both, *only, *rest, rank, rank + 1]
    return out.permute([order.index(i) for i in range(rank + 2)])


def _by_parts(sums: Callable[[slice], Tensor], rows: int, points: int, table: Tensor, weights: list[Tensor]) -> Tensor:
    """Results of all rows, with shape `(sets, fields, points)`, computed in parts that fit the cache."""
    fields = table.shape[-1]
    if not rows:
        return table.new_zeros(0, fields, points)
    most = min(_ROWS, _ENTRIES // max(fields, 1))
    step = points * max(1, most // points)
    parts = [slice(low, min(low + step, rows)) for low in range(0, rows, step)]
    if len(parts) == 1 or not _is_plain(table, *weights):
        return torch.cat([sums(part) for part in parts])
    # Each part is written with its points last while it is in the cache.
    out = table.new_empty(rows // points, fields, points)
    for part in parts:
        out[part.start // points : part.stop // points] = sums(part)
    return out


def _corners(sizes: list[int], first: list[Tensor], weights: list[Tensor], offset: Tensor) -> tuple[Tensor, Tensor]:
    """Flat index and weight of every tap, each `(rows, taps)`, from those along each axis."""
    index, weight = offset[:, None], torch.ones_like(weights[0][:, :1])
    stride = math.prod(sizes)
    for start, along, size in zip(first, weights, sizes, strict=True):
        stride //= size
        here = stride * (start[:, None] + torch.arange(along.shape[-1], device=along.device))
        index = (index[..., None] + here[:, None]).flatten(1)
        weight = (weight[..., None] * along[:, None]).flatten(1)
    return index, weight


def _weighted_sum(table: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Sums over taps, `(rows, fields)`, of a table `(S, fields)` with indices and weights `(rows, taps)`."""
    if _traced():
        taps = zip(index.unbind(1), weight.unbind(1), strict=True)
        return torch.stack([table[i] * w[:, None] for i, w in taps]).sum(0)
    return embedding_bag(index, table, per_sample_weights=weight, mode="sum")


def _traced() -> bool:
    """Whether a function transform (jvp, vmap) is under way, which the fast kernel does not know."""
    return torch._C._functorch.maybe_current_level() is not None or torch.autograd.forward_ad._current_level >= 0


def _is_plain(*tensors: Tensor) -> bool:
    """Whether no derivative is asked for, and numbers are in main memory."""
    recorded = torch.is_grad_enabled() and any(z.requires_grad for z in tensors)
    return not recorded and not _traced() and tensors[0].device.type == "cpu"
