"""Candidates for cosets: from the normaliser of an algebra, and from the paper's descent from random matrices."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from atlasd.algebra.lie import Ambient, LieAlgebra
from atlasd.discovery.objective import Objective
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress

_EXACT = 1e-24
"""Mean square below which what is left is rounding."""
_TOGETHER = 32
"""Candidates whose derivatives are held in memory together."""


def unit_determinant(c: Tensor) -> Tensor:
    """Matrices `(*, n, n)` scaled to :math:`|det| = 1`; singular ones become infinite or NaN."""
    return Ambient(c.shape[-1]).unit_determinant(c)


def _bracket_moves(algebra: LieAlgebra, ambient: Ambient) -> Tensor:
    """:math:`[E_a, B_i]` for all directions E, `(m, k, n, n)`."""
    units = ambient.directions[:, None]
    return units @ algebra.frame() - algebra.frame() @ units


def _outside(algebra: LieAlgebra, matrices: Tensor) -> Tensor:
    """The part of `(*, n, n)` outside the span, flattened to `(*, n * n)`."""
    frame, flat = algebra.frame().flatten(1), matrices.flatten(-2)
    return flat - (flat @ frame.mT) @ frame


def is_rigid(algebra: LieAlgebra, ambient: Ambient | None = None, tolerance: float = 0.1) -> bool:
    """Whether the normaliser of an algebra exceeds its group and the scalings by isolated elements only."""
    ambient, frame = ambient or Ambient(algebra.size), algebra.frame()
    if not len(frame):
        return False
    slopes = _outside(algebra, _bracket_moves(algebra, ambient)).flatten(1)  # (m, k n n)
    free = int((torch.linalg.svdvals(slopes) < tolerance).sum()) + max(0, len(slopes) - min(slopes.shape))
    scales = bool(_outside(algebra, ambient.scaling).norm() < tolerance)
    return free <= len(frame) + (0 if scales else 1)


def normalize_starts(
    algebra: LieAlgebra, starts: Tensor, ambient: Ambient | None = None, iterations: int = 40
) -> tuple[Tensor, Tensor]:
    r"""Moves matrices until :math:`C B_i C^{-1}` lies in the algebra for every generator.

    That is :math:`C B_i = \sum_j a_{ij} B_j C` with the automorphism a left free, by Levenberg-Marquardt on
    all candidates together.

    Arguments:
        starts: Matrices, with shape `(M, n, n)`.
        ambient: The group of all matrices that are looked at; all linear maps by default.

    Returns:
        The matrices, and the share of the generators' size that is left outside, `(M,)`.
    """
    c, frame, ambient = starts.clone(), algebra.frame(), ambient or Ambient(algebra.size)
    if not len(frame):
        return c, torch.zeros(len(c), dtype=torch.float64)
    damping = torch.full((len(c),), 1e-2, dtype=torch.float64)
    residual = _conjugated(algebra, c, frame)
    cost = residual.square().mean(1)
    for _ in range(iterations):
        # Exact to rounding, or stuck: nothing more to be had.
        active = ((cost > _EXACT) & (damping < 1e6)).nonzero().flatten()
        for part in active.split(_TOGETHER):
            now = c[part]
            slopes = _slopes(algebra, ambient, now)
            gradient = (slopes @ residual[part][..., None])[..., 0]
            step = damped_steps(ambient, slopes @ slopes.mT, gradient, damping[part])
            trial = ambient.unit_determinant(now @ torch.matrix_exp(step))
            moved = _conjugated(algebra, trial, frame)
            lower = moved.square().mean(1) < cost[part]
            c[part] = torch.where(lower[:, None, None], trial, now)
            residual[part] = torch.where(lower[:, None], moved, residual[part])
            damping[part] = torch.where(lower, damping[part] / 4, damping[part] * 6).clamp_min(1e-9)
        cost = residual.square().mean(1)
    size = torch.linalg.matrix_norm(c @ frame[:, None] @ torch.linalg.inv(c)).square().sum(0)
    return c, (residual.square().sum(1) / size).sqrt()


def _slopes(algebra: LieAlgebra, ambient: Ambient, c: Tensor) -> Tensor:
    """Derivatives of `_conjugated` by a step of `c`, `(M, n, n)`, along every direction, `(M, m, k n n)`."""
    moves = c[:, None, None] @ _bracket_moves(algebra, ambient) @ torch.linalg.inv(c)[:, None, None]
    return _outside(algebra, moves).flatten(2)


def _conjugated(algebra: LieAlgebra, c: Tensor, frame: Tensor) -> Tensor:
    moved = c[:, None] @ frame @ torch.linalg.inv(c)[:, None]
    return torch.nan_to_num(_outside(algebra, moved).flatten(1), nan=1e6, posinf=1e6, neginf=-1e6)


def damped_steps(ambient: Ambient, curvature: Tensor, gradient: Tensor, damping: Tensor) -> Tensor:
    """Damped steps `(M, n, n)` that do not change the determinant and stay below size 0.5."""
    scale = curvature.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-12)
    ridge = (damping * scale)[:, None, None] * torch.eye(gradient.shape[-1], dtype=torch.float64)
    step = -torch.linalg.solve(curvature + ridge, gradient[..., None])[..., 0]
    step = ambient.traceless(torch.einsum("ma,aij->mij", step, ambient.directions))
    return step * (0.5 / torch.linalg.matrix_norm(step).clamp_min(0.5))[:, None, None]


def reduce_in_coset(algebra: LieAlgebra, c: Tensor, ambient: Ambient | None = None, iterations: int = 30) -> Tensor:
    """The smallest matrices of the cosets of `c`, `(M, n, n)`: large boosts are taken off."""
    ambient = ambient or Ambient(algebra.size)
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
        c = ambient.unit_determinant(c @ torch.matrix_exp(torch.einsum("mk,kij->mij", step, frame)))
    return c


def _traceless(frame: Tensor) -> Tensor:
    """Orthonormal basis of the part of a span `(k, n, n)` without trace.

    Moving along a trace and scaling back to determinant 1 would leave the coset, unless scalings are in the span.
    """
    traces = frame.diagonal(dim1=-2, dim2=-1).sum(-1)  # (k,)
    if not len(frame) or float(traces.norm()) < 1e-9:
        return frame
    return torch.einsum("rk,kij->rij", torch.linalg.svd(traces[None], full_matrices=True).Vh[1:], frame)


def pull_to_normalizer(
    algebra: LieAlgebra, ambient: Ambient, c: Tensor, gradient: Tensor, curvature: Tensor
) -> tuple[Tensor, Tensor]:
    """Adds to a least-squares model of candidates `(M, n, n)` what draws them to the normaliser of an algebra."""
    if not algebra.dimension:
        return gradient, curvature
    residual, slopes = _conjugated(algebra, c, algebra.frame()), _slopes(algebra, ambient, c)
    return gradient + (slopes @ residual[..., None])[..., 0], curvature + slopes @ slopes.mT


_SINGULAR = 1e-8


def draw_starts(count: int, n: int, generator: torch.Generator, initial: Tensor | None = None) -> Tensor:
    """Standard normal matrices, `(count, n, n)`, or the given ones if none of them is singular.

    Arguments:
        initial: Starts of the user, with shape `(M, n, n)`.
    """
    if initial is not None:
        starts = torch.as_tensor(initial).detach().double()
        if starts.ndim != 3 or starts.shape[1:] != (n, n):
            raise InputError(f"`initial` must have shape (M, {n}, {n}), got {tuple(starts.shape)}.")
        bad = (~torch.isfinite(starts).flatten(1).all(1)) | (torch.linalg.det(starts).abs() < _SINGULAR)
        if bool(bad.any()):
            raise InputError(
                f"`initial` must hold invertible matrices, got a singular start at {int(bad.nonzero()[0])}; "
                "leave it out or move it."
            )
        return starts.clone()
    starts = torch.randn(count, n, n, generator=generator, dtype=torch.float64)
    while bool((bad := torch.linalg.det(starts).abs() < _SINGULAR).any()):
        starts[bad] = torch.randn(int(bad.sum()), n, n, generator=generator, dtype=torch.float64)
    return starts


def descend_starts(
    objective: Objective,
    starts: Tensor,
    index: Tensor,
    *,
    normalize: bool,
    steps: int,
    batch: int,
    learning_rate: float,
    anneal: bool,
    generator: torch.Generator,
    progress: Progress,
) -> tuple[Tensor, tuple[float, ...]]:
    """Improves each start on its own by Adam on its equivariance error.

    Arguments:
        objective: The error, and with it the maps and the data.
        starts: Matrices, with shape `(M, n, n)`, in the units of the objective.
        normalize: Scales every matrix to |det| = 1 before it acts, and in what is returned.
        anneal: Lets the rate fall along a cosine.

    Returns:
        The matrices `(M, n, n)` without those that became singular, and the mean error of the better half at each step.
    """
    c = starts.clone().requires_grad_()
    optimizer = torch.optim.Adam([c], lr=learning_rate)
    curve = []
    order = index[:0]
    for step in progress.track(range(steps), "coset descent", total=steps):
        if anneal:
            optimizer.param_groups[0]["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        if not len(order):  # the next pass over the samples
            order = index[torch.randperm(len(index), generator=generator)]
        part, order = order[:batch], order[batch:]
        losses = start_losses(objective, unit_determinant(c) if normalize else c, part)
        optimizer.zero_grad()
        losses.sum().backward()  # type: ignore[no-untyped-call]
        # A matrix on its way through a singular one must not spoil its own averages for good.
        assert c.grad is not None
        c.grad.nan_to_num_(0.0, 0.0, 0.0).clamp_(-1e3, 1e3)
        optimizer.step()
        curve.append(float(losses.detach().sort().values[: max(1, len(losses) // 2)].mean()))
    found = c.detach()
    usable = torch.isfinite(found).flatten(1).all(1) & (torch.linalg.det(found).abs() > _SINGULAR)
    found = found[usable]
    return (unit_determinant(found) if normalize else found), tuple(curve)


def start_losses(objective: Objective, g: Tensor, index: Tensor) -> Tensor:
    """Mean errors of some samples under matrices `(M, n, n)`, with shape `(M,)`."""
    problem = objective.problem
    x = problem.inputs(index)
    m, b, charts = len(g), len(x), x.shape[1]
    with torch.no_grad():
        y = problem.outputs(x)
    x, y = x.expand(m, *x.shape).flatten(0, 1), y.expand(m, *y.shape).flatten(0, 1)
    many = g[:, None, None].expand(m, b, charts, *g.shape[1:]).flatten(0, 1)  # (M B, K, n, n)
    return objective(problem.outputs, x, y, many).unflatten(0, (m, b)).mean(1)
