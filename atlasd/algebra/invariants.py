r"""Forms that an algebra leaves invariant, such as the Lorentz metric, and frames in which it is balanced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError


@dataclass(frozen=True, eq=False)
class Metric:
    r"""The symmetric form an algebra comes nearest to preserving, up to scale.

    Attributes:
        form: The form J with unit Frobenius norm, with shape `(n, n)`.
        value: Root-mean-square of :math:`A^T J + J A` over unit generators; 0 is exact.
        gap: Distance from `value` to that of the next best form; 0 means the form is not unique.
        signature: Numbers of negative, positive and zero eigenvalues.

    Example:
        >>> from atlasd.algebra.known import so
        >>> found = metric(so(1, 3))
        >>> found.signature
        (1, 3, 0)
        >>> (2 * found.form).diagonal().round()
        tensor([-1.,  1.,  1.,  1.], dtype=torch.float64)
    """

    form: Tensor
    value: float
    gap: float
    signature: tuple[int, int, int]

    def rounded(self, within: float) -> Tensor:
        r"""The form with entries near 0, 1 or -1 taken for these, in units of the mean size of its eigenvalues.

        Where vectors are long and their norms small, as those of particles are, a form that is slightly off is felt.
        Whether the data bear the rounded one out is not tested here.

        Arguments:
            within: How near; 0 changes nothing but the unit.

        Example:
            >>> Metric(torch.tensor([[-0.71, 0.01], [0.01, 0.70]]), 0.0, 1.0, (1, 1, 0)).rounded(0.05)
            tensor([[-1.,  0.],
                    [ 0.,  1.]])
        """
        form = self.form / torch.linalg.eigvalsh(self.form).abs().mean()
        plain = form.round().clamp(-1.0, 1.0)
        return torch.where((form - plain).abs() < within, plain, form)


def invariant_forms(algebra: LieAlgebra, symmetric: bool = True) -> tuple[Tensor, Tensor]:
    r"""Bilinear forms with :math:`A^T J + J A = 0` for the trace-free part of every generator A, or nearly so.

    A scaling generator, which every form obeys up to a factor, does not spoil the metric.

    Arguments:
        symmetric: Whether to look for symmetric or for antisymmetric forms.

    Returns:
        Orthonormal forms, the most invariant first, with shape `(m, n, n)`, and the root-mean-square change of each
        under a unit generator, with shape `(m,)`.
    """
    n = algebra.size
    swap = torch.eye(n * n, dtype=torch.float64).reshape(n, n, n, n).transpose(0, 1).reshape(n * n, n * n)
    both = torch.eye(n * n, dtype=torch.float64) + (1.0 if symmetric else -1.0) * swap
    u, sizes, _ = torch.linalg.svd(both.to(algebra.basis))
    basis = u[:, sizes > 1.0].mT.unflatten(1, (n, n))
    generators = algebra.frame()
    trace = generators.diagonal(dim1=1, dim2=2).sum(-1)
    generators = generators - trace[:, None, None] / n * torch.eye(n).to(generators)
    changes = generators[:, None].mT @ basis + basis @ generators[:, None]  # (k, m, n, n)
    gram = torch.einsum("kaij,kbij->ab", changes, changes)
    squares, vectors = torch.linalg.eigh(gram)
    values = (squares.clamp(min=0.0) / max(len(generators), 1)).sqrt()
    return torch.einsum("am,aij->mij", vectors, basis), values


def metric(algebra: LieAlgebra) -> Metric:
    r"""The symmetric form nearest to invariance, with the sign that gives it fewer negative directions."""
    forms, values = invariant_forms(algebra)
    form = forms[0]
    eigenvalues = torch.linalg.eigvalsh(form)
    limit = 0.05 * float(eigenvalues.abs().max())
    negative, positive = int((eigenvalues < -limit).sum()), int((eigenvalues > limit).sum())
    diagonal = form.diagonal()
    # In a tie the first large diagonal entry, the time, is negative.
    tie = negative == positive and float(diagonal[diagonal.abs().argmax()]) > 0
    if negative > positive or tie:
        form, negative, positive = -form, positive, negative
    gap = float(values[1] - values[0]) if len(values) > 1 else float("inf")
    signature = (negative, positive, algebra.size - negative - positive)
    return Metric(form + 0.0, float(values[0]), gap, signature)


def metric_cosine(form: Tensor, reference: Tensor) -> float:
    r"""Absolute cosine between two forms `(n, n)`; 1 when they agree up to a factor."""
    a, b = torch.as_tensor(form).to(torch.float64), torch.as_tensor(reference).to(torch.float64)
    if a.shape != b.shape:
        raise InputError(
            f"`reference` must have shape {tuple(a.shape)}, got {tuple(b.shape)}; compare forms on the same space."
        )
    return float(((a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-300)).abs())


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
