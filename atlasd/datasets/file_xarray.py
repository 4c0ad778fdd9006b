"""netCDF files and zarr stores, read through xarray with their dimension names."""

from __future__ import annotations

__all__ = ["read_variables"]

from pathlib import Path
from typing import Any

import numpy as np
import xarray

from atlasd.datasets.files import Variable


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The data variables; coordinates are used for the direction of the axes only."""
    if kind == "zarr":
        return _read_zarr(path)
    with path.open("rb") as handle:
        engine = "scipy" if handle.read(3) == b"CDF" else "h5netcdf"
    with xarray.open_dataset(path, engine=engine, decode_times=False) as dataset:
        return _listed(dataset, path, {"engine": engine})


def _read_zarr(path: Path) -> dict[str, Variable]:
    options: dict[str, Any] = {"engine": "zarr", "consolidated": False}
    try:
        with xarray.open_dataset(path, decode_times=False, **options) as dataset:
            return _listed(dataset, path, options)
    except (KeyError, ValueError):  # a store that was not written by xarray has no dimension names
        import zarr

        store = zarr.open(str(path), mode="r")
        arrays = {path.stem: store} if isinstance(store, zarr.Array) else dict(store.arrays())
        return {n: Variable(n, tuple(a.shape), np.dtype(a.dtype), _ZarrReader(a)) for n, a in arrays.items()}


class _ZarrReader:
    def __init__(self, array: Any) -> None:
        self._array = array

    def __call__(self, rows: slice, axis: int) -> np.ndarray:
        return self._array[(slice(None),) * axis + (rows,)]


class _Reader:
    """Opens the dataset again, and reads a part of one variable with missing values as NaN."""

    def __init__(self, path: Path, options: dict[str, Any], name: str) -> None:
        self._path, self._options, self._name = path, options, name

    def __call__(self, rows: slice, axis: int) -> np.ndarray:
        with xarray.open_dataset(self._path, decode_times=False, **self._options) as dataset:
            array = dataset[self._name]
            return array.isel({array.dims[axis]: rows}).values


def _listed(dataset: Any, path: Path, options: dict[str, Any]) -> dict[str, Variable]:
    found = {}
    for key, array in dataset.data_vars.items():
        name = str(key)
        dims = tuple(str(d) for d in array.dims)
        ascending = tuple(_ascending(dataset, d) for d in array.dims)
        found[name] = Variable(
            name, tuple(array.shape), np.dtype(array.dtype), _Reader(path, options, name), dims, ascending
        )
    return found


def _ascending(dataset: Any, dim: Any) -> bool:
    if dim not in dataset.coords:
        return True
    values = dataset.coords[dim].values
    return values.ndim != 1 or values.size < 2 or values.dtype.kind not in "fiu" or bool(values[-1] >= values[0])
