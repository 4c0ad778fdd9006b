"""HDF5 files: every dataset, also inside groups, and every column of a compound table."""

from __future__ import annotations

__all__ = ["read_variables"]

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from atlasd.datasets.files import Variable


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The datasets of the file by their path inside it."""
    found: dict[str, Variable] = {}

    def visit(name: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset) or item.shape is None:
            return
        if item.attrs.get("CLASS") in (b"DIMENSION_SCALE", "DIMENSION_SCALE"):
            return
        if item.dtype.names:
            for column in item.dtype.names:
                inner = item.dtype[column]
                shape = (*item.shape, *inner.shape)
                found[f"{name}/{column}"] = Variable(
                    f"{name}/{column}", shape, inner.base, _Reader(path, name, column), ()
                )
        else:
            found[name] = Variable(name, item.shape, item.dtype, _Reader(path, name), _dims(item))

    with h5py.File(path, "r") as file:
        file.visititems(visit)
    return found


class _Reader:
    """Reads a part of one dataset."""

    def __init__(self, path: Path, name: str, column: str | None = None) -> None:
        self._path, self._name, self._column = path, name, column

    def __call__(self, rows: slice, axis: int) -> np.ndarray:
        with h5py.File(self._path, "r") as file:
            part = file[self._name][(slice(None),) * axis + (rows,)]
        return part if self._column is None else part[self._column]


def _dims(item: h5py.Dataset) -> tuple[str, ...]:
    """Names of the axes: labels, or names of attached scales; empty unless all have one."""
    names = []
    for axis in item.dims:
        scales = list(axis.keys())
        names.append(axis.label or (scales[0] if scales else ""))
    return tuple(names) if names and all(names) else ()
