"""Charts on the plane, and the atlas that says where they lie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid, resample
from atlasd.geometry.sphere import Projection, SphereChart, fibonacci_points, largest_pixel
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


@dataclass(frozen=True)
class Atlas:
    """Charts of equal patch size on one field.

    Example:
        >>> atlas = Atlas.at([(64, 19), (86, 19)], in_radius=14, out_radius=10)
        >>> atlas.input_patches(torch.zeros(5, 1, 128, 128)).shape
        torch.Size([5, 2, 1, 29, 29])
    """

    charts: tuple[PlaneChart | SphereChart | WholeChart, ...]

    def __post_init__(self) -> None:
        if not self.charts:
            raise InputError("`charts` must hold at least one chart, got none.")
        sizes = {(c.in_radius, c.out_radius) for c in self.charts if not isinstance(c, WholeChart)}
        if len(sizes) > 1 or (sizes and any(isinstance(c, WholeChart) for c in self.charts)):
            raise InputError(f"`charts` must all have the same radii, got {sorted(sizes)}.")

    @classmethod
    def at(
        cls,
        centres: Iterable[Sequence[float]],
        in_radius: int,
        out_radius: int,
        distortions: dict[int, Sequence[Sequence[float]]] | None = None,
    ) -> Atlas:
        """Charts at given centres.

        Arguments:
            centres: Positions in pixels: (row, column) or (depth, row, column).
            in_radius: Half the width of the input patches.
            out_radius: Half the width of the output patches.
            distortions: Linear distortions of single charts, by chart number.
        """
        bent = {k: tuple(tuple(float(v) for v in row) for row in m) for k, m in (distortions or {}).items()}
        points = [tuple(float(v) for v in centre) for centre in centres]
        unknown = sorted(k for k in bent if not 0 <= k < len(points))
        if unknown:
            raise InputError(f"`distortions` must name charts 0 to {len(points) - 1}, got {unknown}.")
        return cls(tuple(PlaneChart(c, in_radius, out_radius, bent.get(k)) for k, c in enumerate(points)))

    @classmethod
    def grid(cls, shape: Sequence[int], in_radius: int, out_radius: int, stride: int | None = None) -> Atlas:
        """Tiles a field with charts whose output patches cover all that input patches can reach.

        Arguments:
            shape: Spatial shape of the field.
            in_radius: Half the width of the input patches.
            out_radius: Half the width of the output patches.
            stride: Largest distance between centres; an output patch by default. Charts overlap where the field
                is not a multiple of it.
        """
        step = 2 * out_radius + 1 if stride is None else stride
        if step < 1:
            raise InputError(f"`stride` must be positive, got {stride}.")
        axes = []
        for size in shape:
            room = size - 2 * in_radius - 1
            if room < 0:
                raise InputError(
                    f"`in_radius` must fit into the field of shape {tuple(shape)}, got {in_radius}; "
                    f"use at most {(min(shape) - 1) // 2}."
                )
            gaps = math.ceil(room / step)
            axes.append([in_radius + i * room // max(gaps, 1) for i in range(gaps + 1)])
        mesh = torch.cartesian_prod(*(torch.tensor(a) for a in axes)).reshape(-1, len(axes))
        return cls.at(mesh.tolist(), in_radius, out_radius)

    @classmethod
    def sphere(
        cls,
        charts: int,
        in_radius: int = 14,
        out_radius: int = 10,
        *,
        pixel: float | None = None,
        projection: Projection = "equidistant",
        turn: float = 0.0,
        poles: bool = False,
        vectors: Sequence[tuple[int, int]] = (),
    ) -> Atlas:
        """Charts spread evenly over the sphere, for fields on an equirectangular grid.

        Arguments:
            charts: How many.
            in_radius: Half the width of the input patches.
            out_radius: Half the width of the output patches.
            pixel: Size of a pixel in degrees; by default output patches overlap a little.
            projection: As in `SphereChart`.
            turn: Rotates every chart in its plane, in degrees.
            poles: Whether the grid has rows at the poles.
            vectors: Pairs of channels that hold eastward and northward components.

        Example:
            >>> Atlas.sphere(12).input_patches(torch.zeros(5, 1, 60, 120)).shape
            torch.Size([5, 12, 1, 29, 29])
        """
        if charts < 1:
            raise InputError(f"`charts` must be positive, got {charts}.")
        if pixel is None:
            # A disc of this radius has the share of one chart of the whole area; two fifths more leave no gaps.
            share = math.degrees(math.acos(max(1 - 2 / charts, -0.5)))
            pixel = min(1.4 * share / out_radius, largest_pixel(projection, in_radius))
        pairs = tuple((int(u), int(v)) for u, v in vectors)
        return cls(
            tuple(
                SphereChart(latitude, longitude, in_radius, out_radius, pixel, turn, projection, poles, pairs)
                for latitude, longitude in fibonacci_points(charts)
            )
        )

    @classmethod
    def whole(cls) -> Atlas:
        """One chart that is everything."""
        return cls((WholeChart(),))

    def __len__(self) -> int:
        return len(self.charts)

    @property
    def radii(self) -> tuple[int, int] | None:
        """`(in_radius, out_radius)`, or `None` for the whole field."""
        first = self.charts[0]
        return None if isinstance(first, WholeChart) else (first.in_radius, first.out_radius)

    def check(self, shape: Sequence[int]) -> None:
        """Raises if any chart leaves a field of this spatial shape."""
        for chart in self.charts:
            chart.check(tuple(shape))

    def select(self, keep: Iterable[int]) -> Atlas:
        """The atlas of some of the charts, by number."""
        return Atlas(tuple(self.charts[k] for k in keep))

    def cropped(self, shape: Sequence[int]) -> tuple[tuple[slice, ...], Atlas]:
        """The smallest box of a field of this spatial shape that all charts need, and the atlas inside it."""
        everything = tuple(slice(0, s) for s in shape), self
        if not all(isinstance(chart, PlaneChart) for chart in self.charts):
            return everything
        reach = [chart.reach() for chart in self.charts if isinstance(chart, PlaneChart)]
        low = [max(0, min(r[axis][0] for r in reach)) for axis in range(len(shape))]
        high = [min(s, max(r[axis][1] for r in reach)) for axis, s in enumerate(shape)]
        moved = tuple(chart.shifted(low) for chart in self.charts if isinstance(chart, PlaneChart))
        return tuple(slice(a, b) for a, b in zip(low, high, strict=True)), Atlas(moved)

    def input_patches(self, field: Tensor) -> Tensor:
        """Fields `(N, C, *S)` to patches `(N, K, C, *s)`."""
        return torch.stack([chart.input_patch(field) for chart in self.charts], dim=1)

    def output_patches(self, field: Tensor) -> Tensor:
        """Fields `(N, C, *S)` to patches `(N, K, C, *s)`."""
        return torch.stack([chart.output_patch(field) for chart in self.charts], dim=1)
