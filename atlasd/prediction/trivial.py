"""The best trivial models: a constant, and a map that looks at one pixel only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


def centre_crop(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The middle of the last axes of `x`, with spatial shape `shape`."""
    for axis, size in enumerate(shape):
        dim = axis - len(shape)
        x = x.narrow(dim, (x.shape[dim] - size) // 2, size)
    return x


@dataclass(frozen=True, eq=False)
class Commuting:
    """Which maps of one pixel commute with every transformation where channels are components of vectors.

    Arguments:
        linear: A basis of the linear ones, `(b, C', C)`.
        fixed_in: Whether each input channel is a scalar, `(C,)`.
        fixed_out: Whether each output channel is a scalar, `(C',)`.
    """

    linear: Tensor
    fixed_in: Tensor
    fixed_out: Tensor

    def basis(self, shift: Tensor, scale: Tensor) -> Tensor:
        """Coefficients of `PointwisePart` that are allowed on every chart, `(K, b, 1 + 3 C, C')`."""
        charts, channels = shift.shape
        outputs = len(self.fixed_out)
        rows = []
        for m in self.linear:  # M x = M (scale u + shift)
            one = shift.new_zeros(charts, 1 + 3 * channels, outputs)
            one[:, 1 : 1 + channels] = scale[:, :, None] * m.mT
            one[:, 0] = shift @ m.mT
            rows.append(one)
        powers = [0, *(1 + p * channels + c for p in (1, 2) for c in range(channels) if bool(self.fixed_in[c]))]
        for o in self.fixed_out.nonzero().flatten().tolist():
            for place in powers:
                one = shift.new_zeros(charts, 1 + 3 * channels, outputs)
                one[:, place, o] = 1.0
                rows.append(one)
        empty = shift.new_zeros(charts, 0, 1 + 3 * channels, outputs)
        return torch.stack(rows, dim=1) if rows else empty


@dataclass(frozen=True, eq=False)
class LinearPart:
    """The part `M x` of a map of vectors that commutes with every matrix; of sets, that of the sum of all vectors.

    Arguments:
        matrix: M, with shape `(O, n)`.
    """

    matrix: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Values `(B, 1, O)` for vectors `(B, 1, n)` or sets `(B, 1, P, n)`."""
        return (x if x.ndim == 3 else x.sum(2)) @ self.matrix.mT.to(x.dtype)

    @classmethod
    def fit(cls, x: Tensor, y: Tensor, basis: Tensor) -> LinearPart:
        """Least squares of outputs `(B, 1, O)` over a basis `(b, O, n)` of the maps that commute."""
        rows = (x if x.ndim == 3 else x.sum(2))[:, 0].double()
        parts = torch.einsum("boi,mi->bmo", basis, rows).flatten(1).mT  # (M O, b)
        weights = torch.linalg.lstsq(parts, y[:, 0].double().flatten()[:, None]).solution[:, 0]
        return cls(torch.einsum("b,boi->oi", weights, basis))


@dataclass(frozen=True, eq=False)
class Without:
    """A map of vectors without the part that commutes with everything."""

    function: Callable[[Tensor], Tensor]
    part: LinearPart

    def __call__(self, x: Tensor) -> Tensor:
        y = self.function(x)
        return y - self.part(x).to(y.dtype)


@dataclass(frozen=True, eq=False)
class PointwisePart:
    """The part of a map that is a polynomial of the input at the same pixel.

    Such a part commutes with every transformation of the plane; what is left over is what can be tested.

    Arguments:
        coefficients: Per chart, with shape `(K, 1 + 3 C, C')`.
        shift: Mean of each input channel, `(K, C)`.
        scale: Standard deviation of each input channel, `(K, C)`.
    """

    coefficients: Tensor
    shift: Tensor
    scale: Tensor
    dimensions: int = 2

    def __call__(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Values `(B, K, C', *shape)` for inputs `(B, K, C, *in)`."""
        constant, parts = self._parts(x, shape)
        value = constant
        for v, first, second, third in parts:  # Horner's rule, without an array of features
            value = value + v * (first + v * (second + v * third))
        return value

    @property
    def linear(self) -> Tensor:
        """Weights of the pixel itself, `(K, C', C)`."""
        return (self.coefficients[:, 1 : 1 + self.scale.shape[1]] / self.scale[:, :, None]).mT

    def _parts(self, x: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, list[tuple[Tensor, ...]]]:
        """The constant, and of every channel its standardised values `(B, K, 1, *shape)` and three coefficients."""
        u = _standardised(centre_crop(x, shape), self.shift.to(x.dtype), self.scale.to(x.dtype))
        channels = u.shape[2]
        c = self._broadcast(self.coefficients, x)  # in the order of `_features`
        powers = [(u[:, :, i : i + 1], *(c[:, 1 + p * channels + i] for p in range(3))) for i in range(channels)]
        return c[:, 0], powers

    @staticmethod
    def _broadcast(values: Tensor, x: Tensor) -> Tensor:
        """Values of charts with an axis of length 1 for every axis of space of `x`."""
        return values.to(x.dtype).reshape(*values.shape, *[1] * (x.ndim - 3))

    def part(self, charts: Sequence[int]) -> PointwisePart:
        """The part of some of the charts."""
        keep = list(charts)
        return PointwisePart(self.coefficients[keep], self.shift[keep], self.scale[keep], self.dimensions)

    @classmethod
    def join(cls, parts: Sequence[PointwisePart]) -> PointwisePart:
        """Parts of blocks of charts as one."""
        return cls(
            torch.cat([part.coefficients for part in parts]),
            torch.cat([part.shift for part in parts]),
            torch.cat([part.scale for part in parts]),
            parts[0].dimensions,
        )


def _features(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """1, u, u^2, u^3 of every standardised channel: `(B, K, C, *S)` to `(B, K, 1 + 3 C, *S)`."""
    u = _standardised(x, shift, scale)
    return torch.cat([torch.ones_like(u[:, :, :1]), u, u * u, u * u * u], dim=2)


def _standardised(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    ones = [1] * (x.ndim - 3)
    return (x - shift.reshape(*shift.shape, *ones)) * (1 / scale).reshape(*scale.shape, *ones)


@dataclass(frozen=True, eq=False)
class Batches:
    """Inputs and outputs of some samples, so many at a time, as often as they are asked for."""

    read: Callable[[Tensor], tuple[Tensor, Tensor]]
    index: Tensor
    size: int

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return map(self.read, self.index.split(self.size))


def fit_pointwise(
    batches: Iterable[tuple[Tensor, Tensor]],
    weight: Tensor | None = None,
    allowed: Commuting | None = None,
) -> PointwisePart:
    """Least squares of outputs on polynomials of the input at the same pixel, in two streamed passes.

    Arguments:
        batches: Read twice: inputs `(B, K, C, *in)` and outputs `(B, K, C', *out)`.
        weight: Weights of the output pixels, with the spatial shape of the outputs.
        allowed: The maps that are allowed; by default all, as for scalars.
    """
    count, first, second = 0, torch.tensor(0.0), torch.tensor(0.0)
    for x, y in batches:
        u = centre_crop(x, tuple(y.shape[3:])).double().movedim(2, 0).flatten(3)  # (C, B, K, Q)
        count += u.shape[1] * u.shape[3]
        first, second = first + u.sum((1, 3)), second + u.square().sum((1, 3))
    shift = (first / count).mT
    scale = (second / count - (first / count).square()).clamp_min(1e-24).sqrt().mT
    gram, right = torch.tensor(0.0), torch.tensor(0.0)
    dimensions = 2
    for x, y in batches:
        dimensions = y.ndim - 3
        f = _features(centre_crop(x, tuple(y.shape[3:])).double(), shift, scale)
        w = torch.ones(y.shape[3:], dtype=torch.float64) if weight is None else weight.double()
        gram = gram + torch.einsum("bkfq,bkgq->kfg", (f * w).flatten(3), f.flatten(3))
        right = right + torch.einsum("bkfq,bkoq->kfo", (f * w).flatten(3), y.double().flatten(3))
    size = gram.shape[-1]
    ridge = 1e-10 * gram.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-30)
    gram = gram + ridge[:, None, None] * torch.eye(size, dtype=torch.float64)
    if allowed is None:
        return PointwisePart(torch.linalg.solve(gram, right), shift, scale, dimensions)
    basis = allowed.basis(shift, scale)  # (K, b, F, C')
    if not basis.shape[1]:
        return PointwisePart(torch.zeros_like(right), shift, scale, dimensions)
    normal = torch.einsum("kafo,kfg,kbgo->kab", basis, gram, basis)
    weights = torch.linalg.solve(normal, torch.einsum("kafo,kfo->ka", basis, right))
    return PointwisePart(torch.einsum("ka,kafo->kfo", weights, basis), shift, scale, dimensions)


def chart_skill(error: Tensor, constant: Tensor, pointwise: Tensor | None = None) -> Tensor:
    """Share of the best trivial model's error that is removed, per chart: 1 is perfect, 0 is none.

    Arguments:
        error: Held-out error of the predictor, `(K,)`.
        constant: Held-out error of the best constant.
        pointwise: Held-out error of the best pointwise map, where there is one.
    """
    trivial = constant if pointwise is None else torch.minimum(constant, pointwise)
    # Where a trivial model is already exact there is nothing to be skilled at.
    exact = trivial <= 1e-9 * torch.maximum(constant, torch.tensor(1e-30, dtype=constant.dtype))
    exact |= constant <= 1e-30
    return torch.where(exact, 0.0, 1 - error / trivial.clamp_min(1e-300)).clamp(-1.0, 1.0)


def pooled_skill(skills: Tensor) -> float:
    """The skill of the better half of the charts: a chart over an obstacle must not hide the others."""
    return float(skills.median()) if skills.numel() % 2 else float(skills.sort().values[skills.numel() // 2])
