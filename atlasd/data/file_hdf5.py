"""HDF5 files: every dataset that holds its own data, also inside groups, and every column of a compound table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from atlasd.data.cleaning import missing_marks
from atlasd.data.file_limits import MOST_LEVELS, check_chunk, check_claim, check_count
from atlasd.data.files import Variable
from atlasd.errors import DataError


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The datasets of the file by their path inside it."""
    found: dict[str, Variable] = {}
    with h5py.File(path, "r") as file:
        for name, item in walk_datasets(path, file):
            if item.shape is None or item.attrs.get("CLASS") in (b"DIMENSION_SCALE", "DIMENSION_SCALE"):
                continue
            if not item.dtype.names:
                found[name] = Variable(name, item.shape, item.dtype, partial(_read, path, name, None), _dims(item))
                continue
            check_count(path, len(found) + len(item.dtype.names))
            for column in item.dtype.names:
                inner, long = item.dtype[column], f"{name}/{column}"
                found[long] = Variable(
                    long, (*item.shape, *inner.shape), inner.base, partial(_read, path, name, column)
                )
    return found


def _read(path: Path, name: str, column: str | None, rows: slice, axis: int) -> np.ndarray:
    """A part of one dataset."""
    with h5py.File(path, "r") as file:
        dataset = file[name]
        check_dataset(path, name, dataset)  # the file may be another one by now
        source = dataset if column is None else dataset.fields(column)
        values, marks = source[(slice(None),) * axis + (rows,)], missing_marks(dataset.attrs)
        return np.ma.masked_array(values, np.isin(values, marks)) if marks else values


def _dims(item: h5py.Dataset) -> tuple[str, ...]:
    """Names of the axes: labels, or names of attached scales; empty unless all have one."""
    names = []
    for axis in item.dims:
        scales = list(axis.keys())
        names.append(axis.label or (scales[0] if scales else ""))
    return tuple(names) if names and all(names) else ()


def walk_datasets(path: Path, file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every dataset once, by its path inside the file; links to other places are left alone."""
    seen = {_address(file)}
    count = 0
    # Group by group, not `visititems`: that one finds each name from the root again, and has no limit.
    waiting: list[tuple[str, h5py.Group, int]] = [("", file, 0)]
    while waiting:
        prefix, group, level = waiting.pop(0)
        if level > MOST_LEVELS:
            raise DataError(f"`{path}` must have at most {MOST_LEVELS} levels of groups, got more; flatten it.")
        count += len(group)
        check_count(path, count)
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Datatype) or (address := _address(item)) in seen:
                continue
            seen.add(address)
            if isinstance(item, h5py.Dataset):
                _check_own(path, prefix + name, item)
                yield prefix + name, item
            else:
                waiting.append((f"{prefix}{name}/", item, level + 1))


def _check_own(path: Path, name: str, dataset: h5py.Dataset) -> None:
    if dataset.is_virtual or dataset.external:
        where = "a virtual dataset" if dataset.is_virtual else "external storage"
        raise DataError(
            f"`{path}` must hold its own data, got {where} in {name!r}, which reads other files; copy them into "
            "one file."
        )


def check_dataset(path: Path, name: str, dataset: h5py.Dataset) -> None:
    """Raises where reading a dataset would read other files, or what is not there; called before it is read."""
    _check_own(path, name, dataset)
    if dataset.shape is None:
        return
    width = dataset.dtype.itemsize
    check_claim(path, name, math.prod(dataset.shape) * width, dataset.id.get_storage_size())
    if dataset.chunks:
        check_chunk(path, name, math.prod(dataset.chunks) * width)


def check_hdf5(path: Path) -> None:
    """The same checks for a file that another library is about to read."""
    with h5py.File(path, "r") as file:
        for name, dataset in walk_datasets(path, file):
            check_dataset(path, name, dataset)


def _address(item: h5py.HLObject) -> tuple[int, int]:
    info = h5py.h5o.get_info(item.id)
    return info.fileno, info.addr
