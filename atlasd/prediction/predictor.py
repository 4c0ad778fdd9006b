"""Predictors: maps fitted in place of the unknown one, their recipes, and their folds."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from atlasd.data.samples import Samples
from atlasd.prediction.skill import measure_skill
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

T = TypeVar("T")


class Predictor(Protocol):
    """Anything callable and differentiable: inputs `(B, K, *in)` to outputs `(B, K, *out)`."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """The outputs of all charts."""


@storable()
@dataclass(frozen=True, eq=False)
class FittedPredictor:
    """A predictor with what is known about it.

    Arguments:
        function: Inputs `(B, K, *in)` to outputs `(B, K, *out)`; logits for classes.
        skill: Share of the held-out error of the best trivial model that it removes, pooled over charts.
        chart_skill: The same per chart, with shape `(K,)`.
        reach: Radius of its receptive field in pixels, to the farthest.
        samples: Samples it was fitted to.
    """

    function: Callable[[Tensor], Tensor]
    kind: str
    skill: float
    chart_skill: Tensor
    reach: float
    classes: int = 0
    samples: int = 0
    seconds: float = 0.0
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def __call__(self, x: Tensor, /) -> Tensor:
        return self.function(x)

    def outputs(self, x: Tensor) -> Tensor:
        """Outputs in the space in which they are compared: probabilities for classes."""
        return compared(self.function, self.classes)(x)


def compared(function: Callable[[Tensor], Tensor], classes: int) -> Callable[[Tensor], Tensor]:
    """The function itself, or its probabilities where it gives class logits on axis 2."""
    return Probabilities(function) if classes else function


@storable()
@dataclass(frozen=True, eq=False)
class Probabilities:
    """Class probabilities of a function that gives logits on axis 2."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        return torch.softmax(self.function(x), dim=2)

    def part(self, charts: range) -> Probabilities:
        """Those of some of the charts; the function must have parts."""
        return Probabilities(part_of(self.function, charts))


def part_of(function: Callable[..., T], charts: range) -> Callable[..., T]:
    """The function of some of the charts, where it knows its parts."""
    return function.part(charts)  # type: ignore[attr-defined]


def has_parts(function: object) -> bool:
    """Whether a function can be asked for some of its charts alone."""
    inner = function.function if isinstance(function, Probabilities) else function
    return hasattr(inner, "part")


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
        train: Indices that were fitted to.
        held_out: Indices that judge.
        reach: Radius of the receptive field in pixels.
        inner: Shape of the middle of the outputs that counts.
    """
    skill = measure_skill(functions[0], samples, train, held_out, inner=inner)
    told = (kind, skill.pooled, skill.charts, reach, samples.classes, len(train), seconds, curves or {})
    return [FittedPredictor(function, *told) for function in functions]


@dataclass(frozen=True, eq=False)
class Folds:
    """The task of a recipe in closed form: the targets and the plants, for every fold.

    Arguments:
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
        functions: Sequence[Sequence[Callable[[Tensor], Tensor]]],
        *,
        kind: str,
        reach: float = 0.0,
        inner: tuple[int, ...] | None = None,
    ) -> list[list[FittedPredictor]]:
        """For every fold that is wanted the map of the targets, and after it those of the plants.

        Arguments:
            functions: These maps, for every fold that is wanted.
            reach: Radius of the receptive field in pixels.
            inner: Shape of the middle of the outputs that counts.
        """
        return [
            with_skill(
                maps, self.samples, self.train(k), (self.fold == k).nonzero().flatten(), kind=kind,
                reach=reach, seconds=time.perf_counter() - self.started, inner=inner,
            )
            for k, maps in zip(self.wanted, functions, strict=True)
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


@runtime_checkable
class PredictorSpec(Protocol):
    """A recipe for a predictor; `fit_predictor` carries it out."""

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits all charts together on `train`, and measures skill on `held_out`."""
