"""Rules that say how many of the smallest singular values belong to symmetries: a fixed threshold and a rank test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

_ZERO = 1e-9
"""Share of the largest below which a field of the library vanishes on the data: rounding."""
_ROUNDED = 1e-12
"""Share of all residuals below which one is rounding."""
_REACHED = 1e-3
"""Share of the largest deviation below which noise does not reach a residual."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """How much each direction of a library breaks, as a share of a size.

    Arguments:
        values: Residual along each direction over its size, ascending, `(r,)`.
        directions: Coefficients of the directions, `(r, *)`.
        rows: How many equations there were, where that was counted.
    """

    values: Tensor
    directions: Tensor
    rows: int = 0


def solve_spectrum(rows: Tensor, fields: Tensor) -> Spectrum:
    """Singular values of a residual that is linear in coefficients of a library, among directions of size 1.

    Arguments:
        rows: Residual of every coefficient, `(R, m)`.
        fields: What sizes are the norm of, `(F, m)`; combinations that vanish are left out.

    Example:
        >>> found = solve_spectrum(torch.tensor([[1.0, -1.0]]).double(), torch.eye(2).double())
        >>> ratio = found.directions[0] / found.directions[0, 0]
        >>> found.values.round(decimals=6).tolist(), ratio.round(decimals=6).tolist()
        ([0.0, 1.414214], [1.0, 1.0])
    """
    _, sizes, frame = torch.linalg.svd(fields, full_matrices=False)
    kept = sizes > _ZERO * sizes.max()
    white = frame[kept].mT / sizes[kept]
    _, values, right = torch.linalg.svd(rows @ white, full_matrices=True)
    values = torch.cat([values, values.new_zeros(len(right) - len(values))])
    return Spectrum(values.flip(0), (white @ right.mT).mT.flip(0))


def wald_p_value(residuals: Tensor, slopes: Tensor, others: Tensor, root: Tensor) -> float:
    """Wald's test that the residuals of some directions vanish but for the noise of what was learned.

    As in tests of the rank of an estimated matrix, what the other directions explain of the residuals is projected out.

    Arguments:
        residuals: Of the directions that are tested, `(R, k)`.
        slopes: Their derivatives by the coefficients that were learned, `(R, k, P)`.
        others: Residuals of the other directions, `(R, j)`.
        root: A root of the covariance of the coefficients, `(P, P)`.
    """
    frame = torch.linalg.qr(others).Q

    def left(part: Tensor) -> Tensor:
        return (part - torch.einsum("ri,si,s...->r...", frame, frame, part)).flatten(0, 1)

    basis, sizes, _ = torch.linalg.svd(left(slopes) @ root, full_matrices=False)
    kept, rest = sizes > _REACHED * sizes.max(), left(residuals)
    if float(rest.norm()) <= _ROUNDED * float(torch.cat([residuals, others], dim=1).norm()):
        return 1.0
    share = (basis[:, kept].mT @ rest) / sizes[kept]
    return float(torch.special.gammaincc(kept.sum() / 2, share.square().sum() / 2))


Rule: TypeAlias = Callable[[Spectrum, Callable[[int], float]], int]
"""Decides the dimension of a null space: from a spectrum and a function that gives, for a number k, the probability of
residuals as large as those of the first k directions, were these symmetries."""


def fixed_threshold(spectrum: Spectrum, p_value: Callable[[int], float], limit: float = 0.05) -> int:
    """Values up to a share of what could break count as zero."""
    return int((spectrum.values <= limit).sum())


def rank_test(spectrum: Spectrum, p_value: Callable[[int], float], level: float = 0.05) -> int:
    """Directions count as symmetries, the best first, until a test rejects the rest."""
    most = len(spectrum.values)
    return next((k for k in range(most) if p_value(k + 1) < level), most)
