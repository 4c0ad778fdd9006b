"""Tables of numbers in HDF5 as pandas lays them out (`format="table"`), read row by row.

Such a file holds one compound dataset `KEY/table` with the fields `index`, `values_block_0`, `values_block_1`, ...;
the attribute `values_block_0_kind` names the columns of a block. Those names are stored as pickles; here they are
read from the text of the pickle, and nothing in the file is ever executed.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from atlasd.data.file_hdf5 import check_dataset
from atlasd.data.file_limits import reading, said
from atlasd.data.probe import check_opens
from atlasd.errors import DataError

_STRINGS = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING"}


class TableReader:
    """Columns of a table, read in runs of rows; memory does not grow with the file.

    Arguments:
        path: The HDF5 file, with a table named `table`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise DataError(f"`{path}` must be an HDF5 file, got nothing there; give the path of a file.")
        check_opens(path, "file_hdf5", "hdf5")
        with reading(path, "HDF5 file"):
            self._file = h5py.File(path, "r")
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def _open(self) -> None:
        table = self._file.get("table/table")
        if not isinstance(table, h5py.Dataset) or table.dtype.names is None:
            names = ", ".join(self._file) or "nothing"
            raise DataError(
                f"`{self.path}` must hold a table `table/table`, got {names}; write it with format='table'."
            )
        check_dataset(self.path, "table/table", table)
        self._table = table
        self._columns = _columns(table)
        self._check_filters()

    def __enter__(self) -> TableReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self._columns)

    def close(self) -> None:
        """Lets go of the file."""
        self._file.close()

    def rows(self, columns: Sequence[str], start: int, stop: int) -> npt.NDArray[Any]:
        """Some rows of some columns, with shape `(rows, columns)`, of one kind of number."""
        missing = [name for name in columns if name not in self._columns]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise DataError(
                f"`{self.path}` must have the column {missing[0]}{more}, got {len(self._columns)} columns "
                f"({', '.join(self.columns[:3])}, ...); is this the right file?"
            )
        try:
            part = self._table[start:stop]
        except Exception as error:  # h5py has many kinds for one cause
            raise DataError(
                f"`{self.path}` must be readable to its end, got a fault at rows {start} to {stop} "
                f"({said(error)}); fetch it again."
            ) from error
        by_field: dict[str, list[tuple[int, int]]] = {}
        for place, name in enumerate(columns):
            field, number = self._columns[name]
            by_field.setdefault(field, []).append((place, number))
        out = np.empty((len(part), len(columns)), dtype=np.result_type(*(part[f].dtype for f in by_field)))
        for field, pairs in by_field.items():
            block = part[field].reshape(len(part), -1)
            out[:, [place for place, _ in pairs]] = block[:, [number for _, number in pairs]]
        return out

    def runs(self, rows: int, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, int]]:
        """Consecutive runs of at most `rows` rows."""
        end = len(self) if stop is None else min(stop, len(self))
        for first in range(start, end, rows):
            yield first, min(first + rows, end)

    def _check_filters(self) -> None:
        plan = self._table.id.get_create_plist()
        for number in range(plan.get_nfilters()):
            code, _, _, name = plan.get_filter(number)
            if not h5py.h5z.filter_avail(code) and not _load_plugins(code):
                raise DataError(
                    f"`{self.path}` must use a compression that h5py knows, got {name.decode()} (filter {code}); "
                    "`pip install hdf5plugin` adds it."
                )


def _columns(table: h5py.Dataset) -> dict[str, tuple[str, int]]:
    """Field and place in it of every column."""
    found: dict[str, tuple[str, int]] = {}
    for field in table.dtype.names:
        if field == "index":
            continue
        kind = table.attrs.get(f"{field}_kind")
        names = _listed(bytes(kind)) if kind is not None and not isinstance(kind, h5py.Empty) else [field]
        found.update({name: (field, number) for number, name in enumerate(names)})
    return found


def _listed(text: bytes) -> list[str]:
    """The strings of a pickled list, in order; the pickle is read, never run."""
    try:
        return [str(argument) for code, argument, _ in pickletools.genops(text) if code.name in _STRINGS]
    except ValueError as error:
        raise DataError(f"the names of the columns could not be read ({error}); fetch the file again.") from error


def _load_plugins(code: int) -> bool:
    """Whether the optional package of filters brings this one."""
    try:
        import hdf5plugin  # noqa: F401
    except ImportError:
        return False
    return bool(h5py.h5z.filter_avail(code))
