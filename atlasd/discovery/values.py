"""A search by values alone, for maps whose derivatives are noise: networks that were fitted to classes."""

from __future__ import annotations

__all__ = ["search_values", "settle"]

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem
from atlasd.discovery.refine import FiniteCriterion, Frozen, scaled
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_FEW = 24
"""Samples on which starts are compared."""
_WIDTHS = (0.3, 0.2, 0.2)
"""How far apart the values of a parabola lie: far enough that what a network adds as noise averages out."""
_REFINED = 3
"""Starts that are refined before one is chosen."""
_COUNTED = 0.8
"""Share of the samples of a chart that count: the predictor may not have learned the others."""
_FLOOR = 3e-3
"""Errors below this do not count as better: they are the resampling of classes."""


def search_values(
    problem: Problem,
    *,
    sizes: tuple[float, ...],
    samples: int,
    starts: int,
    limit: float | None,
    most: int,
    seed: int,
    progress: Progress,
) -> tuple[list[Tensor], list[float]]:
    """Generators one after the other, each the best of those at right angles to the earlier ones.

    Arguments:
        problem: Map, action and data.
        sizes: Sizes |t|; large ones tell generators apart, as long as one sign keeps samples among the data.
        samples: Samples to look at.
        starts: Random directions among the starts.
        limit: Error beyond which no more are looked for; `None` for as many as `most`.
        most: The most generators.
        seed: Seed of the starts.
        progress: Who is told how far it is.

    Returns:
        Generators `(n, n)` of operator norm 1, and their errors.
    """
    x = problem.patches(problem.search[:samples])
    criterion = FiniteCriterion(problem, x, sizes)
    few = FiniteCriterion(problem, x[:_FEW], sizes[:1])
    weights = problem.chart_weights()
    generator = stream(seed, "search", "values")
    frame = symmetric_frame(problem.size)
    found: list[Tensor] = []
    errors: list[float] = []
    for _ in progress.track(range(most), "search by values"):
        if found:
            taken = torch.linalg.qr(torch.stack(found).flatten(1).mT).Q
            frame = frame - frame @ taken @ taken.mT
            _, s, v = torch.linalg.svd(frame, full_matrices=False)
            frame = v[s > 1e-6]
        if not len(frame):
            break
        a, error = _best(few, criterion, frame, weights, starts, generator)
        if limit is not None and error > limit:
            break
        found.append(a)
        errors.append(error)
    return found, errors


def _best(
    few: FiniteCriterion,
    criterion: FiniteCriterion,
    frame: Tensor,
    weights: Tensor,
    starts: int,
    generator: torch.Generator,
) -> tuple[Tensor, float]:
    """The best generator in the span of `frame` `(s, n^2)`, from many starts, and its error on all samples."""
    s = len(frame)
    eye = torch.eye(s, dtype=torch.float64)
    i, j = torch.triu_indices(s, s, 1)
    random = torch.randn(starts, s, generator=generator, dtype=torch.float64)
    trials = torch.cat([eye, eye[i] + eye[j], eye[i] - eye[j], random])
    trials = trials / trials.norm(dim=-1, keepdim=True)
    values = [_value(few, frame, c, weights, few.freeze(_matrix(frame, c), _COUNTED)) for c in trials]
    order = sorted(range(len(trials)), key=values.__getitem__)
    chosen: list[Tensor] = []
    for k in order:
        # Starts within 30 degrees of a better one lead to the same place.
        if len(chosen) < _REFINED and all(abs(float(trials[k] @ c)) < 0.86 for c in chosen):
            chosen.append(trials[k])
    rough = [settle(few, frame, c, weights, widths=_WIDTHS[:1]) for c in chosen]
    c = min(rough, key=lambda pair: pair[1])[0]
    c, _ = settle(criterion, frame, c, weights, widths=_WIDTHS[1:])
    a = scaled(_matrix(frame, c))
    miss, chance = criterion.measure(a)
    share = weights / weights.sum()
    error = float((miss.mean(1) / chance.mean(1).clamp_min(1e-300)).mean(0) @ share)
    return a, error


def settle(
    criterion: FiniteCriterion,
    frame: Tensor,
    start: Tensor,
    weights: Tensor,
    *,
    widths: tuple[float, ...] = _WIDTHS,
) -> tuple[Tensor, float]:
    """Goes to the bottom of parabolas through values on both sides of the present point, round by round.

    Arguments:
        criterion: The finite criterion.
        frame: Orthonormal generators, flattened, with shape `(s, n^2)`.
        start: Coefficients of the start, `(s,)`.
        weights: Weights of the charts, `(K,)`.
        widths: Distances of the values of the parabolas.

    Returns:
        The coefficients, of norm 1, and the pooled logarithm of the error.
    """
    c = start / start.norm()
    value = 0.0
    for width in widths:
        frozen = criterion.freeze(_matrix(frame, c), _COUNTED)  # for the round
        value = _value(criterion, frame, c, weights, frozen)
        tangent = _tangent(c)  # (s - 1, s)
        step = torch.zeros(len(tangent), dtype=torch.float64)
        tried: list[tuple[float, Tensor]] = [(value, c)]
        for k, e in enumerate(tangent):
            sides = [_unit(c + sign * width * e) for sign in (1.0, -1.0)]
            up, down = (_value(criterion, frame, side, weights, frozen) for side in sides)
            tried += [(up, sides[0]), (down, sides[1])]
            curve = (up + down - 2 * value) / width**2
            slope = (up - down) / (2 * width)
            limit = 1.5 * width
            step[k] = max(-limit, min(limit, -slope / curve)) if curve > 1e-6 else -limit * (1 if slope > 0 else -1)
        for shrink in (1.0, 0.5):
            trial = _unit(c + shrink * step @ tangent)
            tried.append((_value(criterion, frame, trial, weights, frozen), trial))
            if tried[-1][0] < value:
                break
        # The bottom of the parabolas is an average over many values; the lowest single value is luck.
        value, c = tried[-1] if tried[-1][0] < value else min(tried, key=lambda pair: pair[0])
    return c, value


def symmetric_frame(n: int) -> Tensor:
    """Orthonormal generators, with shape `(n^2, n^2)`: turns, stretches in pairs of axes, and stretches of axes."""
    rows = []
    for i in range(n):
        for j in range(i):
            for sign in (-1.0, 1.0):
                pair = torch.zeros(n, n, dtype=torch.float64)
                pair[i, j], pair[j, i] = 1.0, sign
                rows.append(pair.flatten() / 2**0.5)
    for i in range(n):
        axis = torch.zeros(n, dtype=torch.float64)
        axis[: i + 1] = 1.0
        if i:  # balanced against the axes before it; the last one is the scaling
            axis[i] = -float(i)
        rows.append(torch.diag(axis / axis.norm()).flatten())
    rows[-n] = torch.eye(n, dtype=torch.float64).flatten() / n**0.5
    return torch.stack(rows)


def _value(criterion: FiniteCriterion, frame: Tensor, c: Tensor, weights: Tensor, frozen: Frozen) -> float:
    """Mean logarithm of the errors of the samples that count."""
    errors = (criterion.nearer_errors(_matrix(frame, c), frozen) + _FLOOR).log()
    charts = (errors * frozen.counted).sum(0) / frozen.counted.sum(0)
    return float(charts @ weights / weights.sum())


def _matrix(frame: Tensor, c: Tensor) -> Tensor:
    """A generator whose size does not jump: the operator norm has a kink at rotations, and would favour its sides."""
    n = round(frame.shape[-1] ** 0.5)
    return 2**0.5 * (c @ frame).reshape(n, n)


def _unit(c: Tensor) -> Tensor:
    return c / c.norm()


def _tangent(c: Tensor) -> Tensor:
    """Orthonormal directions at right angles to the unit vector `c`, near the axes, with shape `(s - 1, s)`."""
    eye = torch.eye(len(c), dtype=torch.float64)
    drop = int(c.abs().argmax())
    others = eye[[k for k in range(len(c)) if k != drop]]
    return torch.linalg.qr(torch.cat([c[None], others]).mT).Q.mT[1:]
