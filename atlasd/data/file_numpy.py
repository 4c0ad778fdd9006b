"""npz and npy files, never unpickled; only headers are read until an array is asked for."""

from __future__ import annotations

import io
import math
import struct
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Literal

import numpy as np
from numpy.lib import format as npy

from atlasd.data.file_limits import check_count, check_size
from atlasd.data.files import Variable
from atlasd.errors import DataError

_BLOCK = 8 << 20
_MOST_HEADER = 1 << 16


@dataclass(frozen=True)
class _Header:
    """What the first bytes of an array say.

    Arguments:
        order: `F` where the first axis runs fastest, else `C`.
        dtype: The kind of its numbers.
        offset: Where they begin.
    """

    shape: tuple[int, ...]
    order: Literal["F", "C"]
    dtype: np.dtype
    offset: int

    @property
    def size(self) -> int:
        """Bytes of all numbers; 0 of Python objects, which are never read."""
        return 0 if self.dtype.hasobject else math.prod(self.shape) * self.dtype.itemsize

    def check(self) -> None:
        """Raises where the array holds something else than numbers."""
        if self.dtype.hasobject:
            raise ValueError("it holds Python objects, which are never unpickled")


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The arrays of an npz file, or the one of an npy file under the file's name."""
    if kind == "npy":
        with path.open("rb") as handle:
            header = _header(handle)
        if header.offset + header.size > path.stat().st_size:
            raise DataError(
                f"`{path}` must hold an array of shape {header.shape}, got a truncated file; fetch it again."
            )
        return {path.stem: Variable(path.stem, header.shape, header.dtype, partial(_read_mapped, path, header, 0))}
    found = {}
    with zipfile.ZipFile(path) as archive:
        check_count(path, len(archive.infolist()))
        for member in archive.infolist():
            if not member.filename.endswith(".npy"):
                continue
            with archive.open(member) as packed:
                header = _header(packed)
            name = member.filename.removesuffix(".npy")
            if not header.dtype.hasobject and header.offset + header.size != member.file_size:
                raise DataError(
                    f"array {name!r} of `{path}` must hold shape {header.shape}, got {member.file_size} bytes; fetch "
                    "it again."
                )
            if member.compress_type == zipfile.ZIP_STORED and not member.flag_bits & 1:
                reader = partial(_read_mapped, path, header, _start(path, member))
            else:
                reader = partial(_read_packed, path, header, member.filename)
            found[name] = Variable(name, header.shape, header.dtype, reader)
    return found


def _read_mapped(path: Path, header: _Header, start: int, rows: slice, axis: int) -> np.ndarray:
    """A part of an array that lies in a file as it is."""
    header.check()
    if not header.size:
        return np.zeros(header.shape, header.dtype)
    offset = start + header.offset
    array = np.memmap(path, header.dtype, "r", offset, header.shape, header.order)  # type: ignore[call-overload]
    return np.array(array[(slice(None),) * axis + (rows,)])


def _read_packed(path: Path, header: _Header, member: str, rows: slice, axis: int) -> np.ndarray:
    """A part of a compressed array, which is unpacked block by block: only the rows that are asked for are kept."""
    header.check()
    check_size(path, member.removesuffix(".npy"), header.size, "save it uncompressed, or as HDF5")
    with zipfile.ZipFile(path) as archive, archive.open(member) as packed:
        packed.read(header.offset)
        if axis or header.order == "F" or not header.shape:
            array = np.frombuffer(packed.read(header.size), header.dtype).reshape(header.shape, order=header.order)
            return np.array(array[(slice(None),) * axis + (rows,)]) if header.shape else array
        wanted = np.arange(header.shape[0])[rows]
        out = np.empty((len(wanted), *header.shape[1:]), header.dtype)
        row = max(1, math.prod(header.shape[1:]) * header.dtype.itemsize)
        step = max(1, _BLOCK // row)
        for first in range(0, header.shape[0], step):
            count = min(step, header.shape[0] - first)
            block = np.frombuffer(packed.read(count * row), header.dtype).reshape(count, *header.shape[1:])
            mine = (wanted >= first) & (wanted < first + count)
            out[mine] = block[wanted[mine] - first]
        return out


def _header(file: IO[bytes]) -> _Header:
    handle = io.BytesIO(file.read(_MOST_HEADER))  # of a member that is packed, the header alone may unpack to gigabytes
    version = npy.read_magic(handle)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(handle)
    if any(s < 0 for s in shape):
        raise ValueError(f"the shape {shape} is negative")
    return _Header(shape, "F" if fortran else "C", dtype, handle.tell())


def _start(path: Path, member: zipfile.ZipInfo) -> int:
    """Where the content of a member that is not compressed begins."""
    with path.open("rb") as handle:
        handle.seek(member.header_offset + 26)
        name, extra = struct.unpack("<HH", handle.read(4))
    return member.header_offset + 30 + name + extra
