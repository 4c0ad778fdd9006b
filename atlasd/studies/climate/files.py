"""ClimateNet's files: sixteen variables on a map of the Earth and what experts drew on it, read as they are needed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor

from atlasd.data.file_limits import reading
from atlasd.data.probe import check_opens
from atlasd.errors import DataError, InputError
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
        variables: Variables that every map has.
        missing: What to do about missing values: `refuse`, or `fill` in the mean of the map.
    """

    path: Path
    times: tuple[ClimateTime, ...]
    shape: tuple[int, int]
    variables: tuple[str, ...]
    labelled: bool = True
    missing: Missing = "refuse"

    def __len__(self) -> int:
        return len(self.times)

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
        values = _arranged(array, path, name, self.shape).astype(np.float32)
        if values.ndim > 2:
            raise DataError(
                f"`{path}` must have {name} on axes time, lat and lon, got {', '.join(map(str, array.dims))}; "
                "select one."
            )
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
            drawn = _arranged(array, path, LABELS, self.shape).reshape(-1, *self.shape)
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
    shape: tuple[int, int] | None = None
    found: dict[str, list[tuple[Path, int]]] = {}
    common: list[str] = []
    for file in files:
        check_opens(file, "file_xarray", "zarr" if file.suffix == ".zarr" else "netcdf")
        with reading(file, _KIND), _opened(file) as dataset:
            own = _grid_shape(dataset, file)
            if shape is not None and own != shape:
                raise DataError(
                    f"`{file}` must have the grid {shape} of `{files[0]}`, got {own}; give it a folder of its own."
                )
            shape = own
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
    assert shape is not None
    times = tuple(ClimateTime(name, tuple(sources)) for name, sources in found.items())
    return ClimateFolder(path.parent if single else path, times, shape, tuple(common), labels, missing)


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


_AXES = {"latitude": "lat", "longitude": "lon"}


def _arranged(array: Any, path: Path, name: str, shape: tuple[int, int]) -> np.ndarray:
    """Values of a map `(*, H, W)`, read: rows from north to south, columns from longitude 0 eastwards."""
    array = array.rename({long: short for long, short in _AXES.items() if long in array.dims}).load()
    if not {"lat", "lon"} <= set(array.dims):
        raise DataError(
            f"`{path}` must have {name} on axes lat and lon, got {', '.join(map(str, array.dims))}; rename them."
        )
    array = array.transpose(..., "lat", "lon")
    if array.shape[-2:] != shape:
        raise DataError(f"`{path}` must have {name} on the grid {shape}, got {array.shape[-2:]}.")
    if "lat" in array.coords:
        array = array.sortby("lat", ascending=False)
    if "lon" in array.coords:
        array = array.assign_coords(lon=array.lon % 360).sortby("lon")
    return np.ascontiguousarray(array.values)


def _grid_shape(dataset: Any, path: Path) -> tuple[int, int]:
    """Rows and columns of a dataset; raises if they are not latitudes and longitudes."""
    dataset = dataset.rename({long: short for long, short in _AXES.items() if long in dataset.sizes})
    if not {"lat", "lon"} <= set(dataset.sizes):
        raise DataError(f"`{path}` must have axes lat and lon, got {', '.join(map(str, dataset.sizes)) or 'none'}.")
    for name, least, most, words in (
        ("lat", -90, 90, "latitudes from -90 to 90"),
        ("lon", -180, 360, "longitudes in -180..180 or 0..360"),
    ):
        if name not in dataset.coords:
            continue
        values = np.asarray(dataset.coords[name].values, dtype=np.float64)
        if not np.isfinite(values).all() or len(np.unique(values)) < len(values):
            raise DataError(f"`{path}` must have {words}, each once, got some that are repeated or missing; mend it.")
        if values.min() < least - 0.01 or values.max() > most + 0.01:
            raise DataError(f"`{path}` must have {words}, got {values.min():g} to {values.max():g}.")
    return int(dataset.sizes["lat"]), int(dataset.sizes["lon"])
