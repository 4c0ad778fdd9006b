"""How matrices, and translations beside them, transform inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from torch import Tensor

from atlasd.geometry.resample import FieldSpan, Interpolation, as_spline, pixel_grid, span_of
from atlasd.geometry.splines import FieldSpline, Fill, pixel_slopes

Representation: TypeAlias = Callable[[Tensor], Tensor]
"""A matrix function rho: `(*, n, n)` to `(*, c, c)`, with rho(gh) = rho(g) rho(h)."""


@runtime_checkable
class Action(Protocol):
    """How group elements and generators transform inputs and outputs.

    Leading axes of `g` line up with the leading axes of the data; a single matrix acts on all.
    """

    def on_input(self, g: Tensor, x: Tensor) -> Tensor:
        """Transforms inputs by `g`."""

    def on_output(self, g: Tensor, y: Tensor) -> Tensor:
        """Transforms outputs by `g`."""

    def input_generator(self, a: Tensor, x: Tensor) -> Tensor:
        """Derivative of `on_input(exp(t a), x)` at t = 0."""

    def output_generator(self, a: Tensor, y: Tensor) -> Tensor:
        """Derivative of `on_output(exp(t a), y)` at t = 0."""


def derivative(rho: Representation, a: Tensor) -> Tensor:
    """The representation of the algebra that belongs to `rho`, at `a` with shape `(*, n, n)`."""
    with torch.enable_grad():
        eye = torch.eye(a.shape[-1], dtype=a.dtype).expand_as(a).clone().requires_grad_()
        out = rho(eye)
        if not out.requires_grad:
            return torch.zeros_like(out)
        # Backward twice, from sums: forward mode and given gradients import seconds of a compiler.
        weights = torch.zeros_like(out, requires_grad=True)
        (pulled,) = torch.autograd.grad((out * weights).sum(), eye, create_graph=True)
        (pushed,) = torch.autograd.grad((pulled * a).sum(), weights, create_graph=a.requires_grad)
    return pushed


def _on_axis(matrix: Tensor, x: Tensor, axis: int) -> Tensor:
    """Applies matrices `(*L, c, c)` to axis `axis` (negative) of `x`, whose leading axes start with `L`."""
    moved = x.movedim(axis, -1)
    missing = moved.ndim - 1 - (matrix.ndim - 2)
    lead = matrix.reshape(*matrix.shape[:-2], *([1] * (missing if matrix.ndim > 2 else 0)), *matrix.shape[-2:])
    return (lead.to(x.dtype) @ moved.unsqueeze(-1)).squeeze(-1).movedim(-1, axis)


@dataclass(frozen=True)
class GridAction:
    r"""Transforms fields on a grid about the exact centre of the array.

    :math:`(g \cdot E)(p) = \rho(g) E(g^{-1} p)`, with p the offset from the centre in the order of the axes.

    Leading axes of `g` broadcast against those of the fields: `(M, 1, 1, n, n)` moves `(B, K, C, *S)` to
    `(M, B, K, C, *S)`. Where the same fields are transformed many times, pass `action.spline(x)` to `input_at`: it
    computes its coefficients once.

    Arguments:
        dimensions: The number of spatial axes, 2 or 3.
        interpolation: `spline` (B-splines of order 5) or `bilinear`.
        fill: `border` or `zeros` where the field is not known.
        rho_in: Representation on input channels; `None` is trivial.
        rho_out: Representation on output channels; `None` is trivial.
        translations: Whether fields are shifted as well: is the law the same a few pixels away? Elements and generators
            are then homogeneous matrices of size n + 1, as for `AffineAction`; representations are those of the linear
            part. Predictors may then depend on the place inside a chart.
        unit: Length in pixels of a translation by 1.

    Example:
        >>> rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> x = torch.arange(9.0).reshape(1, 1, 3, 3)
        >>> GridAction().on_input(rotation, x).int().tolist()
        [[[[2, 5, 8], [1, 4, 7], [0, 3, 6]]]]
    """

    dimensions: int = 2
    interpolation: Interpolation = "spline"
    fill: Fill = "border"
    rho_in: Representation | None = None
    rho_out: Representation | None = None
    translations: bool = False
    unit: float = 1.0

    @property
    def homogeneous(self) -> bool:
        """Whether matrices have one row and column more than there are spatial axes."""
        return self.translations

    def matrix_size(self, n: int) -> int:
        """Size of the matrices for n spatial axes."""
        return n + int(self.translations)

    def linear(self, g: Tensor) -> Tensor:
        """The linear part `(*, n, n)` of elements or generators."""
        return g[..., :-1, :-1] if self.translations else g

    def shift(self, g: Tensor) -> Tensor | float:
        """The translation of elements or generators in pixels, `(*, 1, n)`, ready to be added to points `(P, n)`."""
        return self.unit * g[..., None, :-1, -1] if self.translations else 0.0

    def sources(self, g: Tensor, points: Tensor) -> Tensor:
        """Offsets from the centre that elements `(*A, n, n)` bring to offsets `(P, n)`, with shape `(*A, P, n)`."""
        back = torch.linalg.inv(g.double())
        return points.double() @ self.linear(back).mT + self.shift(back)

    def spline(self, x: Tensor) -> FieldSpline:
        """Fields `(*L, C, *S)` with their coefficients, to be transformed many times."""
        return as_spline(x, self.dimensions, interpolation=self.interpolation, fill=self.fill)

    def span(self, x: Tensor) -> FieldSpan | FieldSpline:
        """The same as mixtures of a few fields, where that takes much fewer."""
        return span_of(self.spline(x))

    def on_input(self, g: Tensor, x: Tensor) -> Tensor:
        """Transforms fields `(*L, C, *S)` by `(*A, n, n)`, to `(*broadcast(A, L), C, *S)`."""
        return self._move(g, x, self.rho_in)

    def on_output(self, g: Tensor, y: Tensor) -> Tensor:
        """Transforms fields `(*L, C, *S)` by `(*A, n, n)`, to `(*broadcast(A, L), C, *S)`."""
        return self._move(g, y, self.rho_out)

    def input_at(self, g: Tensor, x: Tensor | FieldSpan | FieldSpline, points: Tensor) -> Tensor:
        """Values of the transformed fields at some offsets from the centre only.

        Arguments:
            g: Elements, with shape `(*A, n, n)`.
            x: Fields, with shape `(*L, C, *S)`, or `action.spline` or `action.span` of them.
            points: Offsets p from the centre in pixels, with shape `(P, n)`; `pixel_grid(S)` for all pixels.

        Returns:
            The values, with shape `(*broadcast(A, L), C, P)`.
        """
        return self._values(g, x, points, self.rho_in)

    def output_at(self, g: Tensor, y: Tensor | FieldSpan | FieldSpline, points: Tensor) -> Tensor:
        """Values of the transformed outputs at offsets `(P, n)` from the centre, as in `input_at`."""
        return self._values(g, y, points, self.rho_out)

    def input_generator(self, a: Tensor, x: Tensor) -> Tensor:
        """First-order change of fields `(*L, C, *S)` along `(n, n)`."""
        return self._generate(a, x, self.rho_in)

    def output_generator(self, a: Tensor, y: Tensor) -> Tensor:
        """First-order change of fields `(*L, C, *S)` along `(n, n)`."""
        return self._generate(a, y, self.rho_out)

    def _move(self, g: Tensor, field: Tensor, rho: Representation | None) -> Tensor:
        shape = tuple(field.shape[-self.dimensions :])
        return self._values(g, field, pixel_grid(shape, dtype=torch.float64), rho).unflatten(-1, shape)

    def _values(
        self, g: Tensor, field: Tensor | FieldSpan | FieldSpline, points: Tensor, rho: Representation | None
    ) -> Tensor:
        spline = self.spline(field) if isinstance(field, Tensor) else field
        moved = spline.at(_snapped(self.sources(g, points) + _centre(spline.shape)))
        return moved if rho is None else _on_axis(rho(self.linear(g)), moved, -2)

    def _generate(self, a: Tensor, field: Tensor, rho: Representation | None) -> Tensor:
        d = self.dimensions
        shape = tuple(field.shape[-d:])
        a = a.to(field.dtype)
        flow = pixel_grid(shape, dtype=field.dtype) @ self.linear(a).mT + self.shift(a)  # (Q, d), the vector A p + b
        moved = torch.zeros_like(field)
        for axis in range(d):
            moved = moved - pixel_slopes(field, axis - d) * flow[:, axis].reshape(shape)
        return moved if rho is None else moved + _on_axis(derivative(rho, self.linear(a)), field, -1 - d)


def _centre(shape: tuple[int, ...]) -> Tensor:
    return torch.tensor([(s - 1) / 2 for s in shape], dtype=torch.float64)


def _snapped(sources: Tensor) -> Tensor:
    """Positions that are whole up to rounding are whole: quarter turns stay exact."""
    off = sources.detach().round() - sources.detach()
    return sources + off * (off.abs() < 1e-5)


@dataclass(frozen=True)
class VectorAction:
    r"""Transforms vectors and sets of vectors: :math:`p \mapsto g p` on every token.

    Arguments:
        rho_out: Representation on the outputs; `None` means that outputs are invariant.

    Example:
        >>> half = -torch.eye(2)
        >>> VectorAction().on_input(half, torch.tensor([[1.0, 2.0]])).tolist()
        [[-1.0, -2.0]]
    """

    rho_out: Representation | None = None
    homogeneous: ClassVar[bool] = False
    """Whether matrices have one row and column more than vectors have components."""

    def matrix_size(self, n: int) -> int:
        """Size of the matrices for vectors of n components."""
        return n

    def columns(self, x: Tensor) -> Tensor:
        """What generators multiply: the vectors `(*, n)` themselves."""
        return x

    def on_input(self, g: Tensor, x: Tensor) -> Tensor:
        """Transforms vectors `(*L, n)` or tokens `(*L, P, n)` by `(n, n)` or `(*L, n, n)`."""
        return _on_axis(g, x, -1)

    def on_output(self, g: Tensor, y: Tensor) -> Tensor:
        """Transforms outputs `(*L, c)` by rho_out."""
        return y if self.rho_out is None else _on_axis(self.rho_out(g), y, -1)

    def input_generator(self, a: Tensor, x: Tensor) -> Tensor:
        """First-order change `A p`."""
        return _on_axis(a, x, -1)

    def output_generator(self, a: Tensor, y: Tensor) -> Tensor:
        """First-order change of the outputs; zero where they are invariant."""
        if self.rho_out is None:
            return torch.zeros_like(y)
        return _on_axis(derivative(self.rho_out, a), y, -1)


def window_radius(in_radius: float, out_radius: float, reach: float) -> float:
    """Radius of the disc on which outputs count: what a rotation brings in from the corners stays outside.

    Arguments:
        in_radius: Half the width of the input patch, in pixels.
        out_radius: Half the width of the output patch.
        reach: Radius of the predictor's receptive field, to its farthest pixel.
    """
    # One more pixel for the gradient and for the interpolation stencil.
    return min(out_radius - 1.0, in_radius - reach - 1.0)


def linear_part(g: Tensor) -> Tensor:
    """The linear part `(*, n, n)` of homogeneous matrices `(*, n + 1, n + 1)`: how a velocity transforms."""
    return g[..., :-1, :-1]


def as_inputs(g: Tensor) -> Tensor:
    """The representation of outputs that transform as the inputs do: the matrix itself."""
    return g


@dataclass(frozen=True)
class AffineAction(VectorAction):
    r"""Transforms vectors, and all tokens of a set alike, by :math:`p \mapsto A p + b`.

    Elements and generators are homogeneous matrices of size n + 1: :math:`A` and :math:`b` side by side, above a last
    row (0, ..., 0, 1) for elements and 0 for generators. Data are read in units of their spread about their mean, so
    that a translation by 1 is one standard deviation. A token of zeros is a point like any other, not padding.

    Arguments:
        rho_out: Representation of homogeneous matrices on the outputs; `None` means that outputs are invariant, and
            `linear_part` that they are velocities.

    Example:
        >>> shift = torch.tensor([[1.0, 0.0, 5.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> AffineAction().on_input(shift, torch.tensor([[1.0, 2.0]])).tolist()
        [[6.0, 2.0]]
    """

    homogeneous = True

    def matrix_size(self, n: int) -> int:
        """Size of the matrices for vectors of n components."""
        return n + 1

    def columns(self, x: Tensor) -> Tensor:
        """Vectors `(*, n)` in homogeneous coordinates, `(*, n + 1)`."""
        return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)

    def on_input(self, g: Tensor, x: Tensor) -> Tensor:
        """Transforms vectors `(*L, n)` or tokens `(*L, P, n)` by `(n + 1, n + 1)` or `(*L, n + 1, n + 1)`."""
        return _on_axis(linear_part(g), x, -1) + _shift(g, x)

    def input_generator(self, a: Tensor, x: Tensor) -> Tensor:
        """First-order change `A p + b`."""
        return _on_axis(linear_part(a), x, -1) + _shift(a, x)


def _shift(g: Tensor, x: Tensor) -> Tensor:
    """The translation of every vector of `x`, ready to be added."""
    b = g[..., :-1, -1]
    missing = x.ndim - b.ndim if g.ndim > 2 else 0
    return torch.reshape(b, (*b.shape[:-1], *[1] * missing, b.shape[-1])).to(x.dtype)
