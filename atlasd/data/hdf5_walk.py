"""The datasets of an HDF5 file that hold their own data: links to other files are not followed."""

from __future__ import annotations

__all__ = ["check_dataset", "check_hdf5", "walk_datasets"]

import math
from collections.abc import Iterator
from pathlib import Path

import h5py

from atlasd.data.limits import MOST_LEVELS, check_claim, check_count, check_size
from atlasd.errors import DataError


def walk_datasets(path: Path, file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every dataset once, by its path inside the file; links to other places are left alone.

    Arguments:
        path: What to call the file in messages.
        file: The open file.
    """
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
        check_size(path, name, math.prod(dataset.chunks) * width, "write it in smaller chunks")


def check_hdf5(path: Path) -> None:
    """The same checks for a file that another library is about to read."""
    with h5py.File(path, "r") as file:
        for name, dataset in walk_datasets(path, file):
            check_dataset(path, name, dataset)


def _address(item: h5py.HLObject) -> tuple[int, int]:
    info = h5py.h5o.get_info(item.id)
    return info.fileno, info.addr
