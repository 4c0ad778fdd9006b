"""From the arguments of a call to a problem: checks, standard units, predictors of all folds, the pointwise part."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atlasd.data.samples import Samples
from atlasd.data.sources import gather
from atlasd.discovery.problem import Function, Problem, in_comparison
from atlasd.errors import InputError
from atlasd.geometry.actions import (
    Action,
    GridAction,
    Representation,
    VectorAction,
    as_inputs,
    linear_part,
    window_radius,
)
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.stacked import intertwiners
from atlasd.prediction.crossfit import CrossFit, cross_fit
from atlasd.prediction.oracle import oracle_predictor
from atlasd.prediction.plants import FieldPlant, PlacedPlant, draw_plants
from atlasd.prediction.predictor import FittedPredictor, PredictorSpec
from atlasd.prediction.stencil import StencilPredictor
from atlasd.prediction.trivial import Commuting, LinearPart, PointwisePart, Without, fit_pointwise
from atlasd.runtime.executor import current_workers
from atlasd.runtime.progress import Progress
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
        x, y = part.middle(index) if part.pointwise is not None else (part.inputs(index), part.labels(index))
        if part.pointwise is not None:
            y = y - part.pointwise(x, tuple(y.shape[3:])).double()
        y = y.double()
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
        parts.append(fit_pointwise([part.middle(piece) for piece in index.split(32)], allowed=allowed))
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


_PLANTS = 2
"""Functions that may be planted: one of each kind."""


def prepare(
    x: Any,
    y: Any = None,
    *,
    function: Function | None = None,
    atlas: Atlas | None = None,
    action: Action | None = None,
    predictor: PredictorSpec | None = None,
    seed: int,
    progress: Progress,
) -> tuple[Problem, FittedPredictor]:
    """Checks the input, takes standard units, cross-fits predictors or wraps the function, removes the pointwise part.

    Returns:
        The problem, and the predictor of one fold.
    """
    given = y is not None
    x, y = gather(x, y)
    y = y if given or function is None else None  # a function answers for the targets of a dataset
    if (y is None) == (function is None):
        raise InputError("`y` or `function` must be given, and not both; pass targets to learn from, or a function.")
    samples = Samples.check(x, y, atlas, minimum=20)
    action = _action(samples, action)
    if current_workers().executor is not None:
        samples = samples.in_files(current_workers().scratch)
    raw = samples
    plain = not isinstance(action, GridAction | VectorAction)
    centred = isinstance(action, VectorAction) and action.matrix_size(samples.size) > samples.size
    shifted = isinstance(action, GridAction) and action.translations
    velocities = getattr(action, "velocities", getattr(action, "rho_out", None) in (as_inputs, linear_part))
    samples = samples.plain() if plain else samples.standard(centred=centred, velocities=velocities)
    assert samples.units is not None
    fits: CrossFit | None = None
    if function is not None:
        fitted, spread = oracle_predictor(function, raw, samples.units)
        assert samples.units is not None
        samples = replace(samples, units=replace(samples.units, outputs=spread))
        functions: tuple[Function, ...] = (fitted.function,)
        fold = torch.zeros(len(samples), dtype=torch.long)
    else:
        generator = stream(seed, "plants")
        plants = draw_plants(samples, _PLANTS, generator)
        if shifted:
            plants = [PlacedPlant.draw(h, samples) if isinstance(h, FieldPlant) and h.linear else h for h in plants]
            predictor = _placed(predictor)
        fits = cross_fit(predictor, samples, plants, seed=seed, progress=progress)
        fitted, fold = fits.members[0], fits.fold
        fitted = replace(fitted, skill=fits.skill)
        functions = tuple(m.function for m in fits.members)
    reach = max(fitted.reach, *(m.reach for m in fits.members)) if fits else fitted.reach
    radius = _radius(samples, reach, known=function is not None)
    assert samples.units is not None
    if shifted:
        assert radius is not None  # half of it is the spread of places on a disc along each axis
        samples = replace(samples, units=samples.units.with_places(radius / 2, samples.size))
    assert samples.units is not None
    problem = Problem(
        functions=functions,
        fold=fold,
        action=action if plain else samples.units.action(action),
        samples=samples,
        known=function is not None,
        radius=radius,
        reach=reach,
        classes=fitted.classes,
        fits=fits,
        recipe=None if fits is None else fits.recipe,
    )
    return _finished(problem), fitted


def _placed(predictor: PredictorSpec | None) -> StencilPredictor:
    """A recipe whose maps may change over a chart: one that cannot would commute with shifts by its design."""
    predictor = StencilPredictor() if predictor is None else predictor
    if not isinstance(predictor, StencilPredictor):
        name = type(predictor).__name__
        raise InputError(f"`predictor` must be a StencilPredictor where fields are shifted, got {name}; leave it out.")
    return replace(predictor, placed=True)


def prepare_untrained(
    x: Any, y: Any, *, predictor: PredictorSpec, atlas: Atlas | None = None, action: Action | None = None
) -> Problem:
    """The question without maps, for a search that trains its own networks."""
    samples = Samples.check(*gather(x, y), atlas, minimum=20)
    action = _action(samples, action)
    plain = not isinstance(action, GridAction | VectorAction)
    samples = samples.plain() if plain else samples.standard()
    assert samples.units is not None
    plan = getattr(predictor, "blueprint", None)
    reach = 0.0 if plan is None else plan(samples).reach
    return Problem(
        functions=(_untrained,),
        fold=torch.zeros(len(samples), dtype=torch.long),
        action=action if plain else samples.units.action(action),
        samples=samples,
        known=False,
        radius=_radius(samples, reach, known=False),
        reach=reach,
        classes=samples.classes,
        recipe=predictor,
    )


def _untrained(x: Tensor) -> Tensor:
    raise AssertionError("the search trains its own networks")


def pose(problem: Problem, action: Action) -> Problem:
    """The same maps and data with another question about them: how matrices act on raw inputs and outputs."""
    assert problem.common is None
    return _finished(replace(problem, action=problem.units.action(action), pointwise=None, background=None))


def _finished(problem: Problem) -> Problem:
    """The problem with its background, its pointwise part, and what is left to be tested."""
    problem = replace(problem, functions=in_comparison(problem, problem.functions))
    index = problem.pick(128)
    spread = spread_of(problem, index)
    problem = replace(without_pointwise(problem, index), fits=problem.fits)
    problem = without_common(problem)
    return replace(problem, testable=testable_share(problem, index, spread))


def _radius(samples: Samples, reach: float, *, known: bool) -> float | None:
    """Radius of the disc of outputs that count."""
    if not samples.is_field:
        return None
    radii = samples.atlas.radii
    if radii is None:
        half = min((s - 1) / 2 for s in samples.x.shape[2:])
        return max(window_radius(half, half, reach), 1.0)
    return max(window_radius(*radii, float(radii[0] - radii[1]) if known else reach), 1.0)


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
        size = action.matrix_size(samples.size) if isinstance(action, VectorAction) else samples.size
        _check_rho("rho_out", action.rho_out, size, samples.outputs)
    return action


def _check_rho(name: str, rho: Representation | None, size: int, channels: int) -> None:
    """Raises if a representation does not fit the channels that it transforms."""
    if rho is not None and (shape := tuple(rho(torch.eye(size, dtype=torch.float64)).shape)) != (channels, channels):
        raise InputError(f"`{name}` must give matrices of shape {(channels, channels)}, got {shape}.")
