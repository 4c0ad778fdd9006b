"""Rules that say how many of the smallest singular values belong to symmetries: a fixed threshold and a rank test."""

from __future__ import annotations

__all__ = ["FixedThreshold", "RankTest", "Rule", "Spectrum", "solve_spectrum"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

_ZERO = 1e-9
"""Share of the largest below which a field of the library vanishes on the data: rounding."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """How much each direction of a library breaks, as a share of a size.

    Arguments:
        values: Residual along each direction over its size, ascending, `(r,)`.
        directions: Coefficients of the directions, `(r, m)`.
    """

    values: Tensor
    directions: Tensor


def solve_spectrum(rows: Tensor, fields: Tensor) -> Spectrum:
    """Singular values of a residual that is linear in coefficients of a library, among directions of size 1.

    Arguments:
        rows: Residual of every coefficient, `(R, m)`.
        fields: What sizes are the norm of, `(F, m)`; combinations that vanish are left out.

    Example:
        >>> found = solve_spectrum(torch.tensor([[1.0, -1.0]]).double(), torch.eye(2).double())
        >>> found.values.round(decimals=6).tolist(), (found.directions[0] / found.directions[0, 0]).tolist()
        ([0.0, 1.414214], [1.0, 1.0])
    """
    _, sizes, frame = torch.linalg.svd(fields, full_matrices=False)
    kept = sizes > _ZERO * sizes.max()
    white = frame[kept].mT / sizes[kept]
    _, values, right = torch.linalg.svd(rows @ white, full_matrices=True)
    values = torch.cat([values, values.new_zeros(len(right) - len(values))])
    return Spectrum(values.flip(0), (white @ right.mT).mT.flip(0))


class Rule(Protocol):
    """Decides the dimension of a null space."""

    def count(self, spectrum: Spectrum, p_value: Callable[[int], float]) -> int:
        """Number of directions that are claimed.

        Arguments:
            spectrum: Values and directions, ascending.
            p_value: For a number k, the probability of residuals as large as those of the first k directions, were
                these symmetries.
        """


@dataclass(frozen=True)
class FixedThreshold:
    """Values up to a threshold count as zero.

    Arguments:
        limit: The threshold, a share of what could break.
    """

    limit: float = 0.05

    def count(self, spectrum: Spectrum, p_value: Callable[[int], float]) -> int:
        """Number of small values."""
        return int((spectrum.values <= self.limit).sum())


@dataclass(frozen=True)
class RankTest:
    """Directions count as symmetries, the best first, until a test rejects the rest: what is not excluded is claimed.

    Arguments:
        level: Level of each test.
    """

    level: float = 0.05

    def count(self, spectrum: Spectrum, p_value: Callable[[int], float]) -> int:
        """Number of directions before the first that is rejected."""
        most = len(spectrum.values)
        return next((k for k in range(most) if p_value(k + 1) < self.level), most)
