"""Charts: where on a field a local map is learned, and in which coordinates."""

from __future__ import annotations

__all__ = ["Chart", "PlaneChart", "WholeChart"]

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid, resample
from atlasd.geometry.splines import REACH


@runtime_checkable
class Chart(Protocol):
    """Pulls fields back to a flat patch."""

    @property
    def center(self) -> tuple[float, ...]:
        """Where the chart lies, in its own terms: pixels in the order of the axes, or latitude and longitude."""

    def locate(self, shape: tuple[int, ...]) -> tuple[float, ...]:
        """Where the chart lies on a field of this spatial shape, in pixels."""

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises if the chart does not fit a field of this spatial shape."""

    def input_patch(self, field: Tensor) -> Tensor:
        """Fields `(N, C, *S)` to patches `(N, C, *s)`."""

    def output_patch(self, field: Tensor) -> Tensor:
        """Fields `(N, C, *S)` to the smaller patches on which outputs are compared."""


@dataclass(frozen=True)
class PlaneChart:
    """A square window of a field, recentred, with an optional linear distortion.

    Arguments:
        center: Position in pixels, in the order of the axes; 2 or 3 numbers.
        in_radius: The input patch is `2 * in_radius + 1` pixels wide.
        out_radius: The output patch is `2 * out_radius + 1` pixels wide.
        distortion: Matrix M, as nested tuples: chart coordinates p show the field at `center + M p`.

    Example:
        >>> chart = PlaneChart((4, 5), in_radius=2, out_radius=1)
        >>> chart.output_patch(torch.arange(100.0).reshape(1, 1, 10, 10))[0, 0, 1].tolist()
        [44.0, 45.0, 46.0]
    """

    center: tuple[float, ...]
    in_radius: int
    out_radius: int
    distortion: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if len(self.center) not in (2, 3):
            raise InputError(f"`center` must have 2 or 3 coordinates, got {len(self.center)}.")
        if not 1 <= self.out_radius <= self.in_radius:
            raise InputError(
                "`out_radius` must be at least 1 and at most `in_radius`, "
                f"got out_radius={self.out_radius} and in_radius={self.in_radius}."
            )

    def input_patch(self, field: Tensor) -> Tensor:
        """Fields `(N, C, *S)` to patches `(N, C, 2 in_radius + 1, ...)`."""
        return self._patch(field, self.in_radius)

    def output_patch(self, field: Tensor) -> Tensor:
        """Fields `(N, C, *S)` to patches `(N, C, 2 out_radius + 1, ...)`."""
        return self._patch(field, self.out_radius)

    def locate(self, shape: tuple[int, ...]) -> tuple[float, ...]:
        """The centre itself."""
        return self.center

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises if the chart does not lie inside a field of this spatial shape."""
        if len(shape) != len(self.center):
            raise InputError(
                f"`center` must have as many coordinates as the field has axes ({len(shape)}), got {self.center}."
            )
        corners = self._points(self.in_radius)
        low, high = corners.min(0).values, corners.max(0).values
        if any(low[i] < -1e-6 or high[i] > s - 1 + 1e-6 for i, s in enumerate(shape)):
            raise InputError(
                f"chart at {self.center} with in_radius={self.in_radius} must lie inside the field of shape "
                f"{shape}, got rows and columns {low.tolist()} to {high.tolist()}; "
                "move the centre or make the radius smaller."
            )

    def reach(self) -> list[tuple[int, int]]:
        """First pixel that the chart reads along every axis, and the one after the last, with room to interpolate."""
        return self._box(self._points(self.in_radius))

    def shifted(self, origin: Sequence[int]) -> PlaneChart:
        """The same chart on a field of which the part before `origin` was cut away."""
        return replace(self, center=tuple(c - o for c, o in zip(self.center, origin, strict=True)))

    @property
    def _on_pixels(self) -> bool:
        return self.distortion is None and all(float(c).is_integer() for c in self.center)

    def _box(self, points: Tensor) -> list[tuple[int, int]]:
        room = 0 if self._on_pixels else REACH
        return [(math.floor(float(p.min())) - room, math.ceil(float(p.max())) + room + 1) for p in points.mT]

    def _points(self, radius: int) -> Tensor:
        """Field positions of the patch's pixels, with shape `(Q, d)`, in float64."""
        d = len(self.center)
        p = pixel_grid((2 * radius + 1,) * d, dtype=torch.float64)
        if self.distortion is not None:
            p = p @ torch.tensor(self.distortion, dtype=torch.float64).mT
        return p + torch.tensor(self.center, dtype=torch.float64)

    def _patch(self, field: Tensor, radius: int) -> Tensor:
        d = len(self.center)
        if self._on_pixels:
            for axis, c in enumerate(self.center):
                field = field.narrow(axis - d, int(c) - radius, 2 * radius + 1)
            return field
        points = self._points(radius)
        if field.is_floating_point():
            for axis, (low, high) in enumerate(self._box(points)):
                low, high = max(low, 0), min(high, field.shape[axis - d])
                field = field.narrow(axis - d, low, high - low)
                points[:, axis] -= low
            patch = resample(field, points)
        else:  # classes have no values in between: the nearest pixel
            patch = field[
                ..., *(i.round().long().clamp(0, s - 1) for i, s in zip(points.T, field.shape[-d:], strict=True))
            ]
        return patch.reshape(*patch.shape[:-1], *((2 * radius + 1,) * d))


@dataclass(frozen=True)
class WholeChart:
    """The whole field, or the whole vector, as one chart: global discovery.

    Example:
        >>> WholeChart().input_patch(torch.zeros(3, 1, 8, 8)).shape
        torch.Size([3, 1, 8, 8])
    """

    center: tuple[float, ...] = ()

    def input_patch(self, field: Tensor) -> Tensor:
        """The field itself."""
        return field

    def output_patch(self, field: Tensor) -> Tensor:
        """The field itself."""
        return field

    def locate(self, shape: tuple[int, ...]) -> tuple[float, ...]:
        """Nowhere in particular."""
        return self.center

    def check(self, shape: tuple[int, ...]) -> None:
        """Every field fits."""
