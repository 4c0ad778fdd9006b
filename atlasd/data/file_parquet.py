"""Parquet tables, one variable for each column."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import numpy as np

# Arrow's own allocator takes a gigabyte at once, which is most of what a file may. It is chosen on the first use.
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
import pyarrow.parquet as parquet

from atlasd.data.file_limits import check_claim, check_count
from atlasd.data.files import Variable

_ROWS = 1 << 18


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The columns; numbers are taken as they are, missing ones become NaN."""
    with parquet.ParquetFile(path) as file:
        check_count(path, file.metadata.num_columns, "columns")
        schema, rows = file.schema_arrow, file.metadata.num_rows
    check_claim(path, "every column", 8 * rows, path.stat().st_size)
    found = {}
    for field in schema:
        try:
            dtype = np.dtype(field.type.to_pandas_dtype())
        except (NotImplementedError, TypeError):
            dtype = np.dtype(object)
        found[field.name] = Variable(field.name, (rows,), dtype, partial(_read, path, field.name))
    return found


def _read(path: Path, name: str, rows: slice, axis: int) -> np.ndarray:
    with parquet.ParquetFile(path) as file:
        start, stop, step = rows.indices(file.metadata.num_rows)
        parts, first = [], 0
        for batch in file.iter_batches(_ROWS, columns=[name], use_threads=False):
            begin = max(start - first, (start - first) % step)
            parts.append(batch.column(0).to_numpy(zero_copy_only=False)[begin : max(stop - first, 0) : step])
            first += len(batch)
            if first >= stop:
                break
    return np.concatenate(parts) if parts else np.zeros(0)
