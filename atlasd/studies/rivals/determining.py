r"""Fields that take the paths of a stochastic equation to paths of the same law: the determining equations.

With drift f and diffusion D = sigma sigma^T, the field :math:`\tau(t) \partial_t + \xi(t, x) \partial_x` does so if

.. math::
    \partial_t \xi^i + f^j \partial_j \xi^i - \xi^j \partial_j f^i - \partial_t (\tau f^i) + D^{jk} \partial_j \partial_k \xi^i / 2 &= 0, \\
    D^{ik} \partial_k \xi^j + D^{jk} \partial_k \xi^i - \xi^k \partial_k D^{ij} - \partial_t (\tau D^{ij}) &= 0.

Fields whose components are linear in the state, with coefficients that are polynomials of time, are looked at: second
derivatives vanish.

References:
    Gaeta and Rodriguez Quintero, Lie-point symmetries and stochastic differential equations (1999).
"""  # noqa: E501

from __future__ import annotations

__all__ = ["Determining", "Library"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.studies.rivals.diffusion_law import Law
from atlasd.studies.rivals.null_space import Spectrum, solve_spectrum

_QUIET = 1e-3
"""Share of the square of its change below which a component has no noise of its own."""


@dataclass(frozen=True)
class Library:
    """Fields: powers of time for tau, and powers of time times 1 or a component for each component of xi.

    Arguments:
        size: Number n of components of the state.
        degree: Highest power of time.
    """

    size: int
    degree: int = 7

    def fields(self, points: Tensor) -> Tensor:
        """Values `(P, 1 + n, C)` at standard times and states `(P, 1 + n)`."""
        return self._columns(points, self._powers(points[:, 0]))

    def in_time(self, points: Tensor) -> Tensor:
        """Derivatives by time, `(P, 1 + n, C)`."""
        t = points[:, 0]
        slopes = torch.stack([k * t ** max(k - 1, 0) for k in range(self.degree + 1)], dim=-1)
        return self._columns(points, slopes)

    def in_state(self, points: Tensor) -> Tensor:
        """Derivatives of the components of xi by those of the state, `(P, n, n, C)`."""
        n, powers = self.size, self._powers(points[:, 0])
        axes = torch.cat([torch.zeros_like(points[:1]), torch.eye(n, 1 + n, dtype=points.dtype).roll(1, 1)])
        at = [self._columns(axis.expand_as(points), powers)[:, 1:] for axis in axes]
        return torch.stack([slope - at[0] for slope in at[1:]], dim=2)

    def _powers(self, t: Tensor) -> Tensor:
        return torch.stack([t**k for k in range(self.degree + 1)], dim=-1)

    def _columns(self, points: Tensor, powers: Tensor) -> Tensor:
        n, size = self.size, powers.shape[1]
        linear = torch.cat([torch.ones_like(points[:, :1]), points[:, 1:]], dim=1)
        inner = torch.einsum("pa,pb->pab", linear, powers).flatten(1)  # (P, (1 + n) size)
        out = points.new_zeros(len(points), 1 + n, size + n * inner.shape[1])
        out[:, 0, :size] = powers
        for i in range(n):
            start = size + i * inner.shape[1]
            out[:, 1 + i, start : start + inner.shape[1]] = inner
        return out


class Determining:
    """The equations of a law at some points, in units in which a change over a spread is of size 1.

    Arguments:
        law: Drift and diffusion.
        points: Standard times and states, `(P, 1 + n)`.
        library: The fields.
    """

    def __init__(self, law: Law, points: Tensor, library: Library) -> None:
        self.law, self.points, self.library = law, points, library
        n = library.size
        self._values, self._slopes = law.monomials(points), law.monomials.gradients(points)
        known = self._values @ law.coefficients
        place = torch.zeros(n, n, dtype=torch.long)
        i, j = self._pairs = torch.triu_indices(n, n)
        place[i, j] = place[j, i] = n + torch.arange(len(i))
        self._place = place
        # Drifts in units of how fast each component changes, by drift and by diffusion; diffusions in their own.
        noise = known[:, place.diagonal()].mean(0).clamp_min(0.0)
        rate = (known[:, :n].square().mean(0) + noise).clamp_min(1e-12 * float(known.square().max()))
        noise = torch.where(noise > _QUIET * rate, noise, rate)
        self._size = torch.cat([rate.sqrt(), (noise[i] * noise[j]).sqrt()])  # (Q,)

    def terms(self, coefficients: Tensor, mix: Tensor | None = None) -> list[Tensor]:
        """What is added in the equations, each `(A, P, Q, C)`.

        Arguments:
            coefficients: Those of one law or of several, `(A, F, O)`.
            mix: Combinations of the library, `(C, L)`; all of it by default.
        """
        n, (i, j) = self.library.size, self._pairs
        field, in_time, in_state = (
            part if mix is None else part @ mix.mT
            for part in (f(self.points) for f in (self.library.fields, self.library.in_time, self.library.in_state))
        )
        tau, xi, dtau, dxi = field[:, :1], field[:, 1:], in_time[:, :1], in_time[:, 1:]
        value = torch.einsum("pf,afo->apo", self._values, coefficients)
        slope = torch.einsum("pfd,afo->apod", self._slopes, coefficients)
        f, d = value[..., :n], value[..., self._place]  # (A, P, n), (A, P, n, n)
        spread = torch.einsum("apik,pjkc->apijc", d, in_state)
        still = torch.zeros_like(spread[..., i, j, :])
        moved = torch.einsum("apj,pijc->apic", f, in_state)
        parts = [
            torch.cat([dxi.expand(len(value), -1, -1, -1), still], dim=2),
            torch.cat([moved, (spread + spread.transpose(2, 3))[..., i, j, :]], dim=2),
            -torch.einsum("apoj,pjc->apoc", slope[..., 1:], xi),
            -value[..., None] * dtau,
            -slope[..., :1] * tau,
        ]
        return [part / self._size[:, None] for part in parts]

    def spectrum(self) -> Spectrum:
        """Directions of the library, the least broken first, in units of what could break."""
        parts = [part[0].flatten(0, 1) for part in self.terms(self.law.coefficients[None])]  # (P Q, C)
        field = self.library.fields(self.points)
        field = field.expand(len(self._size), *field.shape).flatten(0, 2)
        return solve_spectrum(sum(parts[1:], parts[0]), torch.cat([*parts, field]))

    def size(self, direction: Tensor) -> float:
        """What could break along one direction `(L,)`, squared."""
        parts = [part[0].flatten() for part in self.terms(self.law.coefficients[None], direction[None])]
        field = (self.library.fields(self.points) @ direction).square().sum() * len(self._size)
        return float(field + sum(part.square().sum() for part in parts))

    def linear(self, directions: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals of directions `(k, L)`, `(P Q k,)`, and their derivatives by the coefficients, `(P Q k, F O)`."""
        theta = self.law.coefficients
        units = torch.eye(theta.numel(), dtype=theta.dtype).reshape(-1, *theta.shape)
        batch = torch.cat([theta[None], torch.zeros_like(theta)[None], units])
        rows = sum(part.flatten(1) for part in self.terms(batch, directions))
        assert isinstance(rows, Tensor)
        return rows[0], (rows[2:] - rows[1]).mT
