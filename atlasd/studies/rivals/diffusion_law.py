r"""Stochastic equations: drift and diffusion learned from paths, and fields that take paths to paths of the same law.

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

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.func import jacfwd, vmap
from torch.nn import functional

from atlasd.geometry.monomials import Monomials
from atlasd.studies.rivals.null_space import Spectrum, solve_spectrum

_QUIET = 1e-3
"""Share of the square of its change below which a component has no noise of its own."""
_GROUPS = 40
"""Groups of whole paths, each left out once: how much the coefficients vary."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of a process, and the same in standard units: time from -1 to 1, states in units of their spread.

    Arguments:
        states: States at equal steps of time from 0 on, `(M, K + 1, n)`.
    """

    states: Tensor
    step: float

    @cached_property
    def length(self) -> float:
        """Time from the first state to the last."""
        return self.step * (self.states.shape[1] - 1)

    @cached_property
    def units(self) -> tuple[Tensor, Tensor]:
        """Mean and spread of the states, each `(n,)`."""
        rows = self.states.flatten(0, 1)
        return rows.mean(0), rows.std(0).clamp_min(1e-300)

    @cached_property
    def points(self) -> Tensor:
        """Standard time and state before every step, `(M, K, 1 + n)`."""
        mean, spread = self.units
        z = (self.states[:, :-1] - mean) / spread
        t = torch.linspace(-1, 1, self.states.shape[1], dtype=z.dtype)[:-1]
        return torch.cat([t[None, :, None].expand(len(z), -1, 1), z], dim=-1)

    @cached_property
    def increments(self) -> Tensor:
        """Changes of the standard state in one step, `(M, K, n)`."""
        return self.states.diff(dim=1) / self.units[1]

    @property
    def standard_step(self) -> float:
        """The step in standard time."""
        return 2 * self.step / self.length

    def half(self, which: int) -> Paths:
        """Every other path, in the units of all of them."""
        part = Paths(self.states[which::2], self.step)
        part.__dict__["units"] = self.units
        return part


@dataclass(frozen=True, eq=False)
class Law:
    """Polynomials of standard time and state: the drift, and then the entries of the diffusion matrix.

    Arguments:
        monomials: Of time and state, F of them.
        coefficients: `(F, O)`, O = n + n (n + 1) / 2.
        covariance: Of the flattened coefficients, `(F O, F O)`.
    """

    monomials: Monomials
    coefficients: Tensor
    covariance: Tensor


def fit_law(paths: Paths, degree: int, *, choose: bool = False) -> Law:
    """Regression of increments, and of products of what is left of them, on monomials of time and state.

    Arguments:
        choose: Whether each output takes the degree up to it that Schwarz's criterion chooses.
    """
    monomials = Monomials(paths.points.shape[-1], degree)
    n = paths.increments.shape[-1]
    first = _Sums(paths, monomials)
    theta = first.solve(first.degrees(monomials) if choose else None)
    both = _Sums(paths, monomials, theta[:, :n])
    degrees = both.degrees(monomials) if choose else None
    return Law(monomials, both.solve(degrees), both.covariance(degrees))


class _Sums:
    """Normal equations of groups of paths, for rates of change and, given the drift, for products of what is left.

    Arguments:
        drift: Its coefficients, `(F, n)`.
    """

    def __init__(self, paths: Paths, monomials: Monomials, drift: Tensor | None = None) -> None:
        ds, n = paths.standard_step, paths.increments.shape[-1]
        i, j = torch.triu_indices(n, n)
        grams, rights, squares = [], [], []
        for points, moves in zip(paths.points.chunk(_GROUPS), paths.increments.chunk(_GROUPS), strict=True):
            features, targets = monomials(points.flatten(0, 1)), moves.flatten(0, 1) / ds
            if drift is not None:
                left = targets - features @ drift
                targets = torch.cat([targets, ds * left[:, i] * left[:, j]], dim=1)
            grams.append(features.mT @ features)
            rights.append(features.mT @ targets)
            squares.append(targets.square().sum(0))
        self.gram, self.right, self.square = torch.stack(grams), torch.stack(rights), torch.stack(squares).sum(0)
        self.count = paths.points[..., 0].numel()

    def degrees(self, monomials: Monomials) -> list[int]:
        """Number of the first monomials that each output takes, by Schwarz's criterion."""
        gram, right = self.gram.sum(0), self.right.sum(0)
        sizes = [len(Monomials(monomials.size, d)) for d in range(monomials.degree + 1)]
        scores = []
        for size in sizes:
            part = right[:size]
            rest = self.square - (part * torch.linalg.lstsq(gram[:size, :size], part).solution).sum(0)
            scores.append(self.count * rest.clamp_min(1e-300).log() + size * math.log(self.count))
        return [sizes[k] for k in torch.stack(scores).argmin(0).tolist()]

    def solve(self, degrees: list[int] | None, without: int | None = None) -> Tensor:
        """Coefficients `(F, O)`, of all groups or without one of them."""
        gram, right = self.gram.sum(0), self.right.sum(0)
        if without is not None:
            gram, right = gram - self.gram[without], right - self.right[without]
        if degrees is None:
            return torch.linalg.lstsq(gram, right).solution
        theta = torch.zeros_like(right)
        for output, size in enumerate(degrees):
            part = right[:size, output : output + 1]
            theta[:size, output : output + 1] = torch.linalg.lstsq(gram[:size, :size], part).solution
        return theta

    def covariance(self, degrees: list[int] | None) -> Tensor:
        """Of the flattened coefficients, by leaving out one group after the other."""
        groups = len(self.gram)
        each = torch.stack([self.solve(degrees, without=g).flatten() for g in range(groups)])
        each = each - each.mean(0)
        return (groups - 1) / groups * each.mT @ each


@dataclass(frozen=True)
class Library:
    """Fields: powers of time for tau, and powers of time times 1 or a component for each component of xi.

    Arguments:
        size: Number n of components of the state.
    """

    size: int
    degree: int = 7

    def fields(self, points: Tensor) -> Tensor:
        """Values `(P, 1 + n, C)` at standard times and states `(P, 1 + n)`."""
        powers = points[:, :1] ** torch.arange(self.degree + 1)
        linear = torch.cat([torch.ones_like(points[:, :1]), points[:, 1:]], dim=1)
        inner = torch.einsum("pa,pb->pab", linear, powers).flatten(1)  # (P, (1 + n) T)
        along = torch.einsum("ij,pc->pijc", torch.eye(self.size, dtype=points.dtype), inner).flatten(2)
        tau = functional.pad(powers[:, None], (0, along.shape[2]))
        return torch.cat([tau, functional.pad(along, (powers.shape[1], 0))], dim=1)

    def slopes(self, points: Tensor) -> Tensor:
        """Derivatives of the values by time and state, `(P, 1 + n, 1 + n, C)`."""
        by_point = vmap(jacfwd(lambda point: self.fields(point[None])[0]))(points)  # (P, 1 + n, C, 1 + n)
        return by_point.movedim(3, 2)


class Determining:
    """The equations of a law at some points, in units in which a change over a spread is of size 1.

    Arguments:
        law: Drift and diffusion.
        points: Standard times and states, `(P, 1 + n)`.
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
        field, slopes = (
            part if mix is None else part @ mix.mT
            for part in (self.library.fields(self.points), self.library.slopes(self.points))
        )
        tau, xi, dtau, dxi, in_state = field[:, :1], field[:, 1:], slopes[:, :1, 0], slopes[:, 1:, 0], slopes[:, 1:, 1:]
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
