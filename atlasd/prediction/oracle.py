"""A known function in place of a fitted predictor, seen through the charts of an atlas."""

from __future__ import annotations

__all__ = ["oracle_predictor"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.charts import PlaneChart, WholeChart
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.samples import Samples


def oracle_predictor(function: Callable[[Tensor], Tensor], samples: Samples) -> FittedPredictor:
    """Wraps a differentiable function of whole fields or vectors into a predictor of charts.

    A patch is put back where its chart lies, with its border repeated outwards, the function is applied to the
    whole field, and the chart's output window is read. This is exact for maps that are local within the margin.

    Arguments:
        function: Maps `x` of the samples to outputs: fields on the same grid, or `(N,)` or `(N, outputs)`.
        samples: The inputs.
    """
    shape = tuple(samples.x.shape[2:]) if samples.is_field else ()

    wrapped: OnFields | OnVectors
    wrapped = OnFields(function, samples.atlas, shape) if samples.is_field else OnVectors(function)
    try:
        with torch.no_grad():
            y = wrapped(samples.inputs(torch.arange(2)))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"`function` must accept inputs of the shape of `x`, got {type(error).__name__}: {error}"
        ) from error
    if not isinstance(y, Tensor) or not bool(torch.isfinite(y).all()):
        raise InputError("`function` must return finite tensors, got NaN, infinity or another type.")
    radii = samples.atlas.radii
    return FittedPredictor(
        function=wrapped,
        kind="given function",
        skill=1.0,
        chart_skill=torch.ones(len(samples.atlas), dtype=torch.float64),
        reach=math.sqrt(2.0) * (radii[0] - radii[1]) if radii else 0.0,
        samples=0,
    )


@dataclass(frozen=True)
class OnVectors:
    """A function of vectors, seen as one chart."""

    function: Callable[[Tensor], Tensor]

    def __call__(self, x: Tensor) -> Tensor:
        y = self.function(x.flatten(0, 1))
        if not isinstance(y, Tensor) or y.ndim == 0 or len(y) != x.shape[0] * x.shape[1]:
            got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise InputError(f"`function` must return one output tensor per sample, (N,) or (N, outputs), got {got}.")
        return (y.unsqueeze(-1) if y.ndim == 1 else y).unflatten(0, x.shape[:2])


@dataclass(frozen=True)
class OnFields:
    """A function of whole fields, seen through every chart."""

    function: Callable[[Tensor], Tensor]
    atlas: Atlas
    shape: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        charts = enumerate(self.atlas.charts)
        return torch.stack([_through(self.function, chart, x[:, k], self.shape) for k, chart in charts], 1)

    def part(self, charts: range) -> OnFields:
        """The same through some of the charts."""
        return OnFields(self.function, self.atlas.select(charts), self.shape)


def _through(function: Callable[[Tensor], Tensor], chart: object, patch: Tensor, shape: tuple[int, ...]) -> Tensor:
    """One chart's output window, with shape `(B, C', *out)`."""
    if isinstance(chart, WholeChart):
        return function(patch)
    if (
        not isinstance(chart, PlaneChart)
        or chart.distortion is not None
        or not all(float(c).is_integer() for c in chart.center)
    ):
        raise InputError("`atlas` must have whole-pixel charts without distortion for a function of whole fields.")
    pads: list[int] = []
    for c, size in zip(reversed(chart.center), reversed(shape), strict=True):
        low = int(c) - chart.in_radius
        pads += [low, size - low - 2 * chart.in_radius - 1]
    return chart.output_patch(function(functional.pad(patch, pads, mode="replicate")))
