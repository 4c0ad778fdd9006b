"""From what the user gives to the problem that a search is given."""

from __future__ import annotations

__all__ = ["Setup", "prepare"]

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem
from atlasd.discovery.support import find_cone
from atlasd.discovery.verdict import Gates
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, Representation, VectorAction, window_radius
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_recipe
from atlasd.prediction.oracle import oracle_predictor
from atlasd.prediction.predictor import FittedPredictor, PredictorSpec, compared, narrowed
from atlasd.prediction.samples import Inputs, Samples, split_indices
from atlasd.prediction.sources import gather
from atlasd.prediction.trivial import PointwisePart, centre_crop, fit_pointwise
from atlasd.runtime.executor import About, Shared, current_workers
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

SKILL_LIMIT = 0.998
"""Skill beyond which a chart's weight does not grow: better fits are not told apart."""
_EDGE = 2
"""Pixels around the disc that count in which outputs are still computed: interpolation reads them."""


@dataclass(frozen=True, eq=False)
class Setup:
    """A problem, its predictor, its gates, and how to make the same problem with an untrained predictor."""

    samples: Samples
    predictor: FittedPredictor
    problem: Problem
    gates: Gates
    untrained: Callable[[torch.Generator], Problem] | None = None


def prepare(
    x: Any,
    y: Any = None,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    atlas: Atlas | None = None,
    action: Action | None = None,
    predictor: PredictorSpec | None = None,
    seed: int,
    progress: Progress,
) -> Setup:
    """Checks the input, fits predictors or wraps the function, and removes the pointwise part."""
    given = y is not None
    x, y = gather(x, y)
    y = y if given or function is None else None  # a function answers for the targets of a dataset
    if (y is None) == (function is None):
        raise InputError("`y` or `function` must be given, and not both; pass targets to learn from, or a function.")
    samples = Samples.check(x, y, atlas, minimum=20)
    action = _action(samples, action)
    if current_workers().executor is not None:
        samples = samples.in_files(current_workers().scratch)
    train, search, test = split_indices(len(samples), stream(seed, "split"))
    if function is not None:
        fitted = oracle_predictor(function, samples)
        search = torch.cat([train, search])
    else:
        fitted = fit_recipe(predictor, samples, train, search, seed=seed, progress=progress)
    radii = samples.atlas.radii

    def counting(reach: float) -> float | None:
        """Radius of the disc of outputs that count."""
        if not samples.is_field:
            return None
        if radii is None:
            half = min((s - 1) / 2 for s in samples.x.shape[2:])
            return window_radius(half, half, reach)
        return max(window_radius(*radii, reach if function is None else float(radii[0] - radii[1])), 1.0)

    skill = fitted.chart_skill.clamp(0.0, SKILL_LIMIT)
    # Signal to noise of the predictor, squared as for any average of unequal measurements.
    weights = (skill / (1 - skill)).square()
    weights = weights / weights.mean() if float(weights.sum()) > 0 else torch.ones_like(weights)

    def outputs(function: Callable[[Tensor], Tensor], radius: float | None) -> Callable[[Tensor], Tensor]:
        """What is compared, as far out as motions of the disc reach."""
        middle = function if radius is None else narrowed(function, 2 * (math.ceil(radius) + _EDGE) + 1)
        return compared(middle, fitted.classes)

    radius = counting(fitted.reach)
    problem = Problem(
        outputs=outputs(fitted.function, radius),
        action=action,
        size=samples.size,
        patches=Inputs(samples),
        search=search,
        test=test,
        charts=len(samples.atlas),
        radius=radius,
        reach=fitted.reach,
        weights=weights,
        noise=(1 - fitted.chart_skill).clamp(0.0, 1.0),
        targets=None if samples.y is None else samples.targets,
        classes=fitted.classes,
        train=train if function is None else None,
    )
    problem, gates = _tested(problem, fitted)
    if function is None:  # a given function is known beside its inputs too
        problem = replace(problem, cone=find_cone(problem))
    if fitted.sharp is not None:
        inner = counting(fitted.sharp_reach)
        seen = outputs(fitted.sharp, inner)
        sharp = replace(problem, outputs=seen, radius=inner, reach=fitted.sharp_reach, pointwise=None)
        problem = replace(problem, sharp=_tested(sharp, fitted)[0])
    untrained = None
    if fitted.untrained is not None:
        fresh = fitted.untrained

        def untrained(generator: torch.Generator) -> Problem:
            blank = replace(problem, outputs=outputs(fresh(generator), radius), pointwise=None, sharp=None)
            return _tested(blank, fitted)[0]

    return Setup(samples, fitted, problem, gates, untrained)


def _action(samples: Samples, action: Action | None) -> Action:
    if action is None:
        return GridAction(dimensions=samples.size) if samples.is_field else VectorAction()
    if isinstance(action, GridAction) != samples.is_field:
        kind = "GridAction" if samples.is_field else "VectorAction"
        raise InputError(
            f"`action` must be a {kind} for x of shape {tuple(samples.x.shape)}, got {type(action).__name__}."
        )
    if isinstance(action, GridAction):
        if action.dimensions != samples.size:
            raise InputError(f"`action` must have dimensions={samples.size}, got {action.dimensions}.")
        _check_rho("rho_in", action.rho_in, samples.size, samples.x.shape[1])
    if isinstance(action, GridAction | VectorAction) and samples.y is not None and not samples.classes:
        _check_rho("rho_out", action.rho_out, samples.size, samples.outputs)
    return action


def _check_rho(name: str, rho: Representation | None, size: int, channels: int) -> None:
    """Raises if a representation does not fit the channels that it moves."""
    if rho is not None and (shape := tuple(rho(torch.eye(size, dtype=torch.float64)).shape)) != (channels, channels):
        raise InputError(f"`{name}` must give matrices of shape {(channels, channels)}, got {shape}.")


def _tested(problem: Problem, fitted: FittedPredictor) -> tuple[Problem, Gates]:
    """The problem without its pointwise part, and the gates."""
    index, blocks = problem.search[:128], problem.blocks()
    parts = current_workers().map(
        _without_pointwise, [(Shared(problem.part(b)), index) for b in blocks], [About(b) for b in blocks], quick=True
    )
    found = [pointwise for pointwise, _ in parts if pointwise is not None]
    problem = replace(problem, pointwise=PointwisePart.join(found) if found else None)
    total, left, count, level = torch.stack([sums for _, sums in parts]).sum(0).tolist()
    scale = max(level / problem.charts, 1e-30)
    # Rounding alone leaves about 1e-12 of the square of the values.
    constant = total / max(count, 1) <= 1e-10 * scale * scale
    share = 0.0 if constant else left / max(total, 1e-300)
    saturated = bool(fitted.classes) and total / max(count, 1) < 1e-5
    return problem, Gates(skill=fitted.skill, testable=share, saturated=saturated)


def _without_pointwise(shared: Shared[Problem], index: Tensor) -> tuple[PointwisePart | None, Tensor]:
    """The pointwise part of a block of charts, and sums `(4,)`.

    These are over outputs: squares, squares of what the pointwise part leaves, numbers, and the level of each chart.
    """
    problem, action = shared.value, shared.value.action
    plain = isinstance(action, GridAction) and action.rho_in is None and action.rho_out is None

    def counting(y: Tensor) -> Tensor:
        if problem.radius is None:
            return y
        width = 2 * math.ceil(problem.radius) + 1  # beyond, a predictor may have seen what is not there
        return centre_crop(y, tuple(min(s, width) for s in y.shape[-problem.size :]))

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for part in index.split(32):
            x = problem.patches(part)
            with torch.no_grad():
                yield x, counting(problem.outputs(x))

    pointwise = fit_pointwise(pairs) if plain else None
    problem = replace(problem, pointwise=pointwise)
    total, left, count = 0.0, 0.0, 0
    mean: Tensor | None = None
    for x, y in pairs():
        with torch.no_grad():
            rest = counting(problem.psi(x)).double()
        mean = y.double().mean(0) if mean is None else mean
        total += float((y.double() - mean).square().sum())
        left += float(
            (rest - rest.mean()).square().sum() if pointwise is not None else (y.double() - mean).square().sum()
        )
        count += y.numel()
    level = 0.0 if mean is None else float(mean.abs().mean()) * problem.charts
    return pointwise, torch.tensor([total, left, count, level], dtype=torch.float64)
