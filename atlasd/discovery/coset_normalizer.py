"""Candidates for cosets from the normaliser of an algebra, polished on the data."""

from __future__ import annotations

__all__ = [
    "is_rigid",
    "normalize_starts",
    "plain_matrices",
    "polish_starts",
    "random_starts",
    "reduce_in_coset",
]

from itertools import permutations

import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.coset_error import CosetError, unit_determinant

_LARGEST_PLAIN = 384  # signed permutations of four axes


def plain_matrices(n: int) -> Tensor:
    """The matrices that read best, the identity first: signs, then signed permutations, `(M, n, n)`."""
    signs = torch.cartesian_prod(*[torch.tensor([1.0, -1.0], dtype=torch.float64)] * n).reshape(-1, n).diag_embed()
    if len(signs) > _LARGEST_PLAIN:
        return signs[:_LARGEST_PLAIN]
    eye = torch.eye(n, dtype=torch.float64)
    parts, count = [signs], len(signs)
    for order in permutations(range(n)):
        if order == tuple(range(n)):
            continue
        if count + len(signs) > _LARGEST_PLAIN:
            break
        parts.append(eye[list(order)] @ signs)
        count += len(signs)
    return torch.cat(parts)


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


def polish_starts(
    error: CosetError, c: Tensor, iterations: int = 25, algebra: LieAlgebra | None = None
) -> tuple[Tensor, Tensor]:
    """Lowers the error of all candidates together by Levenberg-Marquardt.

    Arguments:
        error: The error on the data.
        c: Matrices, with shape `(M, n, n)`.
        iterations: Most steps.
        algebra: Holds candidates near the normaliser of this algebra.

    Returns:
        The matrices with determinant 1 or -1, and their errors, `(M,)`.
    """
    c = unit_determinant(c)
    damping = torch.full((len(c),), 1e-2, dtype=torch.float64)
    held = algebra is not None and algebra.dimension > 0
    cost = error(c)
    active = torch.ones(len(c), dtype=torch.bool)
    for _ in range(iterations):
        if not bool(active.any()):
            break
        now = c[active]
        model = error.normal(now)
        gradient, curvature = model.gradient, model.curvature
        if held:
            assert algebra is not None
            residual = _conjugated(algebra, now, algebra.frame())
            moves = now[:, None, None] @ _bracket_moves(algebra) @ torch.linalg.inv(now)[:, None, None]
            slopes = _outside(algebra, moves).flatten(2)
            gradient = gradient + (slopes @ residual[..., None])[..., 0]
            curvature = curvature + slopes @ slopes.mT
        trial = unit_determinant(now @ torch.matrix_exp(_solve(curvature, gradient, damping[active])))
        moved = error(trial)
        lower = moved < cost[active]
        gained = (cost[active] - moved) > 1e-3 * cost[active]
        c[active] = torch.where(lower[:, None, None], trial, now)
        cost[active] = torch.where(lower, moved, cost[active])
        damping[active] = torch.where(lower, damping[active] / 4, damping[active] * 6)
        # Exact to rounding, or stuck: nothing more to be had.
        done = (cost[active] < 1e-24) | (damping[active] > 1e4) | (lower & ~gained & (damping[active] > 10))
        active[active.clone()] = ~done
    return c, cost
