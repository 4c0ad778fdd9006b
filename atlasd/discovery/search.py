"""What every search for generators promises, and the eigenproblem at first order that several begin with."""

from __future__ import annotations

__all__ = ["Found", "Search", "solve"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

_BLIND = 1e-9
"""Null level, relative to the largest, below which nothing feels a direction: rounding."""


@storable()
@dataclass(frozen=True, eq=False)
class Found:
    """Generators that a search proposes, in standard units; the verdict is given elsewhere.

    Arguments:
        basis: Candidates, the most promising first, with shape `(k, n, n)`, in float64.
        spectrum: First-order residuals of all directions, ascending, where the search knows them.
        curves: Training curves by name.
        chart_basis: Each chart's own generators, with shape `(K, k, n, n)`, where computed.
        notes: What the search noticed.
        weights: Weights of the charts, `(K,)`, where the search left some out; 0 for those.
        unfelt: Number of directions that nothing in the data feels.
        fixed: Whether the candidates are to be taken as they are, in this number.
        felt: Orthonormal components that the map feels, `(n, m)`; `None` for all.
        function: The predictors that were trained with the generators, where the search trains its own.
    """

    basis: Tensor
    spectrum: tuple[float, ...] = ()
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    chart_basis: Tensor | None = None
    notes: tuple[str, ...] = ()
    weights: Tensor | None = None
    unfelt: int = 0
    fixed: bool = False
    felt: Tensor | None = None
    function: Callable[[Tensor], Tensor] | None = None


class Search(Protocol):
    """Finds generators of a problem's symmetry."""

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """Proposes generators."""


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
