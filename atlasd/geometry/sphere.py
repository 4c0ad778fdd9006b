"""Charts of the sphere: flat patches of fields that are given on equirectangular grids."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid, resample
from atlasd.geometry.splines import REACH

Projection: TypeAlias = Literal["orthographic", "gnomonic", "equidistant", "equirectangular"]

# The farthest corner of a patch, as a distance in the plane: what lies beyond cannot be shown, or only smeared out.
LIMITS = {"orthographic": 1.0, "gnomonic": math.tan(math.radians(85)), "equidistant": math.pi, "equirectangular": 3.0}


@dataclass(frozen=True)
class SphereChart:
    """The plane that touches the sphere at one point, or the paper's equirectangular window around it.

    Fields have rows from north to south and columns once around towards the east. Row i lies at latitude
    `90 - (i + 0.5) 180 / H` and column j at longitude `(j + 0.5) 360 / W`; with `poles`, the first and the last row
    are the poles, and column j lies at `360 j / W`. Fields of integers, such as classes, are read at the nearest pixel.

    Chart coordinates are (row, column) offsets in pixels: to the south and to the east, then rotated by `turn`.

    Arguments:
        latitude: Of the centre, in degrees, north is positive.
        longitude: Of the centre, in degrees, east is positive; 370 is 10.
        in_radius: The input patch is `2 * in_radius + 1` pixels wide.
        out_radius: The output patch is `2 * out_radius + 1` pixels wide.
        pixel: Size of a pixel at the centre, in degrees.
        turn: Rotates the chart in its plane, in degrees: the row axis goes from south towards east.
        projection: `orthographic` looks from far away, `gnomonic` from the middle of the sphere (great circles
            are straight), `equidistant` keeps distances from the centre, `equirectangular` is the grid itself.
        poles: Whether the grid has rows at the poles.
        vectors: Pairs of channels that hold the eastward and the northward component of tangent vectors. In a
            patch they hold the components along the chart's rows and columns, of the same length as on the sphere.

    Example:
        >>> latitude = 90 - (torch.arange(60) + 0.5) * 3
        >>> field = latitude[:, None].expand(1, 1, 60, 120)
        >>> chart = SphereChart(30.0, 0.0, in_radius=4, out_radius=1, pixel=3.0)
        >>> chart.output_patch(field)[0, 0, :, 1].round().tolist()
        [33.0, 30.0, 27.0]
    """

    latitude: float
    longitude: float
    in_radius: int
    out_radius: int
    pixel: float = 1.0
    turn: float = 0.0
    projection: Projection = "equidistant"
    poles: bool = False
    vectors: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not -90 <= self.latitude <= 90:
            raise InputError(f"`latitude` must lie between -90 and 90 degrees, got {self.latitude}.")
        if not 1 <= self.out_radius <= self.in_radius:
            raise InputError(
                "`out_radius` must be at least 1 and at most `in_radius`, "
                f"got out_radius={self.out_radius} and in_radius={self.in_radius}."
            )
        if self.projection not in get_args(Projection):
            raise InputError(f"`projection` must be one of {', '.join(get_args(Projection))}, got {self.projection!r}.")
        largest = largest_pixel(self.projection, self.in_radius)
        if not 0 < self.pixel <= largest:
            raise InputError(
                f"`pixel` must lie between 0 and {largest:.4g} degrees for a patch with in_radius={self.in_radius} "
                f"in the {self.projection} projection, got {self.pixel}; make it or the radius smaller."
            )

    @property
    def center(self) -> tuple[float, float]:
        """Latitude and longitude in degrees."""
        return (self.latitude, self.longitude)

    def locate(self, shape: tuple[int, ...]) -> tuple[float, ...]:
        """Row and column of the centre on a grid."""
        rows, columns = self._positions(self._directions(pixel_grid((1, 1), dtype=torch.float64)), shape)
        return (float(rows[0]), float(columns[0]) % shape[1])

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises unless a field of this spatial shape can cover the sphere."""
        if len(shape) != 2 or shape[0] < 4 or shape[1] < 4 or shape[1] % 2:
            raise InputError(
                f"a field on the sphere must have 2 axes, with an even number of columns, got {tuple(shape)}; "
                "give latitude by longitude."
            )

    def input_patch(self, field: Tensor) -> Tensor:
        """Fields `(N, C, H, W)` to patches `(N, C, 2 in_radius + 1, 2 in_radius + 1)`."""
        return self._patch(field, self.in_radius)

    def output_patch(self, field: Tensor) -> Tensor:
        """Fields `(N, C, H, W)` to patches `(N, C, 2 out_radius + 1, 2 out_radius + 1)`."""
        return self._patch(field, self.out_radius)

    def _patch(self, field: Tensor, radius: int) -> Tensor:
        shape = tuple(field.shape[-2:])
        width = 2 * radius + 1
        p = pixel_grid((width, width), dtype=torch.float64)
        points = self._directions(p)
        rows, columns = self._positions(points, shape)
        if not field.is_floating_point():
            index = _wrap(rows.round().long(), columns.round().long(), shape, self.poles)
            return field.flatten(-2)[..., index].unflatten(-1, (width, width))
        index, where = _box(rows, columns, shape, self.poles)
        flat = field.flatten(-2)
        where = where.to(field.dtype)
        patch = resample(flat[..., index], where)
        if self.vectors:
            patch = self._turned(patch, flat, index, where, self._frame(p, points), shape)
        return patch.unflatten(-1, (width, width))

    def _turned(
        self, patch: Tensor, flat: Tensor, index: Tensor, where: Tensor, frame: Tensor, shape: tuple[int, ...]
    ) -> Tensor:
        """Replaces vector channels of `patch` `(N, C, Q)` by their components along `frame` `(Q, 2, 3)`."""
        channels = {c for pair in self.vectors for c in pair}
        if not all(0 <= c < flat.shape[1] for c in channels):
            raise InputError(f"`vectors` must name channels from 0 to {flat.shape[1] - 1}, got {self.vectors}.")
        # In space, components do not jump at the poles as eastward and northward ones do.
        north, east = (v.to(flat.dtype) for v in _compass(*_grid_angles(shape, self.poles)))  # (H W, 3)
        patch = patch.clone()
        for u, v in self.vectors:
            space = flat[:, u, None] * east.mT + flat[:, v, None] * north.mT  # (N, 3, H W)
            patch[:, [u, v]] = torch.einsum("qdi,niq->ndq", frame.to(flat.dtype), resample(space[..., index], where))
        return patch

    def _plane(self, p: Tensor) -> Tensor:
        """Chart coordinates as (southward, eastward) distances in radians, with shape `(Q, 2)`."""
        return p @ self._rotation().mT * math.radians(self.pixel)

    def _rotation(self) -> Tensor:
        c, s = math.cos(math.radians(self.turn)), math.sin(math.radians(self.turn))
        return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)

    def _axes(self) -> tuple[Tensor, Tensor]:
        """The centre, and the unit vectors to the south and to the east there, `(2, 3)`."""
        angles = torch.tensor([[math.radians(self.latitude), math.radians(self.longitude)]], dtype=torch.float64)
        north, east = _compass(angles[:, 0], angles[:, 1])
        return _direction(angles[:, 0], angles[:, 1])[0], torch.stack([-north[0], east[0]])

    def _directions(self, p: Tensor) -> Tensor:
        """Unit vectors that the chart shows at `p`, with shape `(Q, 3)`."""
        q = self._plane(p)
        if self.projection == "equirectangular":
            return _direction(math.radians(self.latitude) - q[:, 0], math.radians(self.longitude) + q[:, 1])
        centre, axes = self._axes()
        distance = q.norm(dim=-1, keepdim=True)
        if self.projection == "orthographic":
            arc = torch.asin(distance.clamp_max(1.0))
        else:
            arc = torch.atan(distance) if self.projection == "gnomonic" else distance
        away = (q @ axes) / distance.clamp_min(1e-300)
        return arc.cos() * centre + arc.sin() * away

    def _frame(self, p: Tensor, points: Tensor) -> Tensor:
        """Unit tangent vectors along the chart's rows and columns at every point, with shape `(Q, 2, 3)`."""
        if self.projection == "equirectangular":
            q = self._plane(p)
            north, east = _compass(math.radians(self.latitude) - q[:, 0], math.radians(self.longitude) + q[:, 1])
            return torch.einsum("ab,qai->qbi", self._rotation(), torch.stack([-north, east], 1))
        centre, axes = self._axes()
        axes = self._rotation().mT @ axes
        # Carried along the great circle from the centre: v - (x.v) (x + c) / (1 + x.c).
        along = points @ axes.mT / (1 + points @ centre).clamp_min(1e-12)[:, None]
        return axes - along[..., None] * (points + centre)[:, None]

    def _positions(self, points: Tensor, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Fractional rows and columns of unit vectors; columns run on across the date line."""
        return _positions(points, shape, self.longitude, self.poles)


def rotate_sphere(field: Tensor, rotation: Tensor, *, poles: bool = False) -> Tensor:
    """Rotates scalar fields on an equirectangular grid about the middle of the sphere.

    Arguments:
        field: Fields, with shape `(N, C, H, W)`, rows from north to south.
        rotation: A rotation of space, `(3, 3)`; the third axis points to the north, the first to longitude 0.
        poles: Whether the grid has rows at the poles.

    Example:
        >>> half = torch.diag(torch.tensor([-1.0, -1.0, 1.0]))
        >>> field = torch.arange(8.0).expand(1, 1, 4, 8)
        >>> rotate_sphere(field, half)[0, 0, 0].round().int().tolist()
        [4, 5, 6, 7, 0, 1, 2, 3]
    """
    if rotation.shape != (3, 3):
        raise InputError(f"`rotation` must have shape (3, 3), got {tuple(rotation.shape)}.")
    shape = tuple(field.shape[-2:])
    points = _direction(*_grid_angles(shape, poles)) @ rotation.double()  # rows are R^-1 x
    index, where = _box(*_positions(points, shape, 0.0, poles), shape, poles)
    return resample(field.flatten(-2)[..., index], where.to(field.dtype)).unflatten(-1, shape)


def largest_pixel(projection: Projection, in_radius: int) -> float:
    """The largest pixel in degrees for which the corners of a patch can be shown."""
    return math.degrees(LIMITS[projection] / (math.sqrt(2.0) * in_radius))


def fibonacci_points(count: int) -> list[tuple[float, float]]:
    """Latitudes and longitudes of points that are spread evenly along a spiral from pole to pole.

    Example:
        >>> [round(latitude) for latitude, _ in fibonacci_points(3)]
        [42, 0, -42]
    """
    golden = 180 * (3 - math.sqrt(5.0))
    return [(math.degrees(math.asin(1 - (2 * k + 1) / count)), k * golden % 360) for k in range(count)]


def _direction(latitude: Tensor, longitude: Tensor) -> Tensor:
    """Unit vectors `(Q, 3)`; latitudes beyond a pole come down on its other side."""
    flat = latitude.cos()
    return torch.stack([flat * longitude.cos(), flat * longitude.sin(), latitude.sin()], -1)


def _compass(latitude: Tensor, longitude: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors to the north and to the east, each `(Q, 3)`."""
    rise, flat = latitude.sin(), latitude.cos()
    c, s = longitude.cos(), longitude.sin()
    return torch.stack([-rise * c, -rise * s, flat], -1), torch.stack([-s, c, torch.zeros_like(c)], -1)


def _grid_angles(shape: tuple[int, ...], poles: bool) -> tuple[Tensor, Tensor]:
    """Latitudes and longitudes of the pixels of a grid in radians, each `(H W,)`."""
    height, width = shape
    row, column = torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64)
    latitude = math.pi / 2 - (row * math.pi / (height - 1) if poles else (row + 0.5) * math.pi / height)
    longitude = (column if poles else column + 0.5) * 2 * math.pi / width
    mesh = torch.meshgrid(latitude, longitude, indexing="ij")
    return mesh[0].flatten(), mesh[1].flatten()


def _positions(points: Tensor, shape: tuple[int, ...], middle: float, poles: bool) -> tuple[Tensor, Tensor]:
    """Fractional rows and columns of unit vectors, with longitudes within 180 degrees of `middle`, in degrees."""
    height, width = shape
    latitude = torch.rad2deg(torch.atan2(points[:, 2], points[:, :2].norm(dim=-1)))
    longitude = torch.rad2deg(torch.atan2(points[:, 1], points[:, 0]))
    around = (longitude - middle + 180) % 360 - 180 + middle
    if poles:
        return (90 - latitude) * (height - 1) / 180, around * width / 360
    return (90 - latitude) * height / 180 - 0.5, around * width / 360 - 0.5


def _box(rows: Tensor, columns: Tensor, shape: tuple[int, ...], poles: bool) -> tuple[Tensor, Tensor]:
    """Flat indices of the part of a grid around the given positions, and the positions `(Q, 2)` in that part."""
    # Beyond a pole rows can be followed down to the other one, and no further.
    margin = min(REACH, shape[0] - 2)
    top, left = int(rows.min().floor()) - margin, int(columns.min().floor()) - margin
    down = torch.arange(top, int(rows.max().floor()) + margin + 2)[:, None]
    right = torch.arange(left, int(columns.max().floor()) + margin + 2)[None]
    return _wrap(down, right, shape, poles), torch.stack([rows - top, columns - left], -1)


def _wrap(row: Tensor, column: Tensor, shape: tuple[int, ...], poles: bool) -> Tensor:
    """Flat indices of pixels that may lie beyond the date line, or beyond a pole: there half way around."""
    height, width = shape
    beyond = (row < 0) | (row >= height)
    first, last = (0, 2 * (height - 1)) if poles else (-1, 2 * height - 1)
    row = torch.where(row < 0, first - row, torch.where(row >= height, last - row, row))
    return row * width + (column + beyond * (width // 2)) % width
