"""Held-out skill of a predictor against the best trivial models, and what recipes in closed form share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.trivial import centre_crop, chart_skill, fit_pointwise, pooled_skill
from atlasd.runtime.progress import Progress


@dataclass(frozen=True, eq=False)
class Skill:
    """Skill per chart, with shape `(K,)`, and pooled."""

    charts: Tensor
    pooled: float


def measure_skill(
    function: Callable[[Tensor], Tensor],
    samples: Samples,
    train: Tensor,
    held_out: Tensor,
    *,
    batch: int = 64,
    limit: int | None = None,
    inner: tuple[int, ...] | None = None,
) -> Skill:
    """Compares held-out errors with those of a constant and, on fields, of the best pointwise map.

    Arguments:
        function: The predictor, giving logits for classes.
        samples: The data.
        train: Indices that the trivial models may see.
        held_out: Indices that judge.
        batch: Samples read together.
        limit: The most samples looked at on each side; by default 512, or 128 fields, each of which has many pixels.
        inner: Shape of the middle of the outputs that counts, all of them by default.
    """
    limit = limit or (128 if samples.is_field else 512)
    train, held_out = (samples.in_order(i[:: -(-len(i) // limit) or 1]) for i in (train, held_out))
    if samples.classes:
        return _class_skill(function, samples, train, held_out, batch)

    def pairs() -> Iterator[tuple[Tensor, Tensor]]:
        for index in train.split(batch):
            y = samples.targets(index)
            yield samples.inputs(index), y if inner is None else centre_crop(y, inner)

    mean = sum(y.double().sum(0) for _, y in pairs()) / len(train)
    assert isinstance(mean, Tensor)
    if samples.is_field:  # a constant may not depend on the pixel
        mean = mean.flatten(2).mean(-1)[(..., *([None] * samples.size))]
    pointwise = fit_pointwise(pairs) if samples.is_field else None
    totals = torch.zeros(3, len(samples.atlas), dtype=torch.float64)
    with torch.no_grad():
        for index in held_out.split(batch):
            x, y = samples.inputs(index), samples.targets(index)
            guess = function(x)
            if inner is not None:
                guess, y = centre_crop(guess, inner), centre_crop(y, inner)
            guesses = [guess, mean.expand_as(y)]
            if pointwise is not None:
                guesses.append(pointwise(x, tuple(y.shape[3:])))
            for row, guess in enumerate(guesses):
                totals[row] += (guess - y).double().square().flatten(2).mean(-1).sum(0)
    charts = chart_skill(totals[0], totals[1], totals[2] if pointwise is not None else None)
    return Skill(charts, pooled_skill(charts))


def with_skill(
    functions: Sequence[Callable[[Tensor], Tensor]],
    samples: Samples,
    train: Tensor,
    held_out: Tensor,
    *,
    kind: str,
    reach: float,
    seconds: float,
    inner: tuple[int, ...] | None = None,
    curves: Mapping[str, tuple[float, ...]] | None = None,
) -> list[FittedPredictor]:
    """Functions that were fitted together, with the skill of the first, which is that of the targets.

    Arguments:
        functions: The map of the targets, and after it those of plants.
        samples: The data.
        train: Indices that were fitted to.
        held_out: Indices that judge.
        kind: Name for people.
        reach: Radius of the receptive field in pixels.
        seconds: Time the fit took.
        inner: Shape of the middle of the outputs that counts.
        curves: Training curves.
    """
    skill = measure_skill(functions[0], samples, train, held_out, inner=inner)
    told = (kind, skill.pooled, skill.charts, reach, samples.classes, len(train), seconds, curves or {})
    return [FittedPredictor(function, *told) for function in functions]


@dataclass(frozen=True, eq=False)
class Folds:
    """What a recipe in closed form is to fit: the targets and what is planted, for every fold.

    Arguments:
        samples: The data.
        fold: Number of each sample's fold, `(N,)`; samples with -1 are left out.
        plants: Maps of inputs `(B, K, *in)` to what is like the targets, which are fitted the same way.
        only: The one fold that is wanted; all by default.
    """

    samples: Samples
    fold: Tensor
    plants: Sequence[Callable[[Tensor], Tensor]] = ()
    only: int | None = None
    started: float = field(default_factory=time.perf_counter)

    @property
    def count(self) -> int:
        """Number of folds."""
        return int(self.fold.max()) + 1

    @property
    def wanted(self) -> list[int]:
        """The folds that predictors are wanted for."""
        return list(range(self.count)) if self.only is None else [self.only]

    @property
    def used(self) -> Tensor:
        """Indices of the samples of all folds."""
        return (self.fold >= 0).nonzero().flatten()

    @property
    def fewest(self) -> int:
        """The smallest number of samples that a predictor is fitted to."""
        return min(len(self.train(k)) for k in self.wanted)

    def train(self, k: int) -> Tensor:
        """Indices of the samples outside fold `k`."""
        return ((self.fold >= 0) & (self.fold != k)).nonzero().flatten()

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs of some fields, and targets with what is planted beside them on the axis of channels."""
        x, y = self.samples.inputs(index), self.samples.targets(index)
        return x, torch.cat([y, *(plant(x).to(y.dtype) for plant in self.plants)], dim=2)

    def fitted(
        self,
        functions: Callable[[int], Sequence[Callable[[Tensor], Tensor]]],
        *,
        kind: str,
        reach: float = 0.0,
        inner: tuple[int, ...] | None = None,
    ) -> list[list[FittedPredictor]]:
        """For every fold that is wanted the map of the targets, and after it those of the plants.

        Arguments:
            functions: These maps, for the number of a fold.
            kind: Name for people.
            reach: Radius of the receptive field in pixels.
            inner: Shape of the middle of the outputs that counts.
        """
        return [
            with_skill(
                functions(k), self.samples, self.train(k), (self.fold == k).nonzero().flatten(), kind=kind,
                reach=reach, seconds=time.perf_counter() - self.started, inner=inner,
            )
            for k in self.wanted
        ]  # fmt: skip


class ClosedForm(ABC):
    """Base of recipes that are linear in the targets: one set of sums serves all folds and all that is planted."""

    @abstractmethod
    def fit_folds(self, folds: Folds, *, progress: Progress) -> list[list[FittedPredictor]]:
        """For every fold the predictor of the targets fitted to the others, those of the plants, and a sharp one."""

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits all charts to `train`; what is to be chosen is chosen on `held_out`."""
        fold = torch.full((len(samples),), -1)
        fold[train], fold[held_out] = 0, 1
        return self.fit_folds(Folds(samples, fold, only=1), progress=progress)[0][0]


def _class_skill(
    function: Callable[[Tensor], Tensor], samples: Samples, train: Tensor, held_out: Tensor, batch: int
) -> Skill:
    """Share of the entropy of the class frequencies that is explained."""
    counts = torch.zeros(len(samples.atlas), samples.classes, dtype=torch.float64)
    for index in train.split(batch):
        counts += _shares(samples.targets(index), samples.classes).flatten(3).sum((0, 3))
    prior = ((counts + 0.5) / (counts + 0.5).sum(-1, keepdim=True)).log()
    totals = torch.zeros(2, len(samples.atlas), dtype=torch.float64)
    with torch.no_grad():
        for index in held_out.split(batch):
            share = _shares(samples.targets(index), samples.classes).flatten(3)
            logits = torch.log_softmax(function(samples.inputs(index)).double(), dim=2).unsqueeze(-1).flatten(3)
            for row, guess in enumerate((logits, prior[None, :, :, None])):
                totals[row] -= (share * guess).sum(2).mean(-1).sum(0)
    charts = chart_skill(totals[0], totals[1])
    return Skill(charts, pooled_skill(charts))


def _shares(target: Tensor, classes: int) -> Tensor:
    """Probabilities `(B, K, classes, *pixels, 1)`: one-hot for classes, as they are where something was planted."""
    if target.is_floating_point():
        return target.double().unsqueeze(-1)
    return functional.one_hot(target, classes).movedim(-1, 2).double().unsqueeze(-1)
