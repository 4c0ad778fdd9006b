r"""Drift and diffusion of a stochastic differential equation, learned from its paths in closed form."""

from __future__ import annotations

__all__ = ["Law", "Paths", "fit_law"]

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from atlasd.geometry.monomials import Monomials

_GROUPS = 40
"""Groups of whole paths, each left out once: how much the coefficients vary."""


@dataclass(frozen=True, eq=False)
class Paths:
    """Paths of a process, and the same in standard units: time from -1 to 1, states in units of their spread.

    Arguments:
        states: States at equal steps of time from 0 on, `(M, K + 1, n)`.
        step: The step.
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
        paths: The paths.
        degree: Highest degree of the monomials.
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
        paths: The paths.
        monomials: What is regressed on.
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
