"""Tables of numbers in HDF5 as pandas lays them out (`format="table"`), read and written row by row.

Such a file holds one compound dataset `KEY/table` with the fields `index`, `values_block_0`, `values_block_1`, ...;
the attribute `values_block_0_kind` names the columns of a block. Those names are stored as pickles; here they are
read from the text of the pickle, and nothing in the file is ever executed.
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator, Mapping, Sequence
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
_ROWS = 1024


class TableReader:
    """Columns of a table, read in runs of rows; memory does not grow with the file.

    Arguments:
        path: The HDF5 file.
        key: Name of the table in it.
    """

    def __init__(self, path: Path, key: str = "table") -> None:
        self.path = path
        if not path.is_file():
            raise DataError(f"`{path}` must be an HDF5 file, got nothing there; give the path of a file.")
        check_opens(path, "file_hdf5", "hdf5")
        with reading(path, "HDF5 file"):
            self._file = h5py.File(path, "r")
            try:
                self._open(key)
            except BaseException:
                self.close()
                raise

    def _open(self, key: str) -> None:
        table = self._file.get(f"{key}/table")
        if not isinstance(table, h5py.Dataset) or table.dtype.names is None:
            names = ", ".join(self._file) or "nothing"
            raise DataError(
                f"`{self.path}` must hold a table `{key}/table`, got {names}; write it with format='table'."
            )
        check_dataset(self.path, f"{key}/table", table)
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


class TableWriter:
    """Writes blocks of columns as pandas would, appending row by row.

    Arguments:
        blocks: Columns of each block, with the kind of its numbers: `[(("a", "b"), "float32"), ...]`.
        compression: `gzip` level, or `None`.
    """

    def __init__(
        self,
        path: Path,
        blocks: Sequence[tuple[Sequence[str], str]],
        *,
        key: str = "table",
        compression: int | None = 1,
    ) -> None:
        names = [f"values_block_{i}" for i in range(len(blocks))]
        fields: list[Any] = [("index", "<i8")]
        fields += [(n, np.dtype(kind), (len(columns),)) for n, (columns, kind) in zip(names, blocks, strict=True)]
        self._file = h5py.File(path, "w")
        self._names = names
        options = {} if compression is None else {"compression": "gzip", "compression_opts": compression}
        group = self._file.create_group(key)
        self._table = group.create_dataset(
            "table", (0,), maxshape=(None,), chunks=(_ROWS,), dtype=np.dtype(fields), shuffle=compression is not None,
            **options,
        )  # fmt: skip
        every = [column for columns, _ in blocks for column in columns]
        _set(self._file, CLASS="GROUP", PYTABLES_FORMAT_VERSION="2.1", TITLE="", VERSION="1.0")
        _set(
            group, CLASS="GROUP", TITLE="", VERSION="1.0", pandas_type="frame_table", pandas_version="0.15.2",
            table_type="appendable_frame", encoding="UTF-8", errors="strict", nan_rep="nan",
            index_cols="(lp0\n(I0\nVindex\np1\ntp2\na.", values_cols=_pickled(names), data_columns="(lp0\n.",
            non_index_axes=f"(lp0\n(I1\n{_pickled(every, 1)[:-1]}tp{len(every) + 2}\na.", info="(dp0\n.",
        )  # fmt: skip
        group.attrs["levels"] = 1
        _set(self._table, CLASS="TABLE", TITLE="", VERSION="2.7", index_kind="integer", FIELD_0_NAME="index")
        for number, (name, (columns, kind)) in enumerate(zip(names, blocks, strict=True), start=1):
            _set(
                self._table,
                **{
                    f"FIELD_{number}_NAME": name,
                    f"{name}_kind": _pickled(columns),
                    f"{name}_dtype": str(np.dtype(kind)),
                    f"{name}_meta": "N.",
                },
            )
        self._table.attrs["NROWS"] = 0

    def __enter__(self) -> TableWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def append(self, blocks: Mapping[int, npt.NDArray[Any]] | Sequence[npt.NDArray[Any]]) -> None:
        """Adds rows: one array `(rows, columns)` for each block."""
        arrays = [blocks[i] for i in range(len(self._names))]
        first, count = len(self._table), len(arrays[0])
        rows = np.zeros(count, dtype=self._table.dtype)
        rows["index"] = np.arange(first, first + count)
        for name, array in zip(self._names, arrays, strict=True):
            rows[name] = array
        self._table.resize(first + count, axis=0)
        self._table[first:] = rows
        self._table.attrs["NROWS"] = first + count


def _columns(table: h5py.Dataset) -> dict[str, tuple[str, int]]:
    """Field and place in it of every column."""
    found: dict[str, tuple[str, int]] = {}
    for field in table.dtype.names:
        if field == "index":
            continue
        kind = table.attrs.get(f"{field}_kind")
        names = _unpickled(bytes(kind)) if kind is not None and not isinstance(kind, h5py.Empty) else [field]
        found.update({name: (field, number) for number, name in enumerate(names)})
    return found


def _unpickled(text: bytes) -> list[str]:
    """The strings of a pickled list, in order; the pickle is read, never run."""
    try:
        return [str(argument) for code, argument, _ in pickletools.genops(text) if code.name in _STRINGS]
    except ValueError as error:
        raise DataError(f"the names of the columns could not be read ({error}); fetch the file again.") from error


def _pickled(names: Sequence[str], first: int = 0) -> str:
    """A list of strings as a pickle of protocol 0, which is what PyTables writes."""
    return f"(lp{first}\n" + "".join(f"V{name}\np{first + 1 + i}\na" for i, name in enumerate(names)) + "."


def _set(node: h5py.HLObject, **attributes: str) -> None:
    """Texts as PyTables stores them: pickles as bytes, the rest as UTF-8."""
    for name, text in attributes.items():
        if not text:
            node.attrs[name] = h5py.Empty("S1")
        elif text.endswith("."):
            node.attrs[name] = np.bytes_(text)
        else:
            node.attrs.create(name, text, dtype=h5py.string_dtype("utf-8", len(text)))


def _load_plugins(code: int) -> bool:
    """Whether the optional package of filters brings this one."""
    try:
        import hdf5plugin  # noqa: F401
    except ImportError:
        return False
    return bool(h5py.h5z.filter_avail(code))
