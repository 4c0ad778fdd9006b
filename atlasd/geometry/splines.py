"""Fields as B-splines: coefficients once per field, then values and gradients at any points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from atlasd.errors import InputError

Fill: TypeAlias = Literal["border", "zeros"]

REACH = 12
"""Pixels to keep around points: what lies beyond changes a spline of order 5 by less than 0.43^12 = 4e-5."""

_ENTRIES, _ROWS = 2**18, 2**13  # at most so many results, or points, per call of the kernel: they stay in the cache
_FEW = 4  # fields that share points, up to which a plain gather is faster than the kernel


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
        Unser, Splines: a perfect fit for signal and image processing, IEEE Signal Processing Magazine 16 (1999).
    """
    powers = [torch.ones_like(fraction)]
    for _ in range(order):
        powers.append(powers[-1] * fraction)
    return torch.stack(powers, dim=-1) @ _pieces(order).to(fraction)


@cache
def _pieces(order: int) -> Tensor:
    """Polynomials of the fraction that are the weights of `spline_weights`: coefficients `(power, weight)`.

    The spline whose centre is k before the last is a sum of powers of `u + k - j` over j from 0 to k, u the fraction.
    """
    table = torch.zeros(order + 1, order + 1, dtype=torch.float64)
    for k in range(order + 1):
        for power in range(order + 1):
            total = sum((-1) ** j * math.comb(order + 1, j) * (k - j) ** (order - power) for j in range(k + 1))
            table[power, order - k] = math.comb(order, power) * total / math.factorial(order)
    return table


def _slopes(fraction: Tensor, order: int) -> Tensor:
    """Derivatives of `spline_weights`, with the same shape: differences of the splines of one order less."""
    lower = spline_weights(fraction, order - 1)
    none = torch.zeros_like(lower[..., :1])
    return torch.cat([none, lower], -1) - torch.cat([lower, none], -1)


def _prefilter(size: int, order: int) -> Tensor:
    """Matrix `(size + order, size)` from values along an axis to coefficients, as far as splines overlap the axis.

    Beyond the edge coefficients continue as a cubic, so that cubics are exact everywhere.
    """
    rows = list(torch.eye(size, dtype=torch.float64))
    degree = min(3, size - 1)
    signs = [(-1) ** k * math.comb(degree + 1, k + 1) for k in range(degree + 1)]
    for _ in range((order + 1) // 2):
        first = torch.stack([s * rows[k] for k, s in enumerate(signs)]).sum(0)
        last = torch.stack([s * rows[-1 - k] for k, s in enumerate(signs)]).sum(0)
        rows = [first, *rows, last]
    extension = torch.stack(rows[1:])  # one less is needed on the left
    weights = spline_weights(torch.zeros((), dtype=torch.float64), order)
    values = torch.stack([w * extension[t : t + size] for t, w in enumerate(weights.tolist())]).sum(0)
    return torch.linalg.solve(values, extension, left=False)


def _grid_first(field: Tensor, dimensions: int) -> Tensor:
    """Fields `(*L, *S)` as a matrix with a row per pixel, `(prod(S), prod(L))`."""
    lead, shape = field.shape[:-dimensions], field.shape[-dimensions:]
    return field.reshape(math.prod(lead), math.prod(shape)).mT.contiguous()


def pixel_slopes(x: Tensor, axis: int) -> Tensor:
    """Derivative of the spline of order 5 through fields along one axis, at the pixels, with the shape of `x`.

    Arguments:
        x: Fields, with shape `(*, *S)`.
        axis: The axis of the derivative; only values along it count.

    Example:
        >>> pixel_slopes(torch.arange(1.0, 7.0) ** 2, 0).round(decimals=3).tolist()
        [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
    """
    size = x.shape[axis]
    prefilter = _prefilter(size, 5)
    slopes = _slopes(torch.zeros((), dtype=torch.float64), 5).tolist()
    matrix = torch.stack([w * prefilter[t : t + size] for t, w in enumerate(slopes)]).sum(0).to(x)
    return (x.movedim(axis, -1) @ matrix.mT).movedim(-1, axis)


@dataclass(frozen=True, eq=False)
class FieldSpline:
    """Fields as B-splines. Coefficients are computed at first use and kept.

    Evaluation is one pass over weighted rows of a table (`embedding_bag`). For 760 fields of 45 x 45 at 33 x 33 points,
    float32, one thread, with weights at hand: this kernel 2.5 ms, a sparse matrix 4.8 ms, one gather per tap 27 ms,
    a dense matrix 46 ms.

    Arguments:
        values: Fields, with shape `(*L, C, *S)`, `S` of length `dimensions`.
        dimensions: The number of spatial axes, 1 to 3.
        order: 1 (linear), 3 or 5.
        fill: What lies outside: the nearest point of the edge (`border`), or zero from one pixel on (`zeros`).

    Example:
        >>> ramp = torch.arange(5.0).expand(1, 5, 5)
        >>> FieldSpline(ramp).at(torch.tensor([[2.0, 1.25]])).round(decimals=4).tolist()
        [[1.25]]
    """

    values: Tensor
    dimensions: int = 2
    order: int = 5
    fill: Fill = "border"

    def __post_init__(self) -> None:
        if self.order not in (1, 3, 5):
            raise InputError(f"`order` must be 1, 3 or 5, got {self.order}; 5 is the default.")
        if self.fill not in get_args(Fill):
            raise InputError(f"`fill` must be 'border' or 'zeros', got {self.fill!r}; 'border' is the default.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The spatial shape."""
        return tuple(self.values.shape[-self.dimensions :])

    @cached_property
    def _table(self) -> Tensor:
        """Continued coefficients with the grid first, `(prod(S + order), *L, C)`."""
        out, done = _grid_first(self.values, self.dimensions), 1
        for size in self.shape:
            matrix = _prefilter(size, self.order).to(out).contiguous()
            out = matrix @ out.reshape(done, size, -1)
            done *= size + self.order
        return out.reshape(done, *self.values.shape[: -self.dimensions])

    def at(self, points: Tensor) -> Tensor:
        """Values at points, differentiable in the points and in the fields.

        Arguments:
            points: Positions in pixels, with shape `(*A, Q, d)`. Leading axes broadcast against those of the
                fields: `(Q, d)` serves all fields; `(M, 1, 1, Q, d)` gives fields `(B, K, C, *S)` at M sets of points.

        Returns:
            The values, with shape `(*broadcast(A, L), C, Q)`. Where all points of a set are pixels: the pixels,
            without rounding. Points that require a gradient get the first derivative only; `torch.func.jvp` and
            `vmap` know all orders.
        """
        if points.requires_grad and torch.is_grad_enabled() and not _traced():
            # Recording the weights of all taps would cost ten times as much as the slopes in closed form.
            value, slopes = self.with_gradient(points.detach())
            step = (points - points.detach()).to(value.dtype).unsqueeze(-3)  # zero, with a gradient
            return value + torch.stack([slope * step[..., a] for a, slope in enumerate(slopes)]).sum(0)
        return self._at_pixels(points, self._evaluate(self._table, points, self.order)[0])

    def with_gradient(self, points: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Values at points as in `at`, and their slopes along each of the d axes, all with shape `(*, C, Q)`."""
        value, *slopes = self._evaluate(self._table, points, self.order, gradient=True)
        return self._at_pixels(points, value), tuple(slopes)

    def _at_pixels(self, points: Tensor, value: Tensor) -> Tensor:
        """Values at points, with those of sets of pixels replaced by the pixels themselves."""
        on_pixels = (points == points.round()).flatten(-2).all(-1)  # (*A,)
        if not _is_plain(points) or not bool(on_pixels.any()):
            return value
        table = _grid_first(self.values, self.dimensions).unflatten(1, self.values.shape[: -self.dimensions])
        return torch.where(on_pixels[..., None, None], self._evaluate(table, points, 0)[0], value)

    def _evaluate(self, table: Tensor, points: Tensor, order: int, *, gradient: bool = False) -> list[Tensor]:
        """Values at points, and slopes along each axis if asked, all with shape `(*broadcast(A, L), C, Q)`.

        Arguments:
            table: Coefficients, continued beyond the edges, with shape `(prod(S + order), *L, C)`.
            points: Positions in pixels, with shape `(*A, Q, d)`.
        """
        fields, sets = list(table.shape[1:-1]), list(points.shape[:-2])
        rank = max(len(fields), len(sets))
        fields, sets = [1] * (rank - len(fields)) + fields, [1] * (rank - len(sets)) + sets
        # Axes along which points and fields go together, along which only points change, and the other ones.
        both = [i for i in range(rank) if fields[i] != 1 and sets[i] != 1]
        only = [i for i in range(rank) if i not in both and sets[i] != 1]
        rest = [i for i in range(rank) if i not in both and i not in only]
        grid, channels, (count, d) = len(table), table.shape[-1], points.shape[-2:]
        blocks = math.prod(fields[i] for i in both)
        table = table.reshape(grid, *fields, channels)
        table = table.permute([*(i + 1 for i in both), 0, *(i + 1 for i in [*only, *rest]), rank + 1])
        table = table.reshape(blocks * grid, -1)  # (blocks S, fields)
        rows = points.reshape(*sets, count, d).permute([*both, *only, *rest, rank, rank + 1]).reshape(-1, d)
        offsets = grid * torch.arange(blocks, device=table.device)
        offsets = offsets.repeat_interleave(count * math.prod(sets[i] for i in only))
        parts, written = _parts(len(rows), count, table.shape[1]), _is_plain(table, rows)
        # Each part is written with its points last while it is in the cache.
        size = (len(rows) // max(count, 1), table.shape[1], count)
        sums = [table.new_empty(size) if written else table.new_zeros(size) for _ in range(1 + d * gradient)]
        pieces: list[list[Tensor]] = []
        for part in parts:
            index, weights = self._taps(rows[part], offsets[part], order, gradient)
            pieces.append([_weighted_sum(table, index, w).unflatten(0, (-1, count)).mT for w in weights])
            if written:
                for full, some in zip(sums, pieces.pop(), strict=True):
                    full[part.start // count : part.stop // count] = some
        if pieces:
            sums = [torch.cat(each) for each in zip(*pieces, strict=True)]
        order_of_axes = [*both, *only, *rest, rank, rank + 1]
        final = [*(sets[i] for i in [*both, *only]), *(fields[i] for i in rest), channels, count]
        back = [order_of_axes.index(i) for i in range(rank + 2)]
        return [out.reshape(final).permute(back) for out in sums]

    def _taps(self, points: Tensor, base: Tensor, order: int, gradient: bool) -> tuple[Tensor, list[Tensor]]:
        """Flat indices of the coefficients that count at points `(rows, d)`, and their weights, each `(rows, taps)`.

        Indices are counted from `base`, `(rows,)`. The weights of the values come first, then those of the slopes
        along each axis if asked.
        """
        # Indices are those of the first coefficient and steps from it: one pass over all taps.
        steps = torch.zeros(1, dtype=torch.long, device=points.device)
        first = torch.zeros_like(base)
        one = torch.ones(len(points), 1, dtype=self.values.dtype, device=points.device)
        weights = [one] * (1 + self.dimensions * gradient)
        for axis, size in enumerate(self.shape):
            # Geometry in float64: float32 positions on a large field lose the fraction.
            position = points[:, axis].double()
            inside = position.clamp(0, size - 1)
            start = inside.detach().floor()
            beyond = position - inside
            fade = (1 - beyond.abs()).clamp_min(0) if self.fill == "zeros" else torch.ones_like(beyond)
            value = slope = spline_weights(inside - start, order)
            if gradient:
                slope = _slopes(inside - start, order) * (fade * (beyond == 0))[:, None]
                if self.fill == "zeros":
                    slope = slope - value * (beyond.sign() * (fade > 0))[:, None]
            value, slope = (value * fade[:, None]).to(one), slope.to(one)
            first = first * (size + order) + start.long()
            steps = (steps[:, None] * (size + order) + torch.arange(order + 1, device=points.device)).flatten()
            along = [slope if number == axis + 1 else value for number in range(len(weights))]
            weights = [(w[..., None] * a[:, None]).flatten(1) for w, a in zip(weights, along, strict=True)]
        return (base + first)[:, None] + steps, weights


def _parts(rows: int, count: int, fields: int) -> list[slice]:
    """Rows, whole sets of `count` points, in parts that fit the cache."""
    step = max(count, 1) * max(1, min(_ROWS, _ENTRIES // max(fields, 1)) // max(count, 1))
    return [slice(low, min(low + step, rows)) for low in range(0, rows, step)]


def _weighted_sum(table: Tensor, index: Tensor, weight: Tensor) -> Tensor:
    """Sums over taps, `(rows, fields)`, of a table `(S, fields)` with indices and weights `(rows, taps)`."""
    if table.shape[1] <= _FEW:
        return torch.einsum("rtf,rt->rf", table[index], weight)
    if not _traced():
        return embedding_bag(index, table, per_sample_weights=weight, mode="sum")
    out = torch.zeros_like(table[:1])
    for i, w in zip(index.unbind(1), weight.unbind(1), strict=True):
        out = out + table[i] * w[:, None]
    return out


def _traced() -> bool:
    """Whether a function transform (jvp, vmap) is under way, which the fast kernel does not know."""
    return torch._C._functorch.maybe_current_level() is not None or torch.autograd.forward_ad._current_level >= 0


def _is_plain(*tensors: Tensor) -> bool:
    """Whether no derivative is asked for, and numbers are in main memory."""
    recorded = torch.is_grad_enabled() and any(z.requires_grad for z in tensors)
    return not recorded and not _traced() and tensors[0].device.type == "cpu"
