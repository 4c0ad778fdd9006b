"""Candidates for cosets from the normaliser of an algebra."""

from __future__ import annotations

__all__ = [
    "is_rigid",
    "normalize_starts",
    "pull_to_normalizer",
    "random_starts",
    "reduce_in_coset",
    "unit_determinant",
]

import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra


def unit_determinant(c: Tensor) -> Tensor:
    """Matrices `(*, n, n)` scaled to :math:`|det| = 1`; singular ones become infinite or NaN."""
    return c / torch.linalg.det(c).abs()[..., None, None] ** (1 / c.shape[-1])


def random_starts(count: int, n: int, generator: torch.Generator) -> Tensor:
    """Random matrices with determinant 1 or -1, every second one orthogonal, `(count, n, n)`."""
    starts = _gaussian(count, n, generator)
    u, _, v = torch.linalg.svd(starts[::2])
    starts[::2] = u @ v
    return starts


def _gaussian(count: int, n: int, generator: torch.Generator) -> Tensor:
    """Gaussian matrices scaled to |det| = 1; nearly singular ones are drawn again."""
    drawn = torch.randn(count, n, n, generator=generator, dtype=torch.float64)
    while bool((bad := torch.linalg.det(drawn).abs() < 1e-3).any()):
        drawn[bad] = torch.randn(int(bad.sum()), n, n, generator=generator, dtype=torch.float64)
    return unit_determinant(drawn)


def _bracket_moves(algebra: LieAlgebra) -> Tensor:
    """:math:`[E_a, B_i]` for all unit matrices E, `(n * n, k, n, n)`."""
    n = algebra.size
    units = torch.eye(n * n, dtype=torch.float64).view(-1, 1, n, n)
    return units @ algebra.frame() - algebra.frame() @ units


def _outside(algebra: LieAlgebra, matrices: Tensor) -> Tensor:
    """The part of `(*, n, n)` outside the span, flattened to `(*, n * n)`."""
    frame, flat = algebra.frame().flatten(1), matrices.flatten(-2)
    return flat - (flat @ frame.mT) @ frame


def is_rigid(algebra: LieAlgebra, tolerance: float = 0.1) -> bool:
    """Whether the normaliser of an algebra exceeds its group and the scalings by isolated elements only."""
    n, frame = algebra.size, algebra.frame()
    if not len(frame):
        return False
    slopes = _outside(algebra, _bracket_moves(algebra)).flatten(1)  # (n * n, k n n)
    free = int((torch.linalg.svdvals(slopes) < tolerance).sum()) + max(0, n * n - min(slopes.shape))
    one = torch.eye(n, dtype=torch.float64) / n**0.5
    scales = bool(_outside(algebra, one).norm() < tolerance)
    return free <= len(frame) + (0 if scales else 1)


def normalize_starts(algebra: LieAlgebra, starts: Tensor, iterations: int = 40) -> tuple[Tensor, Tensor]:
    r"""Moves matrices until :math:`C B_i C^{-1}` lies in the algebra for every generator.

    That is :math:`C B_i = \sum_j a_{ij} B_j C` with the automorphism a left free, by Levenberg-Marquardt on
    all candidates together.

    Arguments:
        algebra: The algebra found.
        starts: Matrices, with shape `(M, n, n)`.
        iterations: Most steps.

    Returns:
        The matrices, and the share of the generators' size that is left outside, `(M,)`.
    """
    c, frame = starts.clone(), algebra.frame()
    if not len(frame):
        return c, torch.zeros(len(c), dtype=torch.float64)
    moves = _bracket_moves(algebra)
    damping = torch.full((len(c),), 1e-2, dtype=torch.float64)
    residual = _conjugated(algebra, c, frame)
    cost = residual.square().mean(1)
    for _ in range(iterations):
        inverse = torch.linalg.inv(c)
        slopes = _outside(algebra, c[:, None, None] @ moves @ inverse[:, None, None]).flatten(2)  # (M, p, k n n)
        step = _solve(slopes @ slopes.mT, (slopes @ residual[..., None])[..., 0], damping)
        trial = unit_determinant(c @ torch.matrix_exp(step))
        moved = _conjugated(algebra, trial, frame)
        lower = moved.square().mean(1) < cost
        c, residual = (
            torch.where(lower[:, None, None], trial, c),
            torch.where(lower[:, None], moved, residual),
        )
        cost = residual.square().mean(1)
        damping = torch.where(lower, damping / 4, damping * 6).clamp(1e-9, 1e6)
    size = torch.linalg.matrix_norm(c @ frame[:, None] @ torch.linalg.inv(c)).square().sum(0)
    return c, (residual.square().sum(1) / size).sqrt()


def _conjugated(algebra: LieAlgebra, c: Tensor, frame: Tensor) -> Tensor:
    moved = c[:, None] @ frame @ torch.linalg.inv(c)[:, None]
    return torch.nan_to_num(_outside(algebra, moved).flatten(1), nan=1e6, posinf=1e6, neginf=-1e6)


def _solve(curvature: Tensor, gradient: Tensor, damping: Tensor) -> Tensor:
    """Damped steps `(M, n, n)` that do not change the determinant and stay below size 0.5."""
    p = gradient.shape[-1]
    n = round(p**0.5)
    scale = curvature.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-12)
    ridge = (damping * scale)[:, None, None] * torch.eye(p, dtype=torch.float64)
    step = -torch.linalg.solve(curvature + ridge, gradient[..., None])[..., 0].unflatten(-1, (n, n))
    step = step - step.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * torch.eye(n, dtype=torch.float64)
    return step * (0.5 / torch.linalg.matrix_norm(step).clamp_min(0.5))[:, None, None]


def reduce_in_coset(algebra: LieAlgebra, c: Tensor, iterations: int = 30) -> Tensor:
    """The smallest matrices of the cosets of `c`, `(M, n, n)`: large boosts are taken off."""
    frame = _traceless(algebra.frame())
    if not len(frame):
        return c
    for _ in range(iterations):
        gram = c.mT @ c
        # Half the first two derivatives of the squared norm of c exp(A).
        gradient = torch.einsum("mij,kij->mk", gram, frame)
        moved = c[:, None] @ frame
        curvature = torch.einsum("mkij,mlij->mkl", moved, moved)
        size = gram.diagonal(dim1=-2, dim2=-1).sum(-1)
        ridge = (0.5 * size)[:, None, None] * torch.eye(len(frame), dtype=torch.float64)
        step = -torch.linalg.solve(curvature + ridge, gradient[..., None])[..., 0]
        c = unit_determinant(c @ torch.matrix_exp(torch.einsum("mk,kij->mij", step, frame)))
    return c


def _traceless(frame: Tensor) -> Tensor:
    """Orthonormal basis of the part of a span `(k, n, n)` without trace.

    Moving along a trace and scaling back to determinant 1 would leave the coset, unless scalings are in the span.
    """
    traces = frame.diagonal(dim1=-2, dim2=-1).sum(-1)  # (k,)
    if not len(frame) or float(traces.norm()) < 1e-9:
        return frame
    return torch.einsum("rk,kij->rij", torch.linalg.svd(traces[None], full_matrices=True).Vh[1:], frame)


def pull_to_normalizer(algebra: LieAlgebra, c: Tensor, gradient: Tensor, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """Adds to a least-squares model of candidates `(M, n, n)` what draws them to the normaliser of an algebra."""
    if not algebra.dimension:
        return gradient, curvature
    residual = _conjugated(algebra, c, algebra.frame())
    moves = c[:, None, None] @ _bracket_moves(algebra) @ torch.linalg.inv(c)[:, None, None]
    slopes = _outside(algebra, moves).flatten(2)
    return gradient + (slopes @ residual[..., None])[..., 0], curvature + slopes @ slopes.mT
