"""netCDF files and zarr stores, read through xarray with their dimension names."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from atlasd.data.file_hdf5 import check_hdf5
from atlasd.data.files import Variable
from atlasd.data.zarr_check import check_store


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The data variables; coordinates are used for the direction of the axes only."""
    if kind == "zarr":
        check_store(path)
    try:
        with _opened(path, zarr=kind == "zarr") as dataset:
            return _listed(dataset, path, kind == "zarr")
    except (KeyError, ValueError):  # a zarr store that was not written by xarray has no dimension names
        if kind != "zarr":
            raise
        import zarr

        store = zarr.open(str(path), mode="r")
        arrays = {path.stem: store} if isinstance(store, zarr.Array) else dict(store.arrays())
        return {n: Variable(n, tuple(a.shape), np.dtype(a.dtype), partial(_read_zarr, a)) for n, a in arrays.items()}


def variables_of(dataset: Any) -> dict[str, Variable]:
    """The data variables of a dataset in memory."""
    listed = _listed(dataset, Path(), zarr=False)
    return {
        name: replace(v, reader=partial(_read_array, dataset[name]), source="the dataset", bounded=False)
        for name, v in listed.items()
    }


def _read_array(array: Any, rows: slice, axis: int) -> np.ndarray:
    return np.asarray(array.isel({array.dims[axis]: rows}).values)


def open_dataset(path: Path, *, zarr: bool) -> xarray.Dataset:
    """A netCDF file or zarr store, to be closed; nothing is decoded but missing values and scales."""
    if zarr:
        check_store(path)
    return _opened(path, zarr=zarr)


def _opened(path: Path, *, zarr: bool) -> xarray.Dataset:
    if zarr:
        return xarray.open_dataset(path, decode_times=False, cache=False, engine="zarr", consolidated=False)
    with path.open("rb") as handle:
        if handle.read(3) == b"CDF":
            return xarray.open_dataset(path, decode_times=False, cache=False, engine="scipy")
    check_hdf5(path)
    import h5netcdf
    from xarray.backends import H5NetCDFStore

    class Input(h5netcdf.File):
        """One that can be thrown away when opening it failed half-way; the plain one then complains on stderr."""

        _writable = False
        _closed = True

    return xarray.open_dataset(H5NetCDFStore(Input(path, "r")), decode_times=False, cache=False)


def _read_zarr(array: Any, rows: slice, axis: int) -> np.ndarray:
    with _one_chunk_at_a_time():
        return array[(slice(None),) * axis + (rows,)]


def _one_chunk_at_a_time() -> Any:
    """Zarr unpacks ten by default, each on its own thread."""
    import zarr

    return zarr.config.set({"async.concurrency": 1})


def _read_again(path: Path, zarr: bool, name: str, rows: slice, axis: int) -> np.ndarray:
    """Opens the dataset again, and reads a part of one variable with missing values as NaN."""
    with open_dataset(path, zarr=zarr) as dataset, _one_chunk_at_a_time() if zarr else nullcontext():
        return _read_array(dataset[name], rows, axis)


def _listed(dataset: Any, path: Path, zarr: bool) -> dict[str, Variable]:
    found = {}
    for key, array in dataset.data_vars.items():
        name = str(key)
        dims = tuple(str(d) for d in array.dims)
        ascending = tuple(_ascending(dataset, d) for d in array.dims)
        found[name] = Variable(
            name, tuple(array.shape), np.dtype(array.dtype), partial(_read_again, path, zarr, name), dims, ascending
        )
    return found


def _ascending(dataset: Any, dim: Any) -> bool:
    if dim not in dataset.coords:
        return True
    ends = dataset.coords[dim]
    values = ends.isel({dim: [0, -1]}).values if ends.ndim == 1 and ends.size else ends.values
    return values.ndim != 1 or values.size < 2 or values.dtype.kind not in "fiu" or bool(values[-1] >= values[0])
