"""The paper's search for cosets: many random matrices, each improved by gradient descent."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from atlasd.discovery.coset_normalizer import unit_determinant
from atlasd.discovery.objective import Objective
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
        index: Samples to look at.
        normalize: Scales every matrix to |det| = 1 before it acts, and in what is returned.
        steps: Batches.
        batch: Samples in a batch.
        learning_rate: Of Adam at the start.
        anneal: Lets the rate fall along a cosine.
        generator: The source of randomness.
        progress: Progress display.

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
