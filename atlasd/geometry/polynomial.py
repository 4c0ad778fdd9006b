"""Transformations along vector fields whose components are polynomials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.actions import VectorAction
from atlasd.geometry.monomials import LEAST, Monomials, variables, write_sum

_STEPS = 16
"""Steps of the integration for a field that displaces by about the spread of the data."""


@dataclass(frozen=True)
class PolynomialAction(VectorAction):
    r"""Transforms vectors along the flow of :math:`\dot p_i = \sum_j a_{ij} m_j(p)`, with monomials m up to a degree.

    A generator is a square matrix with one column for each monomial, by degree, the constant first; its first n rows
    are the components of the field, and the others are zero. An element is the generator whose flow leads to it in unit
    time: there is no product of elements, and no group beyond the flows. Outputs are invariant, or velocities.

    Arguments:
        degree: Highest degree of the monomials.
        velocities: Whether outputs are velocities of the inputs: they transform by the derivative of the map, which
            differs from place to place.

    Example:
        >>> rotation = torch.zeros(3, 3)
        >>> rotation[0, 2], rotation[1, 1] = -torch.pi / 2, torch.pi / 2
        >>> PolynomialAction(degree=1).on_input(rotation, torch.tensor([[1.0, 0.0]])).round(decimals=3)
        tensor([[0., 1.]])
    """

    degree: int = 2
    velocities: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            raise InputError(f"`degree` must be a positive integer, got {self.degree!r}; 2 is a good start.")
        if self.rho_out is not None:
            raise InputError("`rho_out` must be left out for a PolynomialAction: outputs are invariant.")

    def matrix_size(self, n: int) -> int:
        """Number of monomials of n components."""
        return len(Monomials(n, self.degree))

    def columns(self, x: Tensor) -> Tensor:
        """Values of the monomials at vectors `(*, n)`, with shape `(*, m)`."""
        return Monomials(x.shape[-1], self.degree)(x)

    def exponential(self, a: Tensor) -> Tensor:
        """Elements of generators `(*, m, m)`: the same, flown along for unit time."""
        return a

    def on_input(self, g: Tensor, x: Tensor) -> Tensor:
        """Transforms vectors `(*L, n)` or tokens `(*L, P, n)` by `(m, m)` or `(*L, m, m)`; NaN far beyond the data."""
        x = integrate(lambda z: self.input_generator(g, z), x)
        return torch.where(x.abs() < 1e6, x, torch.nan)

    def bring_back(self, g: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Outputs `(*L, n)` that belong to transformed vectors, as they are at the vectors `(*L, n)` themselves."""
        if not self.velocities:
            return y
        n = x.shape[-1]

        def along(z: Tensor) -> Tensor:
            frame = self._slopes(g, z[..., 0]) @ z[..., 1:]
            return torch.cat([self.input_generator(g, z[..., 0]).unsqueeze(-1), frame], dim=-1)

        start = torch.cat([x.unsqueeze(-1), torch.eye(n, dtype=x.dtype).expand(*x.shape, n)], dim=-1)
        frame = integrate(along, start)[..., 1:]
        lost = ~(frame.abs() < 1e6).all(-1, keepdim=True).all(-2, keepdim=True)
        frame = torch.where(lost, torch.eye(n, dtype=x.dtype), frame)
        back = torch.linalg.solve_ex(frame, y.unsqueeze(-1)).result.squeeze(-1)
        return torch.where(lost[..., 0], torch.nan, back)

    def output_change(self, a: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """First-order change of outputs `(*L, c)` of vectors `(*L, n)`."""
        return (self._slopes(a, x) @ y.unsqueeze(-1)).squeeze(-1) if self.velocities else torch.zeros_like(y)

    def _slopes(self, a: Tensor, x: Tensor) -> Tensor:
        """Derivatives `(*L, n, n)` of the field at vectors."""
        n = x.shape[-1]
        return a[..., :n, :].to(x.dtype) @ Monomials(n, self.degree).gradients(x)

    def input_generator(self, a: Tensor, x: Tensor) -> Tensor:
        """The field at vectors."""
        n = x.shape[-1]
        rows = a[..., :n, :].to(x.dtype)
        missing = x.ndim - 1 - (rows.ndim - 2) if a.ndim > 2 else 0
        rows = rows.reshape(*rows.shape[:-2], *[1] * missing, *rows.shape[-2:])
        return (rows @ self.columns(x).unsqueeze(-1)).squeeze(-1)


def integrate(speed: Callable[[Tensor], Tensor], x: Tensor, time: float = 1.0, steps: int = _STEPS) -> Tensor:
    """Where a flow leads from points `(*, n)` in some time, by the method of Runge and Kutta."""
    h = time / steps
    for _ in range(steps):
        k1 = speed(x)
        k2 = speed(x + h / 2 * k1)
        k3 = speed(x + h / 2 * k2)
        k4 = speed(x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


def change_coordinates(fields: Tensor, linear: Tensor, shift: Tensor, degree: int) -> Tensor:
    r"""Fields `(k, n, m)` of coordinates u = `linear` x + `shift` as fields of x, with shape `(k, n, m)`."""
    n = len(linear)
    monomials = Monomials(n, degree)
    points = torch.randn(4 * len(monomials), n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # Where the field has its values of the order of its coefficients: about the origin of u.
    x = torch.linalg.solve(linear, (points - shift).mT).mT
    # Monomials of x - c are nearly independent; those of x itself may not be.
    values = torch.einsum("kij,bj->bki", fields.double(), monomials(points))
    values = torch.linalg.solve(linear, values.flatten(0, 1).mT).mT.unflatten(0, values.shape[:2])
    size = monomials(x).abs().amax(0)
    found = torch.linalg.lstsq(monomials(x) / size, values.flatten(1)).solution / size[:, None]
    return found.mT.unflatten(0, (len(fields), n))


def write_field(
    field: Tensor,
    degree: int,
    letters: Sequence[str] | None = None,
    sizes: Tensor | None = None,
    least: float = LEAST,
) -> str:
    r"""A field `(n, m)` as a scientist writes it.

    Arguments:
        field: Coefficients of the monomials in every component.
        sizes: How large each term is with coefficient 1, `(n, m)`: small terms are left out.
        least: Share of the largest term below which one is small.

    Example:
        >>> field = torch.zeros(2, 6)
        >>> field[0, 2], field[1, 3] = 2.0, 3.0
        >>> write_field(field, degree=2)
        '2 y d/dx + 3 x^2 d/dy'
    """
    n = len(field)
    letters = letters or variables(n)
    names = Monomials(n, degree).names(letters)
    felt = field.abs() if sizes is None else field.abs() * sizes
    parts = []
    for kept, letter in zip(
        torch.where(felt >= max(least, LEAST) * felt.max(), field, 0.0).tolist(), letters, strict=True
    ):
        if any(kept):
            text = write_sum(kept, names, least=0.0)
            text = f"({text})" if sum(map(bool, kept)) > 1 else {"1": "", "-1": "-"}.get(text, text)
            parts.append(f"{text} d/d{letter}".strip().replace("- d", "-d"))
    return " + ".join(parts).replace("+ -", "- ") or "0"
