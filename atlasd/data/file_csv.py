"""CSV tables, also gzipped: a header, then numbers; text columns are allowed but cannot be used."""

from __future__ import annotations

import csv
import gzip
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO

import numpy as np

from atlasd.data.file_limits import MOST_BYTES, MOST_CELLS, MOST_LINE, check_count
from atlasd.data.files import Variable
from atlasd.errors import DataError

_MISSING = {"", "na", "n/a", "nan", "null", "none", "-"}
_REMEDY = "convert it to parquet or HDF5"


def read_variables(path: Path, kind: str) -> dict[str, Variable]:
    """The columns; missing entries become NaN."""
    with _open(path) as handle:
        lines = _lines(path, handle)
        first, remarks = next(lines, ""), []
        while first.startswith("#"):
            remarks.append(first)
            check_count(path, len(remarks), "remarks")
            first = next(lines, "")
        if not first.strip():
            raise DataError(f"`{path}` must start with a line of column names, got an empty line.")
        delimiter = max(",;\t", key=first.count) if any(d in first for d in ",;\t") else " "
        if remarks and any(_number(n) is not None for n in first.split(delimiter)):
            lines = chain([first], lines)  # the last remark holds the names, as numpy writes them
            first = remarks.pop().lstrip("#")
        # A name in quotes may run over several lines.
        lines = chain([first.strip() + "\n"], lines)
        rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
        names = [n.strip() for n in next(rows)]
        check_count(path, len(names), "columns")
        if all(_number(n) is not None for n in names):
            raise DataError(
                f"`{path}` must start with column names, got the numbers {first.strip()[:60]!r}; add a header."
            )
        twice = sorted(n for n, count in Counter(names).items() if count > 1)
        if twice:
            raise DataError(f"`{path}` must have different column names, got {twice[0]!r} twice; rename one.")
        if len(names) < 2:
            raise DataError(f"`{path}` must have at least two columns, input and target, got only {names[0]!r}.")
        # Where commas do not separate, they may be decimal ones.
        table, texts = _table(path, rows, len(names), len(remarks) + 2, commas=delimiter != ",")
    return {n: _text(n, texts[k]) if k in texts else _column(n, table[:, k]) for k, n in enumerate(names)}


def _open(path: Path) -> IO[str]:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _lines(path: Path, handle: IO[str]) -> Iterator[str]:
    """Lines one by one, neither too long nor too many: a small gzipped file may unpack to anything."""
    left = MOST_BYTES
    while line := handle.readline(MOST_LINE + 1):
        left -= len(line)
        if len(line) > MOST_LINE:
            raise DataError(f"`{path}` must have lines of at most {MOST_LINE} characters, got a longer one; {_REMEDY}.")
        if left < 0:
            raise DataError(f"`{path}` must hold at most {MOST_BYTES >> 20} MB of text, got more; {_REMEDY}.")
        yield line


def _table(
    path: Path, rows: Iterator[list[str]], width: int, start: int, commas: bool
) -> tuple[np.ndarray, dict[int, str]]:
    """All numbers, with shape `(rows, width)`, and what each column that cannot be used holds."""
    values = array("d")
    texts: dict[int, str] = {}
    blank = 0
    for number, row in enumerate(rows, start=start):
        if len(values) + blank > MOST_CELLS:
            raise DataError(f"`{path}` must hold at most {MOST_CELLS} numbers as text, got more; {_REMEDY}.")
        if not row:
            blank += 1
            continue
        if len(row) != width:
            remedy = "" if commas or len(row) < width else "; decimal commas need semicolons between the columns"
            raise DataError(
                f"`{path}` must have {width} entries on every line, got {len(row)} on line {number}{remedy}."
            )
        for k in texts:
            row[k] = "nan"
        try:
            values.extend(list(map(float, row)))  # all at once: most rows are numbers
        except ValueError:
            for k, text in enumerate(row):
                value = _number(text.replace(",", ".", 1) if commas else text)
                if value is None:
                    texts[k] = f"text, such as {text[:40]!r} on line {number}"
                values.append(float("nan") if value is None else value)
    table = np.frombuffer(values, dtype=np.float64).reshape(-1, width) if values else np.zeros((0, width))
    empty = np.flatnonzero(np.isnan(table).all(0)) if len(table) else ()
    return table, {int(k): "no numbers" for k in empty} | texts


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return float("nan") if text.strip().lower() in _MISSING else None


def _text(name: str, example: str) -> Variable:
    return Variable(name, (0,), np.dtype(str), lambda rows, axis: np.array([example]), example=example)


def _column(name: str, values: np.ndarray) -> Variable:
    integers = values.size > 0 and bool(np.all(np.isfinite(values)) and np.all(values == np.round(values)))
    kind = np.dtype(np.int64 if integers and float(np.abs(values).max()) < 2**53 else np.float64)
    return Variable(name, values.shape, kind, lambda rows, axis: values[rows].astype(kind))
