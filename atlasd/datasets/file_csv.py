"""CSV tables, also gzipped: a header, then numbers; text columns are allowed but cannot be used."""

from __future__ import annotations

__all__ = ["read_variables"]

import csv
import gzip
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from atlasd.datasets.files import Variable
from atlasd.errors import DataError

_MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}
_LARGEST = 2 << 30


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The columns; missing entries become NaN."""
    with _open(path) as handle:
        first = handle.readline()
        if not first.strip():
            raise DataError(f"`{path}` must start with a line of column names, got an empty line.")
        delimiter = max(",;\t", key=first.count) if any(d in first for d in ",;\t") else " "
        names = next(csv.reader([first.strip().lstrip("#").strip()], delimiter=delimiter, skipinitialspace=True))
        names = [n.strip() for n in names]
        if all(_number(n) is not None for n in names):
            raise DataError(
                f"`{path}` must start with column names, got the numbers {first.strip()[:60]!r}; add a header."
            )
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise DataError(f"`{path}` must have different column names, got {twice[0]!r} twice; rename one.")
        if len(names) < 2:
            raise DataError(f"`{path}` must have at least two columns, input and target, got only {names[0]!r}.")
        if path.stat().st_size > _LARGEST:
            raise DataError(f"`{path}` is too large to be read as text (over 2 GB); convert it to parquet or HDF5.")
        columns = _columns(path, csv.reader(handle, delimiter=delimiter, skipinitialspace=True), names)
    return {n: _variable(n, c) for n, c in zip(names, columns, strict=True)}


def _open(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _columns(path: Path, rows: Iterator[list[str]], names: list[str]) -> list[array | str]:
    """Numbers of each column, or its first text."""
    columns: list[array | str] = [array("d") for _ in names]
    for number, row in enumerate(rows, start=2):
        if not row:
            continue
        if len(row) != len(names):
            raise DataError(f"`{path}` must have {len(names)} entries on every line, got {len(row)} on line {number}.")
        for k, text in enumerate(row):
            column = columns[k]
            if isinstance(column, str):
                continue
            value = _number(text)
            if value is None:
                columns[k] = text
            else:
                column.append(value)
    return columns


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return float("nan") if text.strip().lower() in _MISSING else None


def _variable(name: str, column: array | str) -> Variable:
    if isinstance(column, str):
        return Variable(name, (0,), np.dtype(str), lambda rows, axis: np.array([column]))
    values = np.frombuffer(column, dtype=np.float64) if len(column) else np.zeros(0)
    whole = values.size > 0 and bool(np.all(np.isfinite(values)) and np.all(values == np.round(values)))
    if whole and float(np.abs(values).max()) < 2**53:
        values = values.astype(np.int64)
    return Variable(name, values.shape, values.dtype, lambda rows, axis: values[rows])
