"""Arrays in files: workers get a reference, and open the file themselves."""

from __future__ import annotations

import mmap
import secrets
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from atlasd.data.cleaning import missing_marks
from atlasd.data.zarr_check import check_store
from atlasd.errors import DataError
from atlasd.runtime.files import write_atomically

SHARD_BYTES = 32 * 2**20
"""Chunks are read together up to this size; networks shuffle inside such shards, and shards among each other."""
_LARGE = 2**27
"""Bytes of a mapped file beyond which what was read of it is let go."""


@dataclass(frozen=True)
class Stored:
    """An array in a file, with the manners of a tensor where the library needs them.

    Arguments:
        kind: `memory` is a plain file that is mapped; `hdf5` holds netCDF-4 too; `zarr` is a directory or a file.
        name: The array inside the file.
        numbers: Its numpy type.
        offset: Where a mapped array begins.
        rows: Samples that are read together; 0 where each can be had alone.
        stamp: Tells one reference from the next. The file is open as long as the reference lives: one that was written
            again under the same name is opened again, also by a worker that has read it before.
        marks: Numbers that stand for missing values.
    """

    kind: Literal["memory", "hdf5", "zarr"]
    path: str
    name: str
    shape: torch.Size
    numbers: str
    offset: int = 0
    rows: int = 0
    stamp: str = ""
    marks: tuple[float, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # an open file does not travel

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The type of its numbers."""
        return torch.from_numpy(np.zeros(1, _native(self.numbers))).dtype

    def __getitem__(self, index: Tensor | slice | int) -> Tensor:
        return self.read(torch.tensor([index]))[0] if isinstance(index, int) else self.read(index)

    def read(self, index: Tensor | slice, box: tuple[slice, ...] = ()) -> Tensor:
        """Some samples, and of their last axes only a box.

        Arguments:
            index: Numbers of the samples, or a slice.
            box: Slices of the last axes.
        """
        numbers = np.arange(len(self))[index] if isinstance(index, slice) else index.cpu().numpy()
        window = (*([slice(None)] * (self.ndim - 1 - len(box))), *box)
        try:
            values = self._rows(numbers, window)
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise OSError(f"{self.path} could not be read: {' '.join(str(error).split())}") from error
        values = np.ascontiguousarray(values, dtype=_native(self.numbers))
        missing = np.isin(values, self.marks) | ~np.isfinite(values)
        if missing.any():
            bad = numbers[missing.reshape(len(values), -1).any(1)]
            raise DataError(
                f"`{self.path}` must hold finite numbers, got NaN, infinity or what marks missing values in {len(bad)} "
                f"of {len(values)} samples read (first: sample {bad[0]}); drop or fill them."
            )
        return torch.from_numpy(values)

    def _rows(self, index: np.ndarray, window: tuple[slice, ...]) -> np.ndarray:
        array = self._array
        if not self.rows:
            values = np.array(array[(index, *window)])
            _let_go(array)
            return values
        out: np.ndarray | None = None
        for shard in np.unique(index // self.rows):
            mine = index // self.rows == shard
            values = self._shard(array, int(shard), window)
            out = np.empty((len(index), *values.shape[1:]), values.dtype) if out is None else out
            out[mine] = values[index[mine] - shard * self.rows]
        return np.array(array[(slice(0, 0), *window)]) if out is None else out

    def _shard(self, array: Any, number: int, window: tuple[slice, ...]) -> np.ndarray:
        """One shard; the last one read is kept, since the next samples are often in it too."""
        wanted = (number, *((s.start, s.stop) for s in window))
        if wanted not in self._shards:
            self._shards.clear()
            rows = slice(number * self.rows, (number + 1) * self.rows)
            self._shards[wanted] = np.asarray(array[(rows, *window)])
        return self._shards[wanted]

    @cached_property
    def _shards(self) -> dict[tuple[Any, ...], np.ndarray]:
        return {}

    @cached_property
    def _array(self) -> Any:
        if self.kind == "memory":
            return np.memmap(self.path, self.numbers, "r", self.offset, tuple(self.shape))
        if self.kind == "hdf5":
            import h5py

            return h5py.File(self.path, "r")[self.name]
        import zarr

        return zarr.open_array(self.path, mode="r", path=self.name)


def _let_go(array: Any) -> None:
    """What was read of a large mapped file does not stay in memory; reading it again maps it again."""
    if isinstance(array, np.memmap) and array.nbytes > _LARGE and hasattr(mmap, "MADV_DONTNEED"):
        array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]


def _native(numbers: str) -> np.dtype:
    """The same numbers in the byte order and widths that torch knows."""
    kind = np.dtype(numbers)
    return np.dtype({"u2": "i4", "u4": "i8"}.get(kind.str[1:], kind.newbyteorder("=")))


def stored(value: Any) -> Stored | None:
    """A reference to the file behind an array, where there is one: memory maps, HDF5, netCDF-4 by h5py, zarr."""
    if isinstance(value, Stored):
        return value
    module, stamp = type(value).__module__.split(".")[0], secrets.token_hex(8)
    if isinstance(value, np.memmap) and value.filename is not None and value.flags.c_contiguous:
        base = value.base
        whole = not isinstance(base, np.memmap) or base.shape == value.shape
        if whole and value.dtype.kind in "fiub":
            shape, kind = torch.Size(value.shape), value.dtype.str
            return Stored("memory", str(value.filename), "", shape, kind, value.offset, stamp=stamp)
    if module == "h5py" and hasattr(value, "chunks") and value.dtype.kind in "fiub" and value.ndim:
        from atlasd.data.file_hdf5 import check_dataset

        check_dataset(Path(value.file.filename), value.name, value)
        rows = _shard_rows(value.chunks[0] if value.chunks else 1, value.shape, value.dtype.itemsize)
        shape, kind = torch.Size(value.shape), value.dtype.str
        marks = tuple(missing_marks(value.attrs))
        return Stored("hdf5", value.file.filename, value.name, shape, kind, rows=rows, stamp=stamp, marks=marks)
    if module == "zarr" and hasattr(value, "chunks") and value.dtype.kind in "fiub" and value.ndim:
        root = getattr(value.store, "root", None) or getattr(value.store, "path", None)
        if root is not None and Path(str(root)).exists():
            if Path(str(root)).is_dir():
                check_store(Path(str(root)) / value.path)
            rows = _shard_rows(value.chunks[0], value.shape, value.dtype.itemsize)
            shape, kind = torch.Size(value.shape), value.dtype.str
            marks = tuple(missing_marks(value.attrs))
            return Stored("zarr", str(root), value.path, shape, kind, rows=rows, stamp=stamp, marks=marks)
    return None


def _shard_rows(chunk: int, shape: tuple[int, ...], width: int) -> int:
    """As many whole chunks as a shard may hold, but at least one."""
    row = int(np.prod(shape[1:], dtype=np.int64)) * width
    return max(chunk * max(1, SHARD_BYTES // max(chunk * row, 1)), 1)


def spill(value: Tensor, path: Path) -> Stored:
    """Writes a tensor to a file that workers map into memory.

    Arguments:
        value: What is too large to be sent along.
    """
    array = value.cpu().contiguous().numpy()
    write_atomically(path, lambda file: file.write_bytes(array.data))  # `tofile` does not say why it fails
    return Stored("memory", str(path.resolve()), "", value.shape, array.dtype.str)
