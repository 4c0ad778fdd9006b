r"""A frame in which a reductive algebra is as well-conditioned as it can be."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra

Array: TypeAlias = npt.NDArray[np.float64]
_LEAST_CONDITION, _LARGEST_CONDITION = 3.0, 1e4
"""Up to the first an algebra is taken as it is; at the second the descent gives up, as on a shear, which runs away."""
_LARGEST_DEFECT = 0.1
"""Largest defect of a balanced frame that is believed: 1 % of noise in a basis that has such a frame stays below."""
_LARGEST_TRACE = 0.003
"""The same for the trace of a single generator, which has no brackets to tell it from a noisy shear."""


def well_conditioned(algebra: LieAlgebra) -> Tensor:
    r"""Finds the change of basis S, `(n, n)`, that makes an ill-conditioned reductive algebra well-conditioned.

    Where the algebra is well-conditioned already, or no frame makes it so (a shear), S is the identity.

    Example:
        >>> from atlasd.algebra.known import so
        >>> ellipse = so(2).adjoint(torch.diag(torch.tensor([1.0, 100.0])))
        >>> well_conditioned(ellipse).round(decimals=2).tolist()
        [[10.0, 0.0], [0.0, 0.1]]
    """
    identity = torch.eye(algebra.size, dtype=torch.float64)
    if not algebra.dimension:
        return identity
    change = torch.from_numpy(balance(algebra.frame().cpu().numpy()))
    if not _LEAST_CONDITION < float(torch.linalg.cond(change)) < _LARGEST_CONDITION:
        return identity
    balanced = algebra.adjoint(change.to(algebra.basis.device))
    if balanced.dimension != algebra.dimension:
        return identity
    # Noise of the given frame is amplified in the new one: if that is all there is, the span is not closed there.
    defect = max(balanced.distance(LieAlgebra(balanced.basis.mT)), balanced.closure_error())
    trace = float(balanced.frame()[0].trace().abs()) if algebra.dimension == 1 else 0.0
    return change if defect < _LARGEST_DEFECT and trace < _LARGEST_TRACE else identity


def balance(generators: Array, iterations: int = 300, precision: float = 1e-3) -> Array:
    r"""Finds the frame in which an algebra takes up the least volume (Kempf and Ness).

    For the span V of generators, the logarithm of the Gram determinant of a basis of :math:`S V S^{-1}` is convex
    in :math:`\log S^T S`. Its minimum exists for reductive algebras; there, their compact part is orthogonal and the
    span of so(p, q), sl(n), sp(2n), gl(n) and their sums is its own transpose.

    Arguments:
        generators: Independent matrices, with shape `(k, n, n)`.
        precision: Norm of the slope at which it stops.

    Returns:
        S, symmetric positive definite with determinant 1, with shape `(n, n)`; of very large condition where there is
        no such frame.

    References:
        Kempf and Ness, The length of vectors in representation spaces, Lecture Notes in Mathematics 732 (1979).
    """
    n = generators.shape[-1]
    total, frame, step = np.eye(n), _orthonormal(generators)[0], 0.25
    for _ in range(iterations):
        moment = (frame @ frame.swapaxes(1, 2) - frame.swapaxes(1, 2) @ frame).sum(axis=0)
        if np.linalg.norm(moment) < precision or np.linalg.cond(total) > _LARGEST_CONDITION:
            break
        values, vectors = np.linalg.eigh(moment)
        move = vectors * np.exp(-step * values) @ vectors.T
        back = vectors * np.exp(step * values) @ vectors.T
        moved, change = _orthonormal(move @ frame @ back)
        if change >= 0:
            step *= 0.3
            if step < 1e-6:
                break
            continue
        frame, total, step = moved, move @ total, min(1.3 * step, 1.0)
    _, values, v = np.linalg.svd(total)
    return np.asarray((v.T * values) @ v / np.prod(values) ** (1 / n), dtype=np.float64)


def _orthonormal(generators: Array) -> tuple[Array, float]:
    r"""Orthonormal generators of the same span, and the logarithm of the Gram determinant of the given ones."""
    k, n = len(generators), generators.shape[-1]
    q, r = np.linalg.qr(generators.reshape(k, n * n).T)
    return q.T.reshape(k, n, n), float(2 * np.log(np.abs(np.diag(r))).sum())
