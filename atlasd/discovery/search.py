"""What every search for generators promises."""

from __future__ import annotations

__all__ = ["Found", "Search"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from atlasd.discovery.problem import Problem
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress


@storable()
@dataclass(frozen=True, eq=False)
class Found:
    """Generators that a search proposes; the verdict is given elsewhere, on data the search has not seen.

    Arguments:
        basis: Proposed generators, with shape `(k, n, n)`, in float64.
        spectrum: Chance-normalised errors of all directions, ascending, where the search knows them.
        curves: Training curves by name.
        chart_basis: Each chart's own generators, with shape `(K, k, n, n)`, where computed.
        notes: What the search noticed, for the verdict.
        weights: Robust weights of the charts, `(K,)`, where the search down-weighted some.
        sizes: Sizes |t| at which the verdict is to be asked; the usual ones by default.
        samples: Held-out samples of fields that the verdict is to look at; the usual number by default.
    """

    basis: Tensor
    spectrum: tuple[float, ...] = ()
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    chart_basis: Tensor | None = None
    notes: tuple[str, ...] = ()
    weights: Tensor | None = None
    not_testable: int = 0
    sizes: tuple[float, ...] | None = None
    samples: int | None = None


class Search(Protocol):
    """Finds generators of a problem's symmetry."""

    @property
    def tolerance(self) -> float:
        """The largest error that counts as a symmetry."""

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """Proposes a basis of the algebra."""
