"""Charts in blocks of fixed size: what one task works on, whoever does it."""

from __future__ import annotations

__all__ = ["Joined", "fit_blocks", "join", "summed"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlasd.data.samples import Samples
from atlasd.prediction.predictor import FittedPredictor, PredictorSpec, narrowed, needed
from atlasd.prediction.trivial import pooled_skill
from atlasd.runtime.executor import About, Shared, current_workers
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream


@dataclass(frozen=True, eq=False)
class Joined:
    """Predictors of blocks of charts as one: `(B, K, *in)` to `(B, K, *out)`.

    Arguments:
        functions: One for every block.
        blocks: The charts of each.
    """

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
        samples: The data.
        train: Indices to fit on.
        held_out: Indices to stop early on, and to measure skill on.
        seed: Seed of every random stream; every block after the first has its own.
        progress: Progress display.
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
