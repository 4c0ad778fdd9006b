"""Files in the forms of others, for tests and benchmarks: tables as pandas writes them, years as ClimateNet's."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import h5py
import numpy as np
import xarray

from atlasd.runtime.random import stream
from atlasd.studies.climate.synthetic import synthetic_climate

_ROWS = 1024


class TableWriter:
    """Writes blocks of columns as pandas would, appending row by row to a table named `table`.

    Arguments:
        blocks: Columns of each block, with the kind of its numbers: `[(("a", "b"), "float32"), ...]`.
        compression: `gzip` level, or `None`.
    """

    def __init__(self, path, blocks, *, compression=1) -> None:
        names = [f"values_block_{i}" for i in range(len(blocks))]
        fields = [("index", "<i8")]
        fields += [(n, np.dtype(kind), (len(columns),)) for n, (columns, kind) in zip(names, blocks, strict=True)]
        self._file = h5py.File(path, "w")
        self._names = names
        options = {} if compression is None else {"compression": "gzip", "compression_opts": compression}
        group = self._file.create_group("table")
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

    def append(self, blocks) -> None:
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


def _pickled(names, first=0) -> str:
    """A list of strings as a pickle of protocol 0, which is what PyTables writes."""
    return f"(lp{first}\n" + "".join(f"V{name}\np{first + 1 + i}\na" for i, name in enumerate(names)) + "."


def _set(node, **attributes) -> None:
    """Texts as PyTables stores them: pickles as bytes, the rest as UTF-8."""
    for name, text in attributes.items():
        if not text:
            node.attrs[name] = h5py.Empty("S1")
        elif text.endswith("."):
            node.attrs[name] = np.bytes_(text)
        else:
            node.attrs.create(name, text, dtype=h5py.string_dtype("utf-8", len(text)))


def write_climate(folder, *, train=40, test=8, shape=(768, 1152), experts=2) -> None:
    """Writes folders `train` and `test` of netCDF files, one for every time and expert, map by map.

    Arguments:
        train: Times to train on, from 1996; `test` to test on, from 2011.
        experts: Up to how many labels a time has: one and all of them, alternately.
    """
    for split, count, first in (("train", train, date(1996, 1, 1)), ("test", test, date(2011, 1, 1))):
        for n in range(count):
            drawn = {"symmetry": "events", "shape": shape, "experts": 1 if n % 2 else experts}
            maps = synthetic_climate(1, generator=stream(0, "climate", split, n), **drawn)
            day = (first + timedelta(days=3 * n)).isoformat()
            for e in range(maps.labels.shape[1]):
                write_map(Path(folder) / split / f"data-{day}-01-1_{e}.nc", maps, expert=e)


def write_map(path, maps, *, number=0, expert=0, latitudes="ascending", longitudes="0..360") -> Path:
    """One map with the labels of one expert, or of none, as a netCDF file.

    Arguments:
        latitudes: The direction in which they are written, `ascending` or `descending`.
        longitudes: The range in which they are written, `0..360` or `-180..180`.
    """
    height, width = maps.x.shape[-2:]
    names = enumerate(maps.variables)
    variables = {name: (("time", "lat", "lon"), maps.x[number, c][None].numpy()) for c, name in names}
    if expert is not None:
        variables["LABELS"] = (("lat", "lon"), maps.labels[number, expert].numpy().astype(np.int64))
    coordinates = {"lat": np.linspace(90, -90, height), "lon": np.arange(width) * 360 / width, "time": np.zeros(1)}
    dataset = xarray.Dataset(variables, coords=coordinates).sortby("lat", ascending=latitudes == "ascending")
    if longitudes == "-180..180":
        dataset = dataset.assign_coords(lon=(dataset.lon + 180) % 360 - 180).sortby("lon")
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.to_netcdf(path, engine="h5netcdf")
    return path
