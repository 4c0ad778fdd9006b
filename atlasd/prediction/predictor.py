"""Predictors: what stands in for the unknown map, how it is asked for and what comes back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

from atlasd.data.samples import Samples
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


def part_of(function: Callable[..., T], charts: range) -> Callable[..., T]:
    """The function of some of the charts, where it knows its parts."""
    return function.part(charts)  # type: ignore[attr-defined]


def selected(function: Callable[..., T], charts: Sequence[int]) -> Callable[..., T]:
    """The function of single charts, where it has one map for each."""
    return function.select(charts)  # type: ignore[attr-defined, no-any-return]


def has_parts(function: object) -> bool:
    """Whether a function can be asked for some of its charts alone."""
    inner = function.function if isinstance(function, Probabilities) else function
    return hasattr(inner, "part")


@runtime_checkable
class PredictorSpec(Protocol):
    """A recipe for a predictor; `fit_predictor` carries it out."""

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits all charts together on `train`, and measures skill on `held_out`."""
