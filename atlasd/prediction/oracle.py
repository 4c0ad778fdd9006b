"""A known function in place of a fitted predictor, seen through the charts of an atlas."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.data.units import Units, spreads
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas, PlaneChart, WholeChart
from atlasd.prediction.predictor import FittedPredictor


def oracle_predictor(
    function: Callable[[Tensor], Tensor], samples: Samples, units: Units | None = None
) -> tuple[FittedPredictor, Tensor]:
    """Wraps a differentiable function of whole fields or vectors into a predictor of charts.

    A patch is put back where its chart lies, with its border repeated outwards, the function is applied to the
    whole field, and the chart's output window is read. This is exact for maps that are local within the margin.

    Arguments:
        function: Maps `x` of the samples to outputs: fields on the same grid, or `(N,)` or `(N, outputs)`.
        units: Units in which the predictor takes inputs and gives outputs; raw ones by default.

    Returns:
        The predictor, and the spread of every output in raw units, `(outputs,)`.
    """
    shape = tuple(samples.x.shape[2:]) if samples.is_field else ()
    wrapped: OnFields | OnVectors
    wrapped = OnFields(function, samples.atlas, shape) if samples.is_field else OnVectors(function)
    index = torch.arange(0, len(samples), max(1, len(samples) // (64 if samples.is_field else 4096)))
    try:
        with torch.no_grad():
            y = wrapped(samples.inputs(index))
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"`function` must accept inputs of the shape of `x`, got {type(error).__name__}: {error}"
        ) from error
    if not isinstance(y, Tensor) or not bool(torch.isfinite(y).all()):
        raise InputError("`function` must return finite tensors, got NaN, infinity or another type.")
    spread = spreads(y.movedim(2, -1).flatten(0, -2))
    units = None if units is None else replace(units, outputs=spread)
    radii = samples.atlas.radii
    return FittedPredictor(
        function=replace(wrapped, units=units, double=_takes_doubles(wrapped, samples)),
        kind="given function",
        skill=1.0,
        chart_skill=torch.ones(len(samples.atlas), dtype=torch.float64),
        reach=math.sqrt(2.0) * (radii[0] - radii[1]) if radii else 0.0,
        samples=0,
    ), spread


def _takes_doubles(wrapped: OnFields | OnVectors, samples: Samples) -> bool:
    """Whether a function of vectors can be asked in double precision, as one with single-precision weights cannot."""
    if samples.is_field:
        return False
    try:
        with torch.no_grad():
            return wrapped(samples.inputs(torch.arange(1)).double()).dtype == torch.float64
    except Exception:  # whatever the user's function raises
        return False


@dataclass(frozen=True)
class OnVectors:
    """A function of vectors, seen as one chart.

    Arguments:
        function: The function of raw vectors.
        units: Units of what it is given and gives; raw ones by default.
        double: Whether it is asked in double precision.
    """

    function: Callable[[Tensor], Tensor]
    units: Units | None = None
    double: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        x = x.double() if self.double else x
        raw = x if self.units is None else self.units.raw_inputs(x)
        y = self.function(raw.flatten(0, 1))
        if not isinstance(y, Tensor) or y.ndim == 0 or len(y) != x.shape[0] * x.shape[1]:
            got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise InputError(f"`function` must return one output tensor per sample, (N,) or (N, outputs), got {got}.")
        y = y.unsqueeze(-1) if y.ndim == 1 else y
        return (y if self.units is None else self.units.targets(y)).unflatten(0, x.shape[:2])


@dataclass(frozen=True)
class OnFields:
    """A function of whole fields, seen through every chart; arguments as for `OnVectors`."""

    function: Callable[[Tensor], Tensor]
    atlas: Atlas
    shape: tuple[int, ...]
    units: Units | None = None
    double: bool = False

    def __call__(self, x: Tensor) -> Tensor:
        if self.units is not None:
            x = x * self.units.channels.reshape(-1, *[1] * len(self.shape)).to(x.dtype)
        charts = enumerate(self.atlas.charts)
        y = torch.stack([_through(self.function, chart, x[:, k], self.shape) for k, chart in charts], 1)
        return y if self.units is None else self.units.targets(y.flatten(0, 1)).unflatten(0, y.shape[:2])

    def part(self, charts: range) -> OnFields:
        """The same through some of the charts."""
        return replace(self, atlas=self.atlas.select(charts))


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
