"""ClimateNet's files: sixteen variables on a map of the Earth and what experts drew on it, read as they are needed."""

from __future__ import annotations

__all__ = ["ClimateFolder", "ClimateTime", "open_climate", "MapGrid", "map_grid"]

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atlasd.data.limits import reading
from atlasd.data.probe import check_opens
from atlasd.errors import DataError, InputError
from atlasd.runtime.progress import Progress, Silent
from atlasd.studies.climate.statistics import Statistics, kept_statistics, measured_statistics
from atlasd.studies.climate.synthetic import CLASSES, VARIABLES

LABELS = "LABELS"
Missing: TypeAlias = Literal["refuse", "fill"]
_KIND = "netCDF file or zarr store"
_SUFFIXES = (".nc", ".nc4", ".zarr")
_NAME = re.compile(r"(.+)_(\d+)")
"""Files of one time differ in a number at the end: data-1996-05-31-01-1_4.nc."""


@dataclass(frozen=True)
class ClimateTime:
    """One map and where it is.

    Arguments:
        name: Its name, without the number of the expert.
        sources: Files and the number of the map inside, one for every file that holds labels of it.
    """

    name: str
    sources: tuple[tuple[Path, int], ...]


@dataclass(frozen=True, eq=False)
class ClimateFolder:
    """A folder of maps that need not fit into memory; nothing is kept of what was read.

    Maps have rows from north to south and columns from longitude 0 eastwards, however the files hold them.

    Arguments:
        path: The folder.
        times: Its maps.
        grid: The grid of all files.
        variables: Variables that every map has.
        labelled: Whether maps have labels.
        missing: What to do about missing values: `refuse`, or `fill` in the mean of the map.
    """

    path: Path
    times: tuple[ClimateTime, ...]
    grid: MapGrid
    variables: tuple[str, ...]
    labelled: bool = True
    missing: Missing = "refuse"

    def __len__(self) -> int:
        return len(self.times)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.grid.shape

    def fields(self, number: int, variables: Sequence[str] | None = None) -> Tensor:
        """Variables of one map, `(C, H, W)`, float32; all of them by default."""
        names = self._names(variables)
        path, index = self.times[number].sources[0]
        out = torch.empty(len(names), *self.shape)
        with reading(path, _KIND), _opened(path) as dataset:
            for c, name in enumerate(names):  # one at a time: memory is that of one map of one variable
                out[c] = torch.from_numpy(self._map(dataset, name, index, path))
        return out

    def labels(self, number: int) -> Tensor:
        """What every expert drew on one map, `(E, H, W)`, bytes."""
        if not self.labelled:
            raise InputError(f"`{self.path}` must be opened with labels=True to read labels, got labels=False.")
        drawn = [self._labels(path, index) for path, index in self.times[number].sources]
        return torch.from_numpy(np.concatenate(drawn))

    def batches(
        self, size: int, variables: Sequence[str] | None = None
    ) -> Iterator[tuple[Tensor, list[Tensor] | None]]:
        """Maps `(B, C, H, W)` in order with the labels of each `(E, H, W)`, `size` at a time."""
        names = self._names(variables)
        for start in range(0, len(self), size):
            numbers = range(start, min(start + size, len(self)))
            x = torch.empty(len(numbers), len(names), *self.shape)
            for row, number in enumerate(numbers):
                x[row] = self.fields(number, names)
            yield x, [self.labels(n) for n in numbers] if self.labelled else None

    def statistics(self, progress: Progress | None = None) -> Statistics:
        """Mean and spread of every variable, and shares of the classes: computed once, then kept in the folder."""
        files = sorted({source[0] for time in self.times for source in time.sources})
        found = kept_statistics(self.path, files, self.variables)
        return found or measured_statistics(self, files, progress or Silent())

    def _names(self, variables: Sequence[str] | None) -> tuple[str, ...]:
        names = self.variables if variables is None else tuple(variables)
        if absent := [n for n in names if n not in self.variables]:
            raise DataError(
                f"`{self.path}` must hold the variable {absent[0]}, got {', '.join(self.variables)}; "
                "name others, or add it to every file."
            )
        return names

    def _map(self, dataset: Any, name: str, index: int, path: Path) -> np.ndarray:
        array = dataset[name]
        if "time" in array.dims:
            array = array.isel(time=index)
        values = self.grid.arrange(array, path, name).astype(np.float32)
        bad = ~np.isfinite(values)
        if bad.any():
            if self.missing == "refuse" or bad.all():
                raise DataError(
                    f"`{path}` must have a value of {name} everywhere, got none in {int(bad.sum())} of {bad.size} "
                    "pixels; open it with missing='fill', or leave the file out."
                )
            values[bad] = values[~bad].mean(dtype=np.float64)
        return values

    def _labels(self, path: Path, index: int) -> np.ndarray:
        with reading(path, _KIND), _opened(path) as dataset:
            array = dataset[LABELS]
            if "time" in array.dims:
                array = array.isel(time=index)
            others = [d for d in array.dims if d not in self.grid.dims(array, path, LABELS)]
            layers = [array.isel({others[0]: k}) for k in range(array.sizes[others[0]])] if others else [array]
            drawn = np.stack([self.grid.arrange(layer, path, LABELS) for layer in layers])
        known = np.isin(drawn, range(len(CLASSES)))
        if not known.all():
            wrong = drawn[~known].flat[0]
            raise DataError(
                f"`{path}` must have LABELS from 0 to {len(CLASSES) - 1} everywhere, got {wrong:g} in "
                f"{int((~known).sum())} pixels; mend or leave out the file."
            )
        return drawn.astype(np.uint8)


def open_climate(
    path: str | Path,
    *,
    split: Literal["train", "test"] | None = None,
    labels: bool = True,
    missing: Missing = "refuse",
) -> ClimateFolder:
    """Opens a folder of ClimateNet's netCDF files, a zarr store with an axis `time`, or a single file.

    Only names and shapes are read. Files of one time, which differ in the number at the end of their names, are one
    map with several experts.

    Arguments:
        path: The folder; that with `train` and `test` inside, or one of them.
        split: Which of the two; `train` by default where there are both.
        labels: Whether labels are needed.
        missing: `refuse` maps with missing values, or `fill` in the mean of the map.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(f"`{path}` must be a folder of netCDF files, got nothing there; `atlasd data climate` fetches.")
    if split is not None or (path.is_dir() and path.suffix != ".zarr" and (path / "train").is_dir()):
        path = path / (split or "train")
        if not path.is_dir():
            raise DataError(f"`{path.parent}` must hold the folder {path.name!r}, got none; leave `split` out.")
    single = path.is_file() or path.suffix == ".zarr"
    files = [path] if single else sorted(f for f in path.iterdir() if f.suffix in _SUFFIXES)
    if not files:
        raise DataError(f"`{path}` must hold netCDF files (.nc) or zarr stores, got none; name another folder.")
    grid: MapGrid | None = None
    found: dict[str, list[tuple[Path, int]]] = {}
    common: list[str] = []
    for file in files:
        check_opens(file, "file_xarray", "zarr" if file.suffix == ".zarr" else "netcdf")
        with reading(file, _KIND), _opened(file) as dataset:
            grid = _checked_grid(dataset, file, grid, files[0])
            if labels and LABELS not in dataset.data_vars:
                raise DataError(
                    f"`{file}` must hold the variable LABELS, got {', '.join(map(str, list(dataset.data_vars)[:4]))}, "
                    "...; leave the file out, or open it with labels=False."
                )
            have = [v for v in VARIABLES if v in dataset.data_vars]
            common = have if file is files[0] else [v for v in common if v in have]
            count = int(dataset.sizes.get("time", 1))
        match = _NAME.fullmatch(file.stem)
        stem = match[1] if match else file.stem
        for index in range(count):
            found.setdefault(stem if count == 1 else f"{stem}:{index}", []).append((file, index))
    if not common:
        raise DataError(f"`{path}` must hold some of {', '.join(VARIABLES)}, got none in every file; is it ClimateNet?")
    assert grid is not None
    times = tuple(ClimateTime(name, tuple(sources)) for name, sources in found.items())
    return ClimateFolder(path.parent if single else path, times, grid, tuple(common), labels, missing)


def _checked_grid(dataset: Any, file: Path, grid: MapGrid | None, first: Path) -> MapGrid:
    own = map_grid(dataset, file)
    if grid is not None and own.shape != grid.shape:
        raise DataError(
            f"`{file}` must have the grid {grid.shape} of `{first}`, got {own.shape}; give it a folder of its own."
        )
    return own if grid is None else grid


def _opened(path: Path) -> Any:
    """The dataset, not read yet; to be closed."""
    try:
        from atlasd.data.file_xarray import open_dataset

        with reading(path, _KIND):
            return open_dataset(path, zarr=path.suffix == ".zarr")
    except ImportError as error:
        raise DataError(
            f"`{path}` needs the package {error.name!r} to be read; install it with pip install 'atlasd[climate]'."
        ) from error


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
        """Values of one map, read, rows from north to south and columns eastwards, `(H, W)`."""
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
