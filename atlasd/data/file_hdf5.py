"""HDF5 files: every dataset, also inside groups, and every column of a compound table."""

from __future__ import annotations

__all__ = ["read_variables"]

from pathlib import Path

import h5py
import numpy as np

from atlasd.data.files import Variable
from atlasd.data.hdf5_walk import check_dataset, walk_datasets
from atlasd.data.limits import check_count


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The datasets of the file by their path inside it."""
    found: dict[str, Variable] = {}
    with h5py.File(path, "r") as file:
        for name, item in walk_datasets(path, file):
            if item.shape is None or item.attrs.get("CLASS") in (b"DIMENSION_SCALE", "DIMENSION_SCALE"):
                continue
            if not item.dtype.names:
                found[name] = Variable(name, item.shape, item.dtype, _Reader(path, name), _dims(item))
                continue
            check_count(path, len(found) + len(item.dtype.names))
            for column in item.dtype.names:
                inner, long = item.dtype[column], f"{name}/{column}"
                found[long] = Variable(long, (*item.shape, *inner.shape), inner.base, _Reader(path, name, column))
    return found


class _Reader:
    """Reads a part of one dataset."""

    def __init__(self, path: Path, name: str, column: str | None = None) -> None:
        self._path, self._name, self._column = path, name, column

    def __call__(self, rows: slice, axis: int) -> np.ndarray:
        with h5py.File(self._path, "r") as file:
            dataset = file[self._name]
            check_dataset(self._path, self._name, dataset)  # the file may be another one by now
            source = dataset if self._column is None else dataset.fields(self._column)
            return source[(slice(None),) * axis + (rows,)]


def _dims(item: h5py.Dataset) -> tuple[str, ...]:
    """Names of the axes: labels, or names of attached scales; empty unless all have one."""
    names = []
    for axis in item.dims:
        scales = list(axis.keys())
        names.append(axis.label or (scales[0] if scales else ""))
    return tuple(names) if names and all(names) else ()
