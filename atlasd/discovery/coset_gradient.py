"""The paper's search for cosets: many random matrices, each improved by gradient descent."""

from __future__ import annotations

__all__ = ["descend_starts", "draw_starts"]

import math

import torch
from torch import Tensor

from atlasd.discovery.coset_normalizer import unit_determinant
from atlasd.discovery.problem import Problem
from atlasd.discovery.residual import sides
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress

_SINGULAR = 1e-8


def draw_starts(count: int, n: int, generator: torch.Generator, initial: Tensor | None = None) -> Tensor:
    """Standard normal matrices, `(count, n, n)`, or the given ones if none of them is singular.

    Arguments:
        count: How many to draw.
        n: Their size.
        generator: The source of randomness.
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
    problem: Problem,
    starts: Tensor,
    *,
    normalize: bool,
    steps: int,
    batch: int,
    learning_rate: float,
    samples: int,
    generator: torch.Generator,
    progress: Progress,
) -> tuple[Tensor, tuple[float, ...]]:
    """Improves each start on its own by Adam on the mean absolute equivariance error.

    Arguments:
        problem: Map, action and data.
        starts: Matrices, with shape `(M, n, n)`.
        normalize: Scales every matrix to |det| = 1 before it acts, and in what is returned.
        steps: Batches.
        batch: Samples in a batch.
        learning_rate: Of Adam at the start; it falls along a cosine.
        samples: The most samples looked at.
        generator: The source of randomness.
        progress: Who is told how far it is.

    Returns:
        The matrices `(M, n, n)`, and the mean error of the better half at each step.
    """
    c = starts.clone().requires_grad_()
    optimizer = torch.optim.Adam([c], lr=learning_rate)
    index = problem.search[:samples]
    weights = torch.full((problem.charts,), 1 / problem.charts, dtype=torch.float64)
    curve = []
    for step in progress.track(range(steps), "coset descent", total=steps):
        optimizer.param_groups[0]["lr"] = learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
        part = index[torch.randint(len(index), (batch,), generator=generator)]
        losses = _losses(problem, problem.patches(part), unit_determinant(c) if normalize else c, weights)
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


def _losses(problem: Problem, x: Tensor, g: Tensor, weights: Tensor) -> Tensor:
    """Mean absolute errors of inputs `(B, K, *in)` under matrices `(M, n, n)`, with shape `(M,)`."""
    m, b, charts = len(g), len(x), x.shape[1]
    with torch.no_grad():
        y = problem.outputs(x)
    x, y = x.expand(m, *x.shape).flatten(0, 1), y.expand(m, *y.shape).flatten(0, 1)
    many = g[:, None, None].expand(m, b, charts, *g.shape[1:]).flatten(0, 1)  # (M B, K, n, n)
    if not problem.is_field:
        many = many.to(x.dtype)
    left, right = sides(problem.outputs, problem.action, x, y, many)
    miss = (left - right).abs()
    if problem.is_field:
        d = problem.size
        mask = problem.window(tuple(y.shape[-d:]), many, tuple(x.shape[-d:])).to(miss.dtype)
        each = (miss.mean(2) * mask).flatten(2).sum(-1) / mask.flatten(2).sum(-1).clamp_min(1.0)
    else:
        each = miss.flatten(2).mean(-1) if miss.ndim > 2 else miss
    return (each.double() * weights).sum(1).unflatten(0, (m, b)).mean(1)
