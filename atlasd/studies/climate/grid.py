"""Maps of the Earth in one arrangement: rows from north to south, columns from longitude 0 eastwards."""

from __future__ import annotations

__all__ = ["MapGrid", "map_grid"]

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from atlasd.errors import DataError

_ROWS, _COLUMNS = ("lat", "latitude"), ("lon", "longitude")


@dataclass(frozen=True)
class MapGrid:
    """The shape of a grid of latitudes and longitudes: rows and columns."""

    shape: tuple[int, int]

    def dims(self, array: Any, path: Path, name: str) -> tuple[str, str]:
        """Names of the two axes of an array; raises if it has not both."""
        row = next((d for d in _ROWS if d in array.dims), None)
        column = next((d for d in _COLUMNS if d in array.dims), None)
        if row is None or column is None:
            raise DataError(
                f"`{path}` must have {name} on axes lat and lon, got {', '.join(map(str, array.dims))}; rename them."
            )
        return row, column

    def arrange(self, array: Any, path: Path, name: str) -> np.ndarray:
        """Values of one map, read and turned the right way round, `(H, W)`."""
        row, column = self.dims(array, path, name)
        if others := [d for d in array.dims if d not in (row, column)]:
            raise DataError(f"`{path}` must have {name} on axes time, lat and lon, got {others[0]!r} too; select one.")
        values = array.transpose(row, column).values
        if values.shape != self.shape:
            raise DataError(f"`{path}` must have {name} on the grid {self.shape}, got {values.shape}.")
        latitudes, longitudes = _coordinate(array, row), _coordinate(array, column)
        if latitudes is not None and latitudes[0] < latitudes[-1]:
            values = values[::-1]
        if longitudes is not None:
            start = int(np.argmin(longitudes % 360))  # -180..180 begins in the middle of 0..360
            step = 1 if longitudes[-1] > longitudes[0] else -1
            order = (start + step * np.arange(len(longitudes))) % len(longitudes)
            values = values if start == 0 and step == 1 else values[:, order]
        return np.ascontiguousarray(values)


def map_grid(dataset: Any, path: Path) -> MapGrid:
    """The grid of a dataset; raises if it is not one of latitudes and longitudes in order."""
    row = next((d for d in _ROWS if d in dataset.sizes), None)
    column = next((d for d in _COLUMNS if d in dataset.sizes), None)
    if row is None or column is None:
        raise DataError(f"`{path}` must have axes lat and lon, got {', '.join(map(str, dataset.sizes)) or 'none'}.")
    latitudes, longitudes = _coordinate(dataset, row), _coordinate(dataset, column)
    for name, values in ((row, latitudes), (column, longitudes)):
        if values is None:
            continue
        steps = np.diff(values)
        # Eastwards over the seam is in order too.
        falls = int((steps <= 0).sum()), int((steps >= 0).sum())
        if min(falls) > (1 if name == column else 0):
            raise DataError(f"`{path}` must have its {name} in order, got some that go back and forth; sort the file.")
    if latitudes is not None and (latitudes.min() < -90.01 or latitudes.max() > 90.01):
        raise DataError(f"`{path}` must have latitudes from -90 to 90, got {latitudes.min():g} to {latitudes.max():g}.")
    if longitudes is not None and (longitudes.min() < -180.01 or longitudes.max() > 360.01):
        low, high = longitudes.min(), longitudes.max()
        raise DataError(f"`{path}` must have longitudes in -180..180 or 0..360, got {low:g} to {high:g}.")
    return MapGrid((int(dataset.sizes[row]), int(dataset.sizes[column])))


def _coordinate(array: Any, name: str) -> np.ndarray | None:
    """Values of a coordinate, where there are any."""
    if name not in array.coords:
        return None
    values = np.asarray(array.coords[name].values)
    return values.astype(np.float64) if values.ndim == 1 and values.size > 1 and values.dtype.kind in "fiu" else None
