"""Maps of latitude and longitude on the icosahedral grid, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.nn.icosahedron import IcosahedralGrid, icosahedral_grid


class IcosahedralProjection:
    """Brings fields from a map to the grid and from the grid to the map.

    The part of a field that is a sum of spherical harmonics up to `degree` is fitted by least squares, with weights
    of area, and evaluated anew: it goes over exactly, constants included. The rest is interpolated: bilinearly between
    the rows and columns of the map, linearly in the triangles of the grid.

    Arguments:
        resolution: Of the grid.
        latitudes: Of the rows, in degrees, rising or falling.
        longitudes: Of the columns, in degrees, evenly once around towards the east.
        degree: Of the harmonics that are exact; -1 for none, and interpolation alone.

    Example:
        >>> latitudes, longitudes = torch.linspace(88, -88, 45), torch.arange(0, 360, 4.0)
        >>> projection = IcosahedralProjection(3, latitudes, longitudes)
        >>> height = torch.sin(torch.deg2rad(latitudes.double()))[:, None].expand(45, 90)
        >>> values = projection.to_grid(height)
        >>> bool((values - projection.grid.points[:, 2]).abs().max() < 1e-6)
        True
    """

    def __init__(
        self,
        resolution: int,
        latitudes: Tensor | Sequence[float],
        longitudes: Tensor | Sequence[float],
        *,
        degree: int = 3,
    ) -> None:
        self.grid: IcosahedralGrid = icosahedral_grid(resolution)
        self.latitudes = torch.as_tensor(latitudes, dtype=torch.float64)
        self.longitudes = torch.as_tensor(longitudes, dtype=torch.float64)
        self.degree = degree
        self._check()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the map."""
        return len(self.latitudes), len(self.longitudes)

    def to_grid(self, field: Tensor) -> Tensor:
        """Values at the vertices, `(*, N)`, of a map `(*, H, W)`."""
        self._check_map(field)
        harmonics, fit = self._map_harmonics
        smooth = (field.double() * self._areas[:, None]).flatten(-2) @ harmonics @ fit  # (*, q) coefficients
        rest = field.double() - (smooth @ harmonics.mT).unflatten(-1, self.shape)
        index, weight = self._to_grid
        read = (self._with_poles(rest).flatten(-2)[..., index] * weight).sum(-1)
        return (read + smooth @ _harmonics(self.grid.points, self.degree).mT).to(_floating(field))

    def to_map(self, values: Tensor) -> Tensor:
        """A map `(*, H, W)` of values at the vertices, `(*, N)`."""
        self._check_values(values)
        harmonics, fit = self._grid_harmonics
        smooth = values.double() @ harmonics @ fit
        rest = values.double() - smooth @ harmonics.mT
        index, weight = self._to_map
        read = (rest[..., index] * weight).sum(-1) + smooth @ self._map_harmonics[0].mT
        return read.unflatten(-1, self.shape).to(_floating(values))

    def labels_to_grid(self, labels: Tensor) -> Tensor:
        """Classes at the vertices, `(*, N)`, of a map `(*, H, W)`: those of the nearest row and column."""
        self._check_map(labels)
        return labels.flatten(-2)[..., self._nearest]

    def labels_to_map(self, labels: Tensor) -> Tensor:
        """Classes on the map, `(*, H, W)`, of classes at the vertices, `(*, N)`: those of the nearest vertex."""
        self._check_values(labels)
        index, weight = self._to_map
        nearest = index.gather(-1, weight.argmax(-1, keepdim=True))[:, 0]
        return labels[..., nearest].unflatten(-1, self.shape)

    @cached_property
    def _points(self) -> Tensor:
        """Unit vectors of the pixels, `(H * W, 3)`."""
        latitude, longitude = torch.deg2rad(self.latitudes)[:, None], torch.deg2rad(self.longitudes)[None]
        level = latitude.cos()
        parts = (level * longitude.cos(), level * longitude.sin(), latitude.sin().expand(self.shape))
        return torch.stack(parts, -1).reshape(-1, 3)

    @cached_property
    def _areas(self) -> Tensor:
        """Area that a pixel of each row stands for, `(H,)`: up to half-way to the next rows."""
        order = self.latitudes.argsort()
        sorted_ = torch.deg2rad(self.latitudes[order])
        edges = torch.cat(
            [-sorted_.new_ones(1) * math.pi / 2, (sorted_[1:] + sorted_[:-1]) / 2, sorted_.new_ones(1) * math.pi / 2]
        )
        areas = torch.empty_like(sorted_)
        areas[order] = edges.sin().diff()
        return areas

    @cached_property
    def _map_harmonics(self) -> tuple[Tensor, Tensor]:
        harmonics = _harmonics(self._points, self.degree)
        weight = self._areas.repeat_interleave(len(self.longitudes))
        return harmonics, torch.linalg.inv(harmonics.mT @ (weight[:, None] * harmonics))

    @cached_property
    def _grid_harmonics(self) -> tuple[Tensor, Tensor]:
        harmonics = _harmonics(self.grid.points, self.degree)
        return harmonics, torch.linalg.inv(harmonics.mT @ harmonics)

    @cached_property
    def _to_grid(self) -> tuple[Tensor, Tensor]:
        """Four pixels of the map with poles and their weights for every vertex, `(N, 4)` each."""
        latitude, longitude = _angles(self.grid.points)
        width = len(self.longitudes)
        rows = torch.cat([torch.tensor([90.0]), self._falling, torch.tensor([-90.0])]).double()
        row = (torch.searchsorted(-rows, -latitude, right=True) - 1).clamp(0, len(rows) - 2)
        # A row at a pole makes a gap of nothing; its pole is as good as the row.
        down = ((rows[row] - latitude) / (rows[row] - rows[row + 1]).clamp(min=1e-12)).clamp(0, 1)
        column = ((longitude - self.longitudes[0]) % 360) / (360 / width)
        left = column.floor()
        right_share = column - left
        left = left.long() % width
        right = (left + 1) % width
        index = torch.stack(
            [row * width + left, row * width + right, (row + 1) * width + left, (row + 1) * width + right], -1
        )
        weight = torch.stack(
            [(1 - down) * (1 - right_share), (1 - down) * right_share, down * (1 - right_share), down * right_share], -1
        )
        return index, weight

    @cached_property
    def _nearest(self) -> Tensor:
        """The pixel whose row and column are nearest to every vertex, `(N,)`."""
        latitude, longitude = _angles(self.grid.points)
        height, width = self.shape
        row = torch.searchsorted(-(self._falling[1:] + self._falling[:-1]) / 2, -latitude)
        row = row if self.latitudes[0] > self.latitudes[-1] else height - 1 - row
        column = ((longitude - self.longitudes[0]) * width / 360).round().long() % width
        return row * width + column

    @cached_property
    def _to_map(self) -> tuple[Tensor, Tensor]:
        """Corners of the triangle around every pixel and their weights, `(H * W, 3)` each."""
        return _triangles(self.grid, self._points)

    @property
    def _falling(self) -> Tensor:
        return self.latitudes if self.latitudes[0] > self.latitudes[-1] else self.latitudes.flip(0)

    def _with_poles(self, field: Tensor) -> Tensor:
        """From north to south, with a row for each pole: the mean of the row next to it."""
        if self.latitudes[0] < self.latitudes[-1]:
            field = field.flip(-2)
        north, south = (field[..., i : i + 1, :].mean(-1, keepdim=True) for i in (0, field.shape[-2] - 1))
        width = field.shape[-1]
        ends = [pole.expand(*pole.shape[:-1], width) for pole in (north, south)]
        return torch.cat([ends[0], field, ends[1]], -2)

    def _check(self) -> None:
        rows, columns = self.latitudes, self.longitudes
        if rows.ndim != 1 or columns.ndim != 1 or len(rows) < 2 or len(columns) < 3:
            raise InputError(
                "`latitudes` and `longitudes` must be lists of at least 2 and 3 numbers, "
                f"got {tuple(rows.shape)} and {tuple(columns.shape)}; give one for each row and column."
            )
        steps = rows.diff()
        if not (bool((steps > 0).all()) or bool((steps < 0).all())) or float(rows.abs().max()) > 90 + 1e-9:
            raise InputError("`latitudes` must rise or fall within -90 to 90 degrees; sort the rows of the map.")
        step = 360 / len(columns)
        off = (columns.diff() - step + 180) % 360 - 180  # over the seam is a step too
        if float(off.abs().max()) > 0.01 * step:
            raise InputError(
                f"`longitudes` must go evenly once around, in steps of {step:.4g} degrees, got a first step of "
                f"{float(columns[1] - columns[0]):.4g}; a part of the Earth has no place on the whole grid."
            )
        if not -1 <= self.degree <= 6:
            raise InputError(f"`degree` must be from -1 to 6, got {self.degree}; 3 is usual.")

    def _check_map(self, field: Tensor) -> None:
        if field.ndim < 2 or tuple(field.shape[-2:]) != self.shape:
            raise InputError(f"a map must have shape (*, {self.shape[0]}, {self.shape[1]}), got {tuple(field.shape)}.")

    def _check_values(self, values: Tensor) -> None:
        if not values.ndim or values.shape[-1] != len(self.grid):
            raise InputError(f"values must have shape (*, {len(self.grid)}), got {tuple(values.shape)}.")


def _floating(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _angles(points: Tensor) -> tuple[Tensor, Tensor]:
    """Latitudes and longitudes in degrees."""
    x, y, z = points.unbind(-1)
    return torch.rad2deg(torch.asin(z.clamp(-1, 1))), torch.rad2deg(torch.atan2(y, x)) % 360


def _harmonics(points: Tensor, degree: int) -> Tensor:
    """A basis of the harmonics up to a degree, `(N, (degree + 1)^2)`.

    On the sphere the monomials of the two highest degrees span those of all lower ones, since x^2 + y^2 + z^2 = 1.
    """
    x, y, z = points.unbind(-1)
    columns = [
        x**a * y**b * z ** (d - a - b)
        for d in (degree - 1, degree)
        if d >= 0
        for a in range(d + 1)
        for b in range(d + 1 - a)
    ]
    return torch.stack(columns, -1) if columns else points.new_zeros(len(points), 0)


def _triangles(grid: IcosahedralGrid, points: Tensor) -> tuple[Tensor, Tensor]:
    """The face around each point and the shares of its corners: from the twenty large faces down to the small."""
    chain = [grid]
    while chain[-1].coarser is not None:
        chain.append(chain[-1].coarser)
    options = torch.arange(20).expand(len(points), 20)
    for level in reversed(chain):
        # p = sum of b_i v_i: the point lies in the face where no b is negative.
        inverse = torch.linalg.inv(level.points[level.faces])  # (F, 3, 3), rows of the argument are corners
        shares = torch.stack([torch.einsum("ni,nij->nj", points, inverse[o]) for o in options.unbind(-1)], 1)
        best = shares.amin(-1).argmax(-1)
        face = options.gather(1, best[:, None])[:, 0]
        share = shares[torch.arange(len(points)), best]
        options = 4 * face[:, None] + torch.arange(4)
    share = share.clamp(min=0)
    return grid.faces[face], share / share.sum(-1, keepdim=True)
