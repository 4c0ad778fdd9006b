r"""Standard bases: the standard form of a span, and the similarities by which generators are kept apart."""

from __future__ import annotations

import torch
from torch import Tensor

from atlasd.algebra.structure import orthonormal_rows
from atlasd.errors import InputError

# An entry above this share of the largest belongs to the generator, one below it to the noise.
_SUPPORT = 0.2


def standard_similarity(basis: Tensor) -> Tensor:
    r"""How much the generators share non-zero positions; 0 exactly for bases with disjoint supports.

    .. math:: \sum_{i<j} \frac{|B_i| \cdot |B_j|}{\|B_i\| \, \|B_j\|}

    Arguments:
        basis: Generators, with shape `(*, k, n, n)`.

    Returns:
        The similarity, with shape `(*)`, differentiable with respect to `basis`.

    References:
        The standard basis regularisation of the paper, section 4.2.1.

    Example:
        >>> float(standard_similarity(torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, -1.0], [1.0, 0.0]]])))
        0.0
    """
    return _pair_sum(_unit_rows(basis).abs(), absolute=False)


def cosine_similarity(basis: Tensor) -> Tensor:
    r"""Sum over pairs of the absolute cosine between generators `(*, k, n, n)`, with shape `(*)`."""
    return _pair_sum(_unit_rows(basis), absolute=True)


def standard_form(basis: Tensor) -> Tensor:
    r"""The basis of the same span whose generators share few non-zero positions.

    Each generator has largest absolute entry 1, its first large entry positive when the lower triangle is
    read before the upper (rotations read `[[0, -1], [1, 0]]`), and the order is rotations, boosts, others.
    The answer depends on the span alone, up to rounding.

    Arguments:
        basis: Generators, with shape `(k, n, n)`.

    Returns:
        Generators in float64, with shape `(rank, n, n)`.

    Example:
        >>> standard_form(torch.tensor([[[2.0, -3.0], [3.0, 2.0]], [[1.0, 1.0], [-1.0, 1.0]]]))
        tensor([[[ 0., -1.],
                 [ 1.,  0.]],
        <BLANKLINE>
                [[ 1.,  0.],
                 [ 0.,  1.]]], dtype=torch.float64)
    """
    basis = torch.as_tensor(basis).detach().to(torch.float64)
    if basis.ndim != 3 or basis.shape[-1] != basis.shape[-2]:
        raise InputError(
            f"`basis` must have shape (k, n, n), got {tuple(basis.shape)}; stack the generators along the first axis."
        )
    n = basis.shape[-1]
    frame = orthonormal_rows(basis.flatten(1), 1e-6)
    if frame.shape[0] == 0:
        return frame.reshape(0, n, n)
    best = _polish(_echelon(frame), frame).unflatten(1, (n, n))
    return _order(torch.stack([_orient(matrix) for matrix in best]))


def _unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-30)


def _unit_rows(basis: Tensor) -> Tensor:
    if basis.ndim < 3:
        raise InputError(f"`basis` must have shape (*, k, n, n), got {tuple(basis.shape)}; stack the generators.")
    return _unit(basis.flatten(-2))


def _pair_sum(rows: Tensor, absolute: bool) -> Tensor:
    gram = rows @ rows.mT
    gram = gram.abs() if absolute else gram
    return torch.triu(gram, diagonal=1).sum(dim=(-2, -1))


def _echelon(frame: Tensor) -> Tensor:
    r"""Reduced echelon form `(k, d)` whose pivots are picked greedily.

    Where a disjoint basis exists it is one: independent columns lie in different supports.
    """
    remaining = frame
    pivots: list[int] = []
    for _ in range(frame.shape[0]):
        norms = remaining.norm(dim=0)
        # Rounding must not choose between equal columns: take the first of the largest.
        pivot = int((norms > 0.999999 * norms.max()).nonzero()[0])
        pivots.append(pivot)
        direction = remaining[:, pivot] / norms[pivot]
        remaining = remaining - direction[:, None] * (direction @ remaining)
    return torch.linalg.solve(frame[:, sorted(pivots)], frame)


def _polish(rows: Tensor, frame: Tensor) -> Tensor:
    r"""Moves each row inside the span of `frame` towards its own support, averaging noise over the span."""
    polished = []
    for row in rows:
        off = frame[:, row.abs() < _SUPPORT * row.abs().max()]
        pull = 1e-2 * torch.eye(frame.shape[0], dtype=frame.dtype, device=frame.device)
        coordinates = torch.linalg.solve(off @ off.mT + pull, pull @ (frame @ row))
        polished.append(coordinates @ frame)
    moved = torch.stack(polished)
    # Rows with one support could be pulled together; then the noise stays where it is.
    return moved if torch.linalg.cond(_unit(moved)) < 1.5 * torch.linalg.cond(_unit(rows)) + 1 else rows


def _orient(matrix: Tensor) -> Tensor:
    matrix = matrix / matrix.abs().max()
    lower = torch.tril(torch.ones_like(matrix)) > 0
    entries = torch.cat([matrix[lower], matrix[~lower]])
    large = entries[entries.abs() > 0.5]
    # Rounding noise and -0.0 print badly.
    return torch.round(matrix * large[0].sign(), decimals=12) + 0.0


def _order(basis: Tensor) -> Tensor:
    def key(index: int) -> tuple[int, list[int]]:
        matrix = basis[index]
        kind = 2
        if matrix.diagonal().norm() < 0.3 * matrix.norm():
            if (matrix + matrix.mT).norm() < 0.3 * matrix.norm():
                kind = 0
            elif (matrix - matrix.mT).norm() < 0.3 * matrix.norm():
                kind = 1
        return kind, (matrix.abs().flatten() > 0.5).nonzero().flatten().tolist()

    return basis[sorted(range(len(basis)), key=key)]
