"""Files of data: which variables they hold, without reading them yet."""

from __future__ import annotations

import importlib
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from atlasd.data.cleaning import unmasked
from atlasd.data.file_limits import check_count, check_size, reading
from atlasd.data.probe import check_opens
from atlasd.errors import DataError, InputError
from atlasd.runtime.text import did_you_mean

Reader: TypeAlias = Callable[[slice, int], np.ndarray]
_TEXT = "text; save it as an array of numbers"
_TIMES = "times; save seconds as numbers"
_UNUSABLE = {
    "c": "complex numbers; save real and imaginary parts as two variables", "U": _TEXT, "S": _TEXT, "M": _TIMES,
    "O": "Python objects, which are never unpickled; save it as an array of numbers", "m": _TIMES,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Variable:
    """One array of a file, not read yet.

    Arguments:
        name: Its name in the file.
        dtype: The kind of its entries; `None` where only reading tells.
        reader: Reads the entries whose index along an axis lies in a slice.
        dims: Names of its axes, where the format has them.
        ascending: For each axis whether its coordinate grows with the index; true where unknown.
        example: What it holds in place of numbers, and where.
        bounded: Whether memory is limited while it is read; not for arrays that the user has opened.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype | None
    reader: Reader
    dims: tuple[str, ...] = ()
    ascending: tuple[bool, ...] = ()
    source: str = "the file"
    example: str = ""
    bounded: bool = True

    @property
    def numeric(self) -> bool:
        """Whether it holds real numbers."""
        return self.dtype is None or self.dtype.kind in "fiub"

    @property
    def unusable(self) -> str:
        """Why it holds no real numbers, with what would help."""
        assert self.dtype is not None
        if self.example:
            comma = re.search(r"\d,\d", self.example) is not None
            help = "write decimal points" if comma else "correct or remove it"
            return f"{self.name!r} holds {self.example}; {help}"
        return f"{self.name!r} holds {_UNUSABLE.get(self.dtype.kind, str(self.dtype))}"

    def read(self, rows: slice, axis: int = 0) -> np.ndarray:
        """Reads it, all of it but for the slice along `axis`."""
        if len(self.shape) <= axis:
            raise InputError(f"variable {self.name!r} must hold samples, got a single number; choose another one.")
        count = len(range(*rows.indices(self.shape[axis])))
        others = math.prod(self.shape[:axis] + self.shape[axis + 1 :])
        size = count * others * self._width
        check_size(Path(self.source), self.name, size, "lower --samples")
        with reading(
            Path(self.source), f"file with the variable {self.name!r}", 4 * size if self.bounded else math.inf
        ):
            return unmasked(self.reader(rows, axis), self.name)

    @property
    def _width(self) -> int:
        return 8 if self.dtype is None else self.dtype.itemsize

    def __str__(self) -> str:
        inside = ", ".join(
            f"{d}={s}" for d, s in zip(self.dims or ("",) * len(self.shape), self.shape, strict=True)
        ).replace("=", "=" if self.dims else "")
        return f"{self.name} ({inside})"


@dataclass(frozen=True, eq=False)
class DataFile:
    """An open file: its format and its variables by name; `table` if they are columns of equal length."""

    path: Path
    kind: str
    variables: Mapping[str, Variable]
    table: bool = False

    def describe(self, most: int = 12) -> str:
        """Names and shapes, for messages."""
        shown = [str(v) if not self.table else v.name for v in self.variables.values()]
        more = f" and {len(shown) - most} more" if len(shown) > most else ""
        return ", ".join(shown[:most]) + more


# Format: the module that reads it, and how its files start.
_FORMATS: dict[str, tuple[str, tuple[bytes, ...]]] = {
    "npz": ("file_numpy", (b"PK\x03\x04", b"PK\x05\x06")),
    "npy": ("file_numpy", (b"\x93NUMPY",)),
    "hdf5": ("file_hdf5", (b"\x89HDF\r\n\x1a\n",)),
    "netcdf": ("file_xarray", (b"CDF\x01", b"CDF\x02", b"CDF\x05", b"\x89HDF\r\n\x1a\n")),
    "zarr": ("file_xarray", ()),
    "parquet": ("file_parquet", (b"PAR1",)),
    "csv": ("file_csv", ()),
}
_SUFFIXES = {
    ".npz": "npz", ".npy": "npy", ".h5": "hdf5", ".hdf5": "hdf5", ".hdf": "hdf5", ".he5": "hdf5", ".nc": "netcdf",
    ".nc4": "netcdf", ".cdf": "netcdf", ".zarr": "zarr", ".parquet": "parquet", ".pq": "parquet", ".csv": "csv",
    ".tsv": "csv", ".txt": "csv", ".dat": "csv",
}  # fmt: skip
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray", ".zmetadata")


def open_data(path: str | Path) -> DataFile:
    """Opens a file and lists its variables; the arrays are read only when they are asked for.

    Arguments:
        path: An npz, npy, HDF5, netCDF, CSV (also gzipped) or parquet file, or a zarr directory.
    """
    path = Path(path)
    kind = _kind(path)
    module, _ = _FORMATS[kind]
    if kind in ("hdf5", "netcdf"):  # no other library was seen to loop or crash
        check_opens(path, module, kind)
    try:
        reader = importlib.import_module(f"atlasd.data.{module}")
        with reading(path, f"{kind} file"):
            variables = reader.read_variables(path, kind)
    except ImportError as error:
        raise DataError(
            f"`{path}` needs the package {error.name!r} to be read; install it with pip install 'atlasd[data]'."
        ) from error
    check_count(path, len(variables))
    if not variables:
        raise DataError(f"`{path}` must hold arrays, got a {kind} file with none.")
    variables = {name: replace(variable, source=str(path)) for name, variable in variables.items()}
    return DataFile(path, kind, variables, table=kind in ("csv", "parquet"))


def find_variable(files: Iterable[DataFile], name: str) -> Variable:
    """The variable of that name, or an error that names its neighbours."""
    files = list(files)
    known: dict[str, Variable] = {}
    for file in files:
        known.update(file.variables)
    if name not in known:
        where = " and ".join(str(f.path) for f in files)
        raise InputError(
            f"no variable {name!r} in {where}{did_you_mean(name, known)} "
            f"It holds: {', '.join(f.describe() for f in files)}."
        )
    found = known[name]
    if not found.numeric:
        raise InputError(f"variable {name!r} must hold real numbers, got {found.dtype}: {found.unusable}.")
    return found


def _kind(path: Path) -> str:
    """The format, by its name and its first bytes; raises where they are missing or disagree."""
    try:
        if not path.exists():
            raise DataError(f"`{path}` does not exist{_neighbours(path)}")
        if path.is_dir():
            if any((path / mark).is_file() for mark in _ZARR_MARKS):
                return "zarr"
            raise DataError(f"`{path}` must be a file or a zarr store, got a directory; name the file inside it.")
        if not path.is_file():
            raise DataError(f"`{path}` must be a file, got something else (a device or a pipe).")
        if not os.access(path, os.R_OK):
            raise PermissionError
        with path.open("rb") as handle:
            start = handle.read(16)
    except PermissionError as error:
        raise DataError(f"`{path}` must be readable, got no permission; try chmod u+r.") from error
    if not start:
        raise DataError(f"`{path}` must hold data, got an empty file.")
    suffixes = [s.lower() for s in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    named = _SUFFIXES.get((suffixes[:-1] if zipped else suffixes or [""])[-1] if suffixes else "")
    if zipped and named != "csv":
        raise DataError(f"`{path}` must be unpacked first; only CSV files are read as .gz.")
    if named == "zarr":
        raise DataError(f"`{path}` must be a zarr directory, got a file.")
    starts = [k for k, (_, magic) in _FORMATS.items() if any(start.startswith(m) for m in magic)]
    if named == "csv" and not starts:
        return "csv"
    if named in starts:
        return str(named)
    if named is None and starts:
        return starts[0]
    if named is None:
        raise DataError(f"`{path}` must be one of {', '.join(_FORMATS)}, got a file of an unknown kind.")
    found = f"a {starts[0]} file" if starts else f"a file that starts with {start[:8]!r}"
    raise DataError(f"`{path}` must be a {named} file, as its name says, got {found}; rename or convert it.")


def _neighbours(path: Path) -> str:
    try:
        names = [p.name for p in path.parent.iterdir()]
    except OSError:
        return "; check the path."
    near = did_you_mean(path.name, names)
    return near if near != "." else "; check the path."
