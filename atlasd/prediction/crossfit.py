"""Cross-fitting: every sample is held out of the fit of the predictor that is asked about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlasd.data.samples import Samples
from atlasd.prediction.fit import AutoPredictor, fit_blocks, join, summed
from atlasd.prediction.plants import Planted
from atlasd.prediction.predictor import ClosedForm, FittedPredictor, Folds, PredictorSpec
from atlasd.prediction.train import Job
from atlasd.runtime.executor import About, current_workers
from atlasd.runtime.packing import Shared
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

Function = Callable[[Tensor], Tensor]
_FOLDS = 3
_STOP = 0.2
"""Share of the samples outside a fold that a fit may stop early on."""


@dataclass(frozen=True, eq=False)
class CrossFit:
    """Predictors of all folds.

    Arguments:
        members: One predictor for every fold, fitted to the other folds.
        fold: Number of each sample's fold, `(N,)`.
        answers: For every plant the predictors of all folds fitted to it alone, where the recipe is linear in the
            targets: then nothing has to be fitted again.
        sharp: For every fold the map that fits the targets best, where `members` are smoother ones.
    """

    members: tuple[FittedPredictor, ...]
    fold: Tensor
    recipe: PredictorSpec
    seed: int
    plants: tuple[Function, ...] = ()
    answers: tuple[tuple[Function, ...], ...] = ()
    sharp: tuple[Function, ...] = ()

    @property
    def quick(self) -> bool:
        """Whether targets with something planted are fitted in closed form."""
        return isinstance(self.recipe, ClosedForm)

    @property
    def skill(self) -> float:
        """Mean held-out skill."""
        return sum(m.skill for m in self.members) / len(self.members)

    def planted(
        self, samples: Samples, sizes: Sequence[float], progress: Progress
    ) -> list[tuple[Planted, tuple[Function, ...]]]:
        """What was planted, each in its size, and the predictors of all folds fitted to targets with it."""
        planted = [Planted(h, s) for h, s in zip(self.plants, sizes, strict=False)]
        if self.answers:
            bases = [m.function for m in self.members]
            return [
                (p, tuple(summed(f, h, p.size) for f, h in zip(bases, answer, strict=True)))
                for p, answer in zip(planted, self.answers, strict=False)
            ]
        if isinstance(self.recipe, ClosedForm):
            recipe = getattr(self.recipe, "quick", self.recipe)
            rows = [_closed_form(recipe, replace(samples, plant=p), self.fold, (), progress) for p in planted]
            return [(p, tuple(row[0].function for row in fitted)) for p, fitted in zip(planted, rows, strict=True)]
        jobs = [
            Job(replace(samples, plant=p), *_rest(self.fold, k, self.seed))
            for p in planted
            for k in range(len(self.members))
        ]
        fitted = _fit_jobs(self.recipe, jobs, seed=self.seed, progress=progress)
        count = len(self.members)
        members = [fitted[i : i + count] for i in range(0, len(fitted), count)]
        return [(p, tuple(m.function for m in row)) for p, row in zip(planted, members, strict=True)]


def _rest(fold: Tensor, k: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples outside fold `k`: to fit on, and to stop early on."""
    others = ((fold != k) & (fold >= 0)).nonzero().flatten()
    others = others[torch.randperm(len(others), generator=stream(seed, "fold", k))]
    stop = max(int(_STOP * len(others)), 4)
    return others[stop:], others[:stop]


def draw_folds(samples: int, count: int, generator: torch.Generator) -> Tensor:
    """Numbers of folds of nearly equal size, `(N,)`."""
    return torch.randperm(samples, generator=generator) % count


def cross_fit(
    recipe: PredictorSpec | None,
    samples: Samples,
    plants: Sequence[Function],
    *,
    seed: int,
    progress: Progress,
) -> CrossFit:
    """Fits a recipe once for every fold; by default the recipe is chosen from the data.

    Arguments:
        samples: The data, in standard units.
        plants: What may be planted later.
    """
    count = int(getattr(recipe, "folds", _FOLDS))
    fold = draw_folds(len(samples), count, stream(seed, "folds"))
    chosen = AutoPredictor() if recipe is None else recipe
    if isinstance(chosen, AutoPredictor):
        return _automatic(chosen, samples, fold, plants, seed=seed, progress=progress)
    return _fitted(chosen, samples, fold, plants, seed=seed, progress=progress)


def _fitted(
    recipe: PredictorSpec, samples: Samples, fold: Tensor, plants: Sequence[Function], *, seed: int, progress: Progress
) -> CrossFit:
    if isinstance(recipe, ClosedForm):
        # Probabilities are not linear in the labels, nor is a choice by them: there, all is fitted again.
        linear = () if samples.classes or getattr(recipe, "chooses", False) else plants
        rows = _closed_form(recipe, samples, fold, linear, progress)
        members = tuple(row[0] for row in rows)
        answers = tuple(tuple(row[1 + p].function for row in rows) for p in range(len(linear)))
        sharp = tuple(part.function for row in rows for part in row[1 + len(linear) :])
        return CrossFit(members, fold, recipe, seed, tuple(plants), answers, sharp)
    jobs = [Job(samples, *_rest(fold, k, seed)) for k in range(int(fold.max()) + 1)]
    members = tuple(_fit_jobs(recipe, jobs, seed=seed, progress=progress))
    return CrossFit(members, fold, recipe, seed, tuple(plants))


def _fit_jobs(recipe: PredictorSpec, jobs: Sequence[Job], *, seed: int, progress: Progress) -> list[FittedPredictor]:
    """All jobs at once where the recipe knows how, otherwise one after the other, in blocks of charts."""
    many = getattr(recipe, "fit_many", None)
    if many is not None and len(jobs[0].samples.atlas) == 1:
        fitted: list[FittedPredictor] = many(jobs, seed=seed, progress=progress)
        return fitted
    return [fit_blocks(recipe, j.samples, j.train, j.held_out, seed=seed, progress=progress) for j in jobs]


def _closed_form(
    recipe: ClosedForm, samples: Samples, fold: Tensor, plants: Sequence[Function], progress: Progress
) -> list[list[FittedPredictor]]:
    """Predictors of all folds and plants, block by block of the charts."""
    blocks = samples.blocks
    shared = Shared((fold, tuple(plants)))
    parts = current_workers().map(
        _closed_form_block,
        [(recipe, samples.part(b) if len(blocks) > 1 else samples, shared) for b in blocks],
        [About(b) for b in blocks],
        progress=progress,
        label="fit charts",
        stage="predictor of",
    )
    return [
        [join([part[k][p] for part in parts], blocks) for p in range(len(parts[0][k]))] for k in range(len(parts[0]))
    ]


def _closed_form_block(
    recipe: ClosedForm, samples: Samples, shared: Shared[tuple[Tensor, tuple[Function, ...]]]
) -> list[list[FittedPredictor]]:
    fold, plants = shared.value
    return recipe.fit_folds(Folds(samples, fold, plants), progress=Silent())


def _automatic(
    auto: AutoPredictor, samples: Samples, fold: Tensor, plants: Sequence[Function], *, seed: int, progress: Progress
) -> CrossFit:
    """The cheapest kind that explains the targets, or else the one with the best held-out skill."""
    best: CrossFit | None = None
    for recipe in auto.candidates(samples):
        fitted = _fitted(recipe, samples, fold, plants, seed=seed, progress=progress)
        if best is None or fitted.skill > best.skill:
            best = fitted
        if best.skill >= auto.enough(samples):
            break
    assert best is not None
    return best
