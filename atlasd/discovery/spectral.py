"""The default search: first order in closed form; on fields then finite size."""

from __future__ import annotations

__all__ = ["SpectralSearch", "solve"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.discovery.descent import FieldSearch
from atlasd.discovery.problem import Problem
from atlasd.discovery.residual import Residual
from atlasd.discovery.search import Found
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress

_BLIND = 1e-9
"""Null level, relative to the largest, below which nothing feels a direction: rounding."""


@dataclass(frozen=True, kw_only=True)
class SpectralSearch:
    """Generators from a generalised eigenproblem; on fields they are refined at finite size.

    Arguments:
        generators: The number of generators, or `None` to find it.
        samples: Samples at finite size on fields.
        slopes: The most samples at first order.
        starts: Random starts at finite size.
        derivatives: Whether the map's derivatives mean something; `False` starts from random directions alone, for
            networks that were fitted to classes.
    """

    generators: int | None = None
    samples: int = 40
    slopes: int = 4096
    starts: int = 16
    derivatives: bool = True

    def __post_init__(self) -> None:
        if self.generators is not None and self.generators < 0:
            raise InputError(f"`generators` must not be negative, got {self.generators}.")

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """Proposes generators, the most promising first."""
        n = problem.size
        if problem.is_field:
            index = problem.pick(max(self.samples, 96))
            first = Residual(problem, index[:48]).slopes() if self.derivatives else None
            return FieldSearch(problem, index, self.samples, self.starts, seed, progress).find(first, self.generators)
        residual, null = (m[0] for m in Residual(problem, problem.pick(self.slopes)).slopes())
        values, directions, blind = solve(residual, null)
        basis = directions.reshape(-1, n, n)
        basis = basis if self.generators is None else basis[: self.generators]
        return Found(basis, tuple(values.tolist()), unfelt=len(blind), fixed=self.generators is not None)


def solve(residual: Tensor, null: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The generalised eigenproblem `G v = lambda D v` on the directions that can be felt.

    Arguments:
        residual: G, with shape `(m, m)`.
        null: D, with shape `(m, m)`.

    Returns:
        Eigenvalues ascending `(r,)`, directions `(r, m)` of unit Frobenius norm, and the directions that nothing
        feels `(m - r, m)`.
    """
    size, frame = torch.linalg.eigh((null + null.mT) / 2)
    keep = size > _BLIND * size.max().clamp_min(1e-300)
    white = frame[:, keep] / size[keep].sqrt()
    values, vectors = torch.linalg.eigh(white.mT @ ((residual + residual.mT) / 2) @ white)
    directions = (white @ vectors).mT
    directions = directions / directions.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    return values.clamp_min(0.0), directions, frame[:, ~keep].mT
