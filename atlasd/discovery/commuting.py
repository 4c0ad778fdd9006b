"""What commutes with every transformation is removed first: a map of one pixel, a multiple of a vector itself."""

from __future__ import annotations

__all__ = ["spread_of", "testable_share", "without_common", "without_pointwise"]

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from atlasd.geometry.actions import GridAction, Representation, VectorAction
from atlasd.geometry.stacked import intertwiners
from atlasd.prediction.trivial import Commuting, LinearPart, PointwisePart, Without, centre_crop, fit_pointwise
from atlasd.runtime.random import stream

if TYPE_CHECKING:
    from atlasd.discovery.problem import Problem


def spread_of(problem: Problem, index: Tensor) -> tuple[float, float]:
    """Variance of the targets, summed over blocks of charts, and their largest value."""
    total = level = 0.0
    for block in problem.blocks():
        part = problem.part(block)
        y = part.labels(index).double()
        level = max(level, float(y.abs().max()))
        total += float((y - y.mean() if part.is_field else y - y.mean(0)).square().mean())
    return total, level


def testable_share(problem: Problem, index: Tensor, spread: tuple[float, float]) -> float:
    """Share of the spread of the targets that does not commute with everything: no constant, no map of one pixel."""
    total, level = spread
    left = 0.0
    for block in problem.blocks():
        part = problem.part(block)
        x = part.inputs(index)
        y = part.labels(index, x).double()
        if part.pointwise is not None:
            width = 2 * math.ceil(part.radius or 1.0) + 1
            y = centre_crop(y, tuple(min(s, width + (s - width) % 2) for s in y.shape[3:]))
            y = y - part.pointwise(x, tuple(y.shape[3:])).double()
        left += float((y - y.mean() if part.is_field else y - y.mean(0)).square().mean())
    # Rounding alone leaves about 1e-12 of the square of the values.
    return 0.0 if total <= 1e-10 * level**2 else math.sqrt(left / total)


def without_common(problem: Problem) -> Problem:
    """The problem without the part of a map from vectors to vectors that commutes with every matrix."""
    rho = getattr(problem.action, "rho_out", None)
    if problem.is_field or rho is None or problem.classes or not isinstance(problem.action, VectorAction):
        return problem
    index = problem.pick(4096)
    x = problem.inputs(index)
    y = problem.labels(index, x)
    basis = intertwiners(lambda g: g, rho, problem.size, (y.shape[-1], problem.size))
    if not len(basis):
        return problem
    part = LinearPart.fit(x, y, basis)
    functions = tuple(Without(f, part) for f in problem.functions)
    return replace(problem, functions=functions, common=part)


def without_pointwise(problem: Problem, index: Tensor) -> Problem:
    """The problem with its background and its pointwise part."""
    action = problem.action
    if problem.classes and problem.is_field:
        counts = torch.bincount(problem.samples.targets(index[:32]).flatten(), minlength=problem.classes)
        return replace(problem, background=int(counts.argmax()))
    if not isinstance(action, GridAction):
        return problem
    allowed = _commuting(problem, action)
    parts = []
    for block in problem.blocks():
        part = problem.part(block)

        def pairs(part: Problem = part) -> Iterator[tuple[Tensor, Tensor]]:
            for piece in index.split(32):
                x = part.inputs(piece)
                y = part.labels(piece, x)
                assert part.radius is not None
                width = 2 * math.ceil(part.radius) + 1  # beyond, a predictor may have seen what is not there
                yield x, centre_crop(y, tuple(min(s, width + (s - width) % 2) for s in y.shape[3:]))

        parts.append(fit_pointwise(pairs, allowed=allowed))
    return replace(problem, pointwise=PointwisePart.join(parts))


def _commuting(problem: Problem, action: GridAction) -> Commuting | None:
    """Which maps of one pixel commute with every transformation; `None` where all do."""
    if action.rho_in is None and action.rho_out is None:
        return None
    shape = len(problem.units.outputs), problem.samples.x.shape[1]
    n = problem.samples.size
    probe = torch.randn(8, n, n, generator=stream(0, "probe"), dtype=torch.float64)

    def fixed(rho: Representation | None, channels: int) -> Tensor:
        if rho is None:
            return torch.ones(channels, dtype=torch.bool)
        off = (rho(probe) - torch.eye(channels, dtype=torch.float64)).abs()
        return (off.amax((0, 1)) < 1e-9) & (off.amax((0, 2)) < 1e-9)

    linear = intertwiners(action.rho_in, action.rho_out, n, shape)
    return Commuting(linear, fixed(action.rho_in, shape[1]), fixed(action.rho_out, shape[0]))
