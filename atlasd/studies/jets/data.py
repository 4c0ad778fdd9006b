"""Jets for top tagging: the reference set in its own format, and jets kept as arrays.

The reference set (Kasieczka, Plehn, Thompson, Russell; Zenodo 2603256, CC BY 4.0) is three HDF5 files, `train.h5`,
`val.h5` and `test.h5`, each with the table `table`: E_0, PX_0, PY_0, PZ_0, ..., PZ_199 in GeV, padded with zeros, and
the label is_signal_new, 1 for a top. `atlasd data top-tagging` fetches it. Arrays are kept in `.npz` files with
`momenta` `(N, P, 4)` and `label` `(N,)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from atlasd.data.file_limits import reading
from atlasd.data.file_numpy import read_variables
from atlasd.data.pandas_table import TableReader
from atlasd.errors import DataError, InputError

COMPONENTS = ("E", "PX", "PY", "PZ")
LABEL = "is_signal_new"
Split = Literal["train", "val", "test"]
Invalid = Literal["raise", "drop"]

_FILES = {"train": "train.h5", "val": "val.h5", "test": "test.h5"}
_ARRAYS = "jets_pythia.npz"


def jet_columns(constituents: int) -> list[str]:
    """Names of the columns of so many constituents, in the order of the reference set.

    Example:
        >>> jet_columns(2)
        ['E_0', 'PX_0', 'PY_0', 'PZ_0', 'E_1', 'PX_1', 'PY_1', 'PZ_1']
    """
    return [f"{component}_{i}" for i in range(constituents) for component in COMPONENTS]


def find_jets(split: Split = "train") -> Path:
    """Where the jets are: the reference set below ATLASD_DATA or the cache, else the arrays in ATLASD_DATA."""
    from atlasd.data.fetch import data_directory

    places = [data_directory("top-tagging") / _FILES[split]]
    if root := os.environ.get("ATLASD_DATA"):
        places.append(Path(root) / _ARRAYS)
    for path in places:
        if path.is_file():
            return path
    raise DataError(
        f"`{places[0]}` must hold the jets, got nothing there; run `atlasd data top-tagging`, or set ATLASD_DATA to a "
        f"directory with {_ARRAYS}."
    )


def jet_count(path: str | Path) -> int:
    """How many jets a file holds."""
    path = Path(path)
    if path.suffix == ".npz":
        return len(_open_arrays(path)["label"])
    with TableReader(path) as table:
        return len(table)


def read_jets(
    path: str | Path,
    *,
    batch: int = 4096,
    constituents: int | None = None,
    start: int = 0,
    stop: int | None = None,
    invalid: Invalid = "raise",
) -> Iterator[tuple[Tensor, Tensor]]:
    """Jets in batches, so that memory does not grow with the file.

    Arguments:
        path: An `.h5` file of the reference set's form, or an `.npz` file of arrays.
        constituents: How many leading constituents; all by default.
        start: The first jet.
        stop: The jet after the last.
        invalid: Whether jets without constituents, or with energies that are not positive, are an error or left out.

    Yields:
        Momenta `(B, P, 4)` in GeV, float32, padded with zeros, and labels `(B,)`, 1 for a top.
    """
    path = Path(path)
    if batch < 1 or start < 0 or (constituents is not None and constituents < 1):
        raise InputError(f"`batch` and `constituents` must be positive, got {batch} and {constituents}.")
    source = _from_arrays if path.suffix == ".npz" else _from_table
    for first, momenta, labels in source(path, batch, constituents, start, stop):
        good = _check(path, first, momenta, labels, invalid)
        yield torch.from_numpy(momenta[good]), torch.from_numpy(labels[good])


def load_jets(
    path: str | Path | None = None,
    *,
    samples: int | None = None,
    constituents: int | None = None,
    split: Split = "train",
    invalid: Invalid = "raise",
) -> tuple[Tensor, Tensor]:
    """The first jets of a file at once.

    Arguments:
        path: The file; the one that `find_jets` knows by default.
        split: Which file of the reference set, where `path` is left out.
        invalid: As in `read_jets`.

    Returns:
        Momenta `(N, P, 4)` in GeV, float32, and labels `(N,)`.
    """
    path = find_jets(split) if path is None else Path(path)
    parts = list(read_jets(path, constituents=constituents, stop=samples, invalid=invalid))
    if not parts or not sum(len(labels) for _, labels in parts):
        raise DataError(f"`{path}` must hold at least one jet, got none; is this the right file?")
    return torch.cat([m for m, _ in parts]), torch.cat([labels for _, labels in parts])


_Batch = tuple[int, npt.NDArray[np.float32], npt.NDArray[np.int64]]


def _from_table(path: Path, batch: int, constituents: int | None, start: int, stop: int | None) -> Iterator[_Batch]:
    with TableReader(path) as table:
        known = set(table.columns)
        count = constituents or max((i + 1 for i in range(len(known)) if f"E_{i}" in known), default=1)
        columns = jet_columns(count)
        for first, last in table.runs(batch, start, stop):
            rows = table.rows([*columns, LABEL], first, last)
            momenta = rows[:, :-1].astype(np.float32).reshape(len(rows), count, 4)
            yield first, momenta, _integers(rows[:, -1])


def _from_arrays(path: Path, batch: int, constituents: int | None, start: int, stop: int | None) -> Iterator[_Batch]:
    arrays = _open_arrays(path)
    momenta, labels = arrays["momenta"][start:stop], arrays["label"][start:stop]
    if momenta.ndim != 3 or momenta.shape[-1] != 4 or len(momenta) != len(labels):
        raise DataError(
            f"`{path}` must hold momenta (N, P, 4) and label (N,), got {momenta.shape} and {labels.shape}; "
            "write it again."
        )
    if constituents is not None and constituents > momenta.shape[1]:
        count = momenta.shape[1]
        raise DataError(f"`{path}` must have {constituents} constituents, got {count}; set constituents={count}.")
    for first in range(0, len(labels), batch):
        part = momenta[first : first + batch, :constituents].astype(np.float32)
        yield start + first, part, _integers(labels[first : first + batch])


def _integers(labels: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Labels as whole numbers; what is none becomes -1, which no label is."""
    labels = labels.astype(np.float64)
    return np.where(labels == np.round(labels), labels, -1.0).astype(np.int64)


def _open_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    if not path.is_file():
        raise DataError(f"`{path}` must be an .npz file, got nothing there; give the path of a file.")
    with reading(path, ".npz file"):
        found = read_variables(path, "npz")
    missing = [name for name in ("momenta", "label") if name not in found]
    if missing:
        raise DataError(f"`{path}` must hold `{missing[0]}`, got {', '.join(found) or 'nothing'}.")
    return {name: found[name].read(slice(None)) for name in ("momenta", "label")}


def _check(
    path: Path,
    first: int,
    momenta: npt.NDArray[np.float32],
    labels: npt.NDArray[np.int64],
    invalid: Invalid,
) -> npt.NDArray[np.bool_]:
    """Which jets can be used; raises for the others unless they are to be left out."""
    present = (momenta != 0).any(-1)
    wrong = [
        ("finite momenta", "NaN or infinity", ~np.isfinite(momenta).all((1, 2))),
        ("at least one constituent", "none", ~present.any(1)),
        ("positive energies", "a negative or zero energy", (present & (momenta[..., 0] <= 0)).any(1)),
        ("the label 0 or 1", "another", (labels != 0) & (labels != 1)),
    ]
    bad = np.zeros(len(labels), dtype=bool)
    for expected, got, where in wrong:
        if invalid == "raise" and where.any():
            number = first + int(where.argmax())
            raise DataError(
                f"`{path}` must have {expected} in every jet, got {got} in {int(where.sum())} of jets {first} to "
                f"{first + len(labels) - 1} (first: jet {number}); set invalid=drop to leave them out."
            )
        bad |= where
    return ~bad
