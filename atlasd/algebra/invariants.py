r"""Forms and tensors that an algebra leaves invariant, such as the metric of the Lorentz algebra."""

from __future__ import annotations

__all__ = [
    "InvariantTensors",
    "Metric",
    "invariant_forms",
    "invariant_tensors",
    "metric",
    "metric_cosine",
]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError

_LARGEST = 4096


@dataclass(frozen=True, eq=False)
class InvariantTensors:
    r"""Tensors ordered by how nearly they are invariant.

    Attributes:
        tensors: Orthonormal tensors, the most invariant first, with shape `(m, n, ..., n)`.
        values: Root-mean-square change of each under a unit generator, ascending, with shape `(m,)`.
        count: How many are invariant, to the tolerance asked for.
    """

    tensors: Tensor
    values: Tensor
    count: int

    @property
    def invariant(self) -> Tensor:
        r"""The invariant ones, with shape `(count, n, ..., n)`."""
        return self.tensors[: self.count]

    @property
    def gap(self) -> float:
        r"""How far the value of the first tensor that is not invariant lies above the last that is."""
        if self.count == len(self.values):
            return float("inf")
        below = float(self.values[self.count - 1]) if self.count else 0.0
        return float(self.values[self.count]) - below


@dataclass(frozen=True, eq=False)
class Metric:
    r"""The symmetric form an algebra comes nearest to preserving, up to scale.

    Attributes:
        form: The form J with unit Frobenius norm, with shape `(n, n)`.
        value: Root-mean-square of :math:`A^T J + J A` over unit generators; 0 is exact.
        gap: Distance from `value` to that of the next best form; 0 means the form is not unique.
        signature: Numbers of negative, positive and zero eigenvalues.

    Example:
        >>> from atlasd.algebra.known_algebras import so
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


def invariant_forms(
    algebra: LieAlgebra, symmetric: bool = True, tolerance: float = 0.1, conformal: bool = True
) -> InvariantTensors:
    r"""Bilinear forms with :math:`A^T J + J A = 0` for every generator A.

    Arguments:
        algebra: The algebra.
        symmetric: Whether to look for symmetric or for antisymmetric forms.
        tolerance: Largest root-mean-square change under a unit generator that counts as invariant.
        conformal: Replace A by its trace-free part, so that a scaling generator, which every form obeys
            up to a factor, does not spoil the metric.

    Returns:
        All forms of that symmetry, the most invariant first.
    """
    n = algebra.size
    transpose = _slot_swap(n)
    sign = 1.0 if symmetric else -1.0
    both = torch.eye(n * n, dtype=torch.float64, device=algebra.basis.device) + sign * transpose.to(algebra.basis)
    u, values, _ = torch.linalg.svd(both)
    return _solve(algebra, 2, u[:, values > 1.0].mT, tolerance, conformal)


def invariant_tensors(
    algebra: LieAlgebra, order: int, tolerance: float = 0.1, conformal: bool = True
) -> InvariantTensors:
    r"""Covariant tensors of any `order` that the algebra leaves invariant, without symmetry assumed.

    Arguments:
        algebra: The algebra.
        order: Number of slots; `n ** order` may be at most 4096.
        tolerance: As in :func:`invariant_forms`.
        conformal: As in :func:`invariant_forms`.
    """
    unknowns = algebra.size**order if order >= 1 else 0
    if not 1 <= unknowns <= _LARGEST:
        raise InputError(
            f"`order` must be at least 1 with n ** order <= {_LARGEST}, got {order} for n = {algebra.size}; "
            "ask for a lower order."
        )
    return _solve(algebra, order, None, tolerance, conformal)


def metric(algebra: LieAlgebra) -> Metric:
    r"""The symmetric form nearest to invariance, with the sign that gives it fewer negative directions."""
    found = invariant_forms(algebra)
    form = found.tensors[0]
    eigenvalues = torch.linalg.eigvalsh(form)
    limit = 0.05 * float(eigenvalues.abs().max())
    negative, positive = int((eigenvalues < -limit).sum()), int((eigenvalues > limit).sum())
    diagonal = form.diagonal()
    # In a tie the first large diagonal entry, the time, is negative.
    tie = negative == positive and float(diagonal[diagonal.abs().argmax()]) > 0
    if negative > positive or tie:
        form, negative, positive = -form, positive, negative
    gap = float(found.values[1] - found.values[0]) if len(found.values) > 1 else float("inf")
    signature = (negative, positive, algebra.size - negative - positive)
    return Metric(form + 0.0, float(found.values[0]), gap, signature)


def metric_cosine(form: Tensor, reference: Tensor) -> float:
    r"""Absolute cosine between two forms `(n, n)`; 1 when they agree up to a factor."""
    a, b = torch.as_tensor(form).to(torch.float64), torch.as_tensor(reference).to(torch.float64)
    if a.shape != b.shape:
        raise InputError(
            f"`reference` must have shape {tuple(a.shape)}, got {tuple(b.shape)}; compare forms on the same space."
        )
    return float(((a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-300)).abs())


def _slot_swap(n: int) -> Tensor:
    r"""The matrix of transposition on flattened `(n, n)` matrices."""
    return torch.eye(n * n, dtype=torch.float64).reshape(n, n, n, n).transpose(0, 1).reshape(n * n, n * n)


def _action(generators: Tensor, order: int) -> Tensor:
    r"""Matrices `(k, n^order, n^order)` of :math:`T(A\cdot, \cdot) + T(\cdot, A\cdot) + \ldots`."""
    k, n, _ = generators.shape
    total = generators.new_zeros(k, n**order, n**order)
    for slot in range(order):
        before = torch.eye(n**slot, dtype=generators.dtype, device=generators.device)
        after = torch.eye(n ** (order - 1 - slot), dtype=generators.dtype, device=generators.device)
        product = torch.einsum("ab,kdc,ef->kacebdf", before, generators, after)
        total += product.reshape(k, n**order, n**order)
    return total


def _solve(
    algebra: LieAlgebra, order: int, subspace: Tensor | None, tolerance: float, conformal: bool
) -> InvariantTensors:
    n = algebra.size
    generators = algebra.frame()
    if conformal:
        trace = generators.diagonal(dim1=1, dim2=2).sum(-1)
        eye = torch.eye(n, dtype=generators.dtype, device=generators.device)
        generators = generators - trace[:, None, None] / n * eye
    unknowns = n**order if subspace is None else subspace.shape[0]
    if subspace is None:
        subspace = torch.eye(unknowns, dtype=generators.dtype, device=generators.device)
    # Rows of the map, generator by generator, so that memory stays at one Gram matrix.
    gram = generators.new_zeros(unknowns, unknowns)
    for generator in generators:
        moved = _action(generator[None], order)[0] @ subspace.mT
        gram += moved.mT @ moved
    squares, vectors = torch.linalg.eigh(gram)
    values = (squares.clamp(min=0.0) / max(len(generators), 1)).sqrt()
    tensors = (vectors.mT @ subspace).reshape(unknowns, *([n] * order))
    return InvariantTensors(tensors, values, int((values <= tolerance).sum()))
