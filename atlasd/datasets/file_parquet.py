"""Parquet tables, one variable for each column."""

from __future__ import annotations

__all__ = ["read_variables"]

from pathlib import Path

import numpy as np
import pyarrow.parquet as parquet

from atlasd.datasets.files import Variable


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The columns; numbers are taken as they are, missing ones become NaN."""
    with parquet.ParquetFile(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    found = {}
    for field in schema:
        try:
            dtype = np.dtype(field.type.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            dtype = np.dtype(object)
        found[field.name] = Variable(field.name, (rows,), dtype, _Reader(path, field.name))
    return found


class _Reader:
    def __init__(self, path: Path, name: str) -> None:
        self._path, self._name = path, name

    def __call__(self, rows: slice, axis: int) -> np.ndarray:
        column = parquet.read_table(self._path, columns=[self._name]).column(0)
        return column.to_numpy()[rows]
