r"""What can be said of an algebra without naming it: numbers that conjugation does not change."""

from __future__ import annotations

__all__ = ["describe_eigenvalues", "gather"]

from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.invariants import invariant_forms
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.structure import null_rows

_TOLERANCE = 0.1


def gather(algebra: LieAlgebra, structure: bool = True) -> dict[str, Any]:
    r"""Dimensions of the parts of `algebra`, of what it fixes and of what commutes with it.

    Arguments:
        algebra: The algebra.
        structure: Whether to look inside; a span that is not closed has no structure.

    Example:
        >>> from atlasd.algebra.known_algebras import euclidean
        >>> found = gather(euclidean(2))
        >>> found["derived_series"], found["fixed_vectors"], found["fixed_covectors"]
        ([3, 2, 0], 0, 1)
    """
    frame = algebra.frame()
    scale = _TOLERANCE * max(algebra.dimension, 1) ** 0.5
    symmetric, antisymmetric = invariant_forms(algebra), invariant_forms(algebra, symmetric=False)
    found: dict[str, Any] = {}
    if structure:
        found = {
            "derived_series": [part.dimension for part in algebra.derived_series()],
            "lower_central_series": [part.dimension for part in algebra.lower_central_series()],
            "centre": algebra.centre().dimension,
            "radical": algebra.radical().dimension,
            "ideals": [part.dimension for part in algebra.ideals()],
        }
    found |= {
        "killing_signature": algebra.killing_signature(),
        "fixed_vectors": len(null_rows(frame.flatten(0, 1), scale)),
        "fixed_covectors": len(null_rows(frame.mT.flatten(0, 1), scale)),
        "commutant": len(null_rows(_commutation(frame), scale)),
        "contains_identity": algebra.contains(torch.eye(algebra.size), tolerance=_TOLERANCE),
        "symmetric_forms": symmetric.count,
        "antisymmetric_forms": antisymmetric.count,
    }
    if algebra.dimension == 1:
        found["eigenvalues"] = _eigenvalues(frame[0])
    return found


def describe_eigenvalues(values: list[complex]) -> str:
    r"""A word for the one-parameter group with these eigenvalues, the largest of absolute value 1."""
    turning = [value for value in values if abs(value.imag) > 0.01]
    stretching = [value for value in values if abs(value.real) > 0.01]
    if turning and stretching:
        return "spiral"
    if turning:
        return "rotations at unequal rates"
    return "unequal stretches" if stretching else "nilpotent"


def _eigenvalues(matrix: Tensor) -> list[complex]:
    values = torch.linalg.eigvals(matrix)
    # Rounding spreads the zero eigenvalues of a nilpotent matrix by the n-th root of its size.
    values = values / values.abs().max().clamp(min=1e-3)
    listed = [complex(round(float(v.real), 4) + 0.0, round(float(v.imag), 4) + 0.0) for v in values]
    return sorted(listed, key=lambda value: (-abs(value), -value.real, -value.imag))


def _commutation(frame: Tensor) -> Tensor:
    r"""Stacked matrices of X -> [A, X], with shape `(k * n * n, n * n)`."""
    n = frame.shape[-1]
    eye = torch.eye(n, dtype=frame.dtype, device=frame.device)
    left = torch.einsum("kab,cd->kacbd", frame, eye)
    right = torch.einsum("ab,kdc->kacbd", eye, frame)
    return (left - right).reshape(-1, n * n)
