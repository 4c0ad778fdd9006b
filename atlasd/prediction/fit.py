"""Fits the predictors of all charts, in blocks of fixed size, and measures their skill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atlasd.data.samples import Samples, split_indices
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.forms import FormPredictor
from atlasd.prediction.local import LocalPredictor
from atlasd.prediction.moments import MomentPredictor
from atlasd.prediction.neural import ConvPredictor, MLPPredictor
from atlasd.prediction.predictor import FittedPredictor, PredictorSpec, Probabilities
from atlasd.prediction.stencil import StencilPredictor
from atlasd.prediction.trivial import pooled_skill
from atlasd.runtime.executor import About, current_workers
from atlasd.runtime.packing import Shared
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream


def selected(function: Callable[..., Any], charts: Sequence[int]) -> Callable[..., Any]:
    """The function of single charts, where it has one map for each."""
    return function.select(charts)  # type: ignore[attr-defined]


def narrowed(function: Callable[[Tensor], Tensor], width: int) -> Callable[[Tensor], Tensor]:
    """The function for the middle of its outputs, `width` pixels, where it can leave out the rest."""
    narrow = getattr(function, "narrowed", None)
    return function if narrow is None else narrow(width)


def needed(functions: Sequence[Callable[[Tensor], Tensor]]) -> tuple[int, ...] | None:
    """Spatial shape of the middle of the inputs that functions look at; `None` where they do not say."""
    shapes = [getattr(f.function if isinstance(f, Probabilities) else f, "need", None) for f in functions]
    if any(shape is None for shape in shapes):
        return None
    return tuple(max(sizes) for sizes in zip(*shapes, strict=True))


@dataclass(frozen=True, eq=False)
class Joined:
    """Predictors of blocks of charts as one: `(B, K, *in)` to `(B, K, *out)`."""

    functions: tuple[Callable[[Tensor], Tensor], ...]
    blocks: tuple[range, ...]

    def __call__(self, x: Tensor) -> Tensor:
        parts = zip(self.functions, self.blocks, strict=True)
        return torch.cat([function(x[:, block.start : block.stop]) for function, block in parts], dim=1)

    @property
    def need(self) -> tuple[int, ...] | None:
        """Spatial shape of the inputs that the functions look at, where they say."""
        return needed(self.functions)

    def part(self, charts: range) -> Callable[[Tensor], Tensor]:
        """The predictor of one block."""
        return self.functions[self.blocks.index(charts)]

    def plus(self, other: Joined, size: float) -> Joined:
        """The sum with `size` times another one on the same blocks."""
        both = zip(self.functions, other.functions, strict=True)
        return Joined(tuple(summed(first, second, size) for first, second in both), self.blocks)

    def narrowed(self, width: int) -> Joined:
        """The same for the middle of the outputs."""
        return Joined(tuple(narrowed(function, width) for function in self.functions), self.blocks)


@dataclass(frozen=True, eq=False)
class _Sum:
    """`f + size h` of two functions."""

    first: Callable[[Tensor], Tensor]
    second: Callable[[Tensor], Tensor]
    size: float

    def __call__(self, x: Tensor) -> Tensor:
        return self.first(x) + self.size * self.second(x)

    @property
    def need(self) -> tuple[int, ...] | None:
        """Spatial shape of the inputs that both look at, where they say."""
        return needed((self.first, self.second))

    def narrowed(self, width: int) -> _Sum:
        """The same for the middle of the outputs."""
        return _Sum(narrowed(self.first, width), narrowed(self.second, width), self.size)


def summed(
    first: Callable[[Tensor], Tensor], second: Callable[[Tensor], Tensor], size: float
) -> Callable[[Tensor], Tensor]:
    """`first + size second`, as one function of the same kind where they know how."""
    plus: Callable[..., Callable[[Tensor], Tensor]] | None = getattr(first, "plus", None)
    return _Sum(first, second, size) if plus is None else plus(second, size)


def fit_blocks(
    recipe: PredictorSpec, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
) -> FittedPredictor:
    """Carries out a recipe for every block of charts, wherever the workers are, and joins the predictors.

    Arguments:
        recipe: How to fit; one with a true attribute `together` is given all charts at once.
        train: Indices to fit on.
        held_out: Indices to stop early on, and to measure skill on.
    """
    charts = len(samples.atlas)
    blocks = [range(charts)] if getattr(recipe, "together", False) else samples.blocks
    index = Shared((train, held_out))
    if len(blocks) == 1:
        tasks = [(recipe, samples, index, seed, progress if current_workers().executor is None else Silent())]
    else:
        seeds = [seed, *(stream(seed, "fit", "block", b.start).initial_seed() for b in blocks[1:])]
        tasks = [(recipe, samples.part(b), index, s, Silent()) for b, s in zip(blocks, seeds, strict=True)]
    parts = current_workers().map(
        _fit,
        tasks,
        [About(b) for b in blocks],
        progress=progress,
        label="fit charts" if len(blocks) > 1 else "",
        stage="predictor of",
    )
    return join(parts, blocks)


def _fit(
    recipe: PredictorSpec, samples: Samples, index: Shared[tuple[Tensor, Tensor]], seed: int, progress: Progress
) -> FittedPredictor:
    return recipe.fit(samples, *index.value, seed=seed, progress=progress)


def join(parts: Sequence[FittedPredictor], blocks: Sequence[range]) -> FittedPredictor:
    """Predictors of blocks of charts as one."""
    if len(parts) == 1:
        return parts[0]
    skills = torch.cat([part.chart_skill for part in parts])
    ranges = tuple(blocks)
    # Curves of the block with the median skill stand for all.
    middle = sorted(parts, key=lambda part: part.skill)[len(parts) // 2]
    return replace(
        parts[0],
        reach=max(part.reach for part in parts),
        function=Joined(tuple(part.function for part in parts), ranges),
        skill=pooled_skill(skills),
        chart_skill=skills,
        seconds=sum(part.seconds for part in parts),
        curves=middle.curves,
    )


_FILLED = 12
"""Components of the inputs that functions in closed form can still fill."""


@dataclass(frozen=True, kw_only=True)
class AutoPredictor:
    """The cheapest kind of predictor that explains the targets, or else the best of all kinds on held-out data.

    Arguments:
        exact: Skill at which no other kind is tried for vectors.
        linear: Skill at which a stencil is kept without trying a network.
    """

    exact: float = 0.999
    linear: float = 0.95

    def candidates(self, samples: Samples) -> list[PredictorSpec]:
        """Kinds that fit the data, the cheapest first."""
        if samples.is_field:
            if samples.classes:
                return [ConvPredictor()]
            return [StencilPredictor(), *([LocalPredictor()] if samples.atlas.radii else [])]
        # Classes have sharp borders, which bumps blur.
        kinds: list[PredictorSpec] = [] if samples.classes else [FormPredictor()]
        kinds += [MomentPredictor()] if samples.x.ndim == 3 else []
        # Bumps fill a space of a few dimensions; in more, features have to be learned.
        many = samples.x[0].numel() > _FILLED or samples.classes
        return [*kinds, *([MLPPredictor()] if many else [])]

    def enough(self, samples: Samples) -> float:
        """Skill at which no other kind is tried; for vectors, of what a linear map leaves unexplained."""
        return self.linear if samples.is_field else 1 - (1 - self.exact) * _not_linear(samples)

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits the cheapest kind that has skill; all charts take the same."""
        best: FittedPredictor | None = None
        for recipe in self.candidates(samples):
            fitted = fit_blocks(recipe, samples, train, held_out, seed=seed, progress=progress)
            best = fitted if best is None or fitted.skill > best.skill else best
            if best.skill >= self.enough(samples):
                break
        assert best is not None
        return best


def _not_linear(samples: Samples, most: int = 4096) -> float:
    """Share of the variance of the targets of vectors that no linear map explains, from 1e-3 to 1.

    A state a short time later is nearly the state itself: all that can be learned is in the rest.
    """
    if samples.classes:
        return 1.0
    index = torch.arange(0, len(samples), -(-len(samples) // most))
    x, y = samples.inputs(index)[:, 0].flatten(1).double(), samples.targets(index)[:, 0].double()
    x, y = torch.cat([x, torch.ones_like(x[:, :1])], dim=1), y - y.mean(0)
    if len(x) < 4 * x.shape[1]:
        return 1.0
    rest = y - x @ torch.linalg.lstsq(x, y).solution
    share = float(rest.square().sum() / y.square().sum().clamp_min(1e-300))
    return min(max(share * len(x) / (len(x) - x.shape[1]), 1e-3), 1.0)


def fit_predictor(
    x: Any,
    y: Any,
    *,
    atlas: Atlas | None = None,
    predictor: PredictorSpec | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> FittedPredictor:
    """Fits a predictor of every chart together, with a held-out split and early stopping.

    Arguments:
        x: Inputs: fields `(N, C, *S)`, vectors `(N, n)` or sets `(N, P, n)`.
        y: Targets.
        atlas: Where the charts lie.
        predictor: The recipe; chosen from the data by default.
        seed: Seed of every random stream.
        progress: Progress display.

    Returns:
        The predictor, callable on `(B, K, *in)`.

    Example:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(400, 2, generator=generator)
        >>> fitted = fit_predictor(x, x.square().sum(-1), predictor=MLPPredictor(hidden=(32, 32)))
        >>> fitted.skill > 0.9
        True
    """
    samples = Samples.check(x, y, atlas)
    if samples.y is None:
        raise InputError("`y` must be given to fit a predictor, got None.")
    train, search, _ = split_indices(len(samples), stream(seed, "split"))
    return fit_recipe(predictor, samples, train, search, seed=seed, progress=progress or Silent())


def fit_recipe(
    recipe: PredictorSpec | None, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
) -> FittedPredictor:
    """Fits a recipe in blocks of charts; by default the recipe is chosen from the data."""
    if recipe is None or isinstance(recipe, AutoPredictor):
        return (recipe or AutoPredictor()).fit(samples, train, held_out, seed=seed, progress=progress)
    return fit_blocks(recipe, samples, train, held_out, seed=seed, progress=progress)
