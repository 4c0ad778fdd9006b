"""npz and npy files, never unpickled; only headers are read until an array is asked for."""

from __future__ import annotations

__all__ = ["read_variables"]

import zipfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from atlasd.datasets.files import Variable
from atlasd.errors import DataError


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The arrays of an npz file, or the one of an npy file under the file's name."""
    if kind == "npy":
        with path.open("rb") as handle:
            shape, dtype = _header(handle)
            offset = handle.tell()
        if not dtype.hasobject and offset + int(np.prod(shape)) * dtype.itemsize > path.stat().st_size:
            raise DataError(f"`{path}` must hold an array of shape {shape}, got a truncated file; fetch it again.")

        def read(rows: slice, axis: int) -> np.ndarray:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
            return np.array(array[(slice(None),) * axis + (rows,)])

        return {path.stem: Variable(path.stem, shape, dtype, read)}
    found = {}
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as packed:
                    shape, dtype = _header(packed)
                name = member.removesuffix(".npy")
                found[name] = Variable(name, shape, dtype, _Member(path, name))
    return found


class _Member:
    """Reads one array of an npz file."""

    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    def __call__(self, rows: slice, axis: int) -> np.ndarray:
        with np.load(self._path, allow_pickle=False) as archive:
            return archive[self._name][(slice(None),) * axis + (rows,)]


def _header(handle: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    version = npy.read_magic(handle)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(handle)
    return shape, dtype
