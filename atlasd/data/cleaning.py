"""Values that cannot be used: missing ones, copies, constants; each is counted and reported."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.masked import MaskedTensor

from atlasd.errors import InputError

_RULE = 0.05
"""Share of samples from which a pixel counts as missing altogether."""
_COPIES = 0.01
"""The largest share of samples that may be copies of others."""
_CLASSES = 20
_MOST_MARKS = 16
"""Numbers that stand for missing values; conventions have two."""
_ROUNDING = 1e-6
"""What numbers may lose in single precision, relative to the largest of their column."""


def clean(
    x: np.ndarray,
    y: np.ndarray,
    names: tuple[str, str],
    nan: str,
    duplicates: str,
    is_field: bool,
    minimum: int,
    columns: tuple[Sequence[str], Sequence[str]] = ((), ()),
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, list[str]]:
    """Inputs and targets without missing values and copies, the pixels that were masked, and what was done.

    Arguments:
        names: What to call them in messages.
        is_field: Whether the inputs are fields.
        minimum: The fewest samples that may be left.
        columns: Names of the columns of each, where each has one.
    """
    notes: list[str] = []
    masked: np.ndarray | None = None
    for array, name in ((x, names[0]), (y, names[1])):
        if array.dtype.kind not in "fiub":
            raise InputError(f"variable {name!r} must hold real numbers, got {array.dtype}; choose another one.")
    bad_x, bad_y = _missing(x), _missing(y)
    for bad, name, parts in ((bad_x, names[0], columns[0]), (bad_y, names[1], columns[1])):
        if bad is not None and nan == "refuse":
            raise InputError(_where(bad, name, parts))
    if bad_x is not None or bad_y is not None:
        x, y, masked, said = _mask(x, y, bad_x, bad_y, is_field)
        notes.append(said + _gaps(bad_x, columns[0]) + _gaps(bad_y, columns[1]))
    x, y, said = _without_copies(x, y, duplicates)
    notes += [said] if said else []
    if len(x) < minimum:
        raise InputError(
            f"the data must have at least {minimum} samples, got {len(x)} that can be used"
            f"{' (' + '; '.join(notes) + ')' if notes else ''}; give more data."
        )
    for array, name, remedy in (
        (x, names[0], "name another --input"),
        (y, names[1], "there is nothing to learn; name another --target"),
    ):
        spread = np.ptp(array.astype(np.float64, copy=False) if array.dtype.kind == "b" else array)
        if float(spread) == 0.0:
            raise InputError(f"variable {name!r} must vary, got {array.flat[0]} everywhere; {remedy}.")
    return x, y, masked, notes


def _missing(array: np.ndarray) -> np.ndarray | None:
    if array.dtype.kind != "f":
        return None
    bad = ~np.isfinite(array)
    return bad if bool(bad.any()) else None


def _gaps(bad: np.ndarray | None, columns: Sequence[str]) -> str:
    """The columns that have gaps, for people."""
    if bad is None or not columns:
        return ""
    counts = bad.reshape(len(bad), len(columns), -1).any(2).sum(0)
    return " (" + ", ".join(f"{c} in {n}" for c, n in zip(columns, counts.tolist(), strict=True) if n) + ")"


def _where(bad: np.ndarray, name: str, columns: Sequence[str] = ()) -> str:
    if columns:  # the first column that has gaps
        k = int(bad.reshape(len(bad), len(columns), -1).any((0, 2)).argmax())
        bad, name = bad.reshape(len(bad), len(columns), -1)[:, k], columns[k]
        bad = bad[:, 0] if bad.shape[1] == 1 else bad
    samples = int(bad.reshape(len(bad), -1).any(1).sum())
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"variable {name!r} must be finite, got NaN or infinity in {samples} of {len(bad)} samples, "
        f"{int(bad.sum())} of {bad.size} values, first at index {first if len(first) > 1 else first[0]}; "
        "--nan mask leaves them out."
    )


def _mask(
    x: np.ndarray, y: np.ndarray, bad_x: np.ndarray | None, bad_y: np.ndarray | None, is_field: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, str]:
    """Leaves out pixels that are missing as a rule, and samples that miss others."""
    masked = None
    said = []
    if is_field:
        often = np.zeros(x.shape[2:], dtype=bool)
        for bad in (bad_x, bad_y):
            if bad is not None:
                often |= bad.any(1).mean(0) > _RULE
        if often.any():
            masked = often
            said.append(f"{int(often.sum())} of {often.size} pixels are missing and masked")
            x, y = (_filled(a, often) for a in (x, y))
            bad_x, bad_y = _missing(x), _missing(y)
    keep = np.ones(len(x), dtype=bool)
    for bad in (bad_x, bad_y):
        if bad is not None:
            keep &= ~bad.reshape(len(bad), -1).any(1)
    if not keep.all():
        said.append(f"{int((~keep).sum())} of {len(keep)} samples have missing values and are left out")
    return x[keep], y[keep], masked, "; ".join(said)


def _filled(array: np.ndarray, often: np.ndarray) -> np.ndarray:
    """The array with the mean of its channel in masked pixels."""
    if array.dtype.kind != "f":
        return array
    out = array.copy()
    for c in range(out.shape[1]):
        inside = out[:, c][:, ~often]
        finite = inside[np.isfinite(inside)]
        out[:, c][:, often] = finite.mean() if finite.size else 0.0
    return out


def _without_copies(x: np.ndarray, y: np.ndarray, duplicates: str) -> tuple[np.ndarray, np.ndarray, str]:
    """Refuses many copies, or leaves them out."""
    copied, example = find_copies(x, y)
    # A constant is its own error, and a clearer one.
    if not copied.any() or float(np.ptp(y)) == 0.0 or float(np.ptp(x)) == 0.0:
        return x, y, ""
    if duplicates == "refuse":
        refuse_copies(copied, example, "--duplicates drop leaves them out")
    return x[~copied], y[~copied], f"{int(copied.sum())} copies are left out"


def as_targets(y: np.ndarray, name: str, task: str, is_field: bool) -> tuple[np.ndarray, list[str]]:
    """Targets as floats, or as classes from 0 on where they are few integers."""
    integers = y.dtype.kind in "iub"
    if task == "classes" and not integers:
        integers = bool(np.all(y == np.round(y)))
        if not integers:
            raise InputError(f"--task classes needs whole numbers in {name!r}, got {y.flat[0]}; use --task values.")
    single = y.ndim == 1 or (y.ndim == 2 and not is_field and y.shape[1] == 1) or (is_field and y.shape[1] == 1)
    if task != "values" and integers and single:
        levels = np.unique(y)
        if len(levels) <= _CLASSES or (task == "classes" and len(levels) <= 1000):
            classes = np.searchsorted(levels, y).astype(np.int64)
            return (classes if is_field else classes.reshape(len(y))), [f"{name} is taken as {len(levels)} classes"]
        if task == "classes":
            raise InputError(f"--task classes allows 1000 classes, got {len(levels)} in {name!r}; use --task values.")
    elif task == "classes":
        raise InputError(f"--task classes needs one target, got {y.shape[1]} channels; name one --target.")
    if not is_field and single and task == "auto" and _spans_decades(y):
        # What leaves a positive number as it is leaves its logarithm, which is easier to learn.
        return as_floats(np.log(y.astype(np.float64))), [f"the logarithm of {name} is learned; it spans decades"]
    return as_floats(y), []


def as_floats(array: np.ndarray) -> np.ndarray:
    """The numbers in single precision, or in double where that would lose some: those of a column of 1e-50 or 1e39.

    Example:
        >>> [str(as_floats(np.array([size, 2 * size])).dtype) for size in (1.0, 1e-30, 1e-45, 1e39)]
        ['float32', 'float32', 'float64', 'float64']
    """
    with np.errstate(over="ignore", under="ignore"):
        single = np.ascontiguousarray(array, dtype=np.float32)
    if array.dtype.itemsize <= 4 or array.dtype.kind != "f":
        return single
    whole = np.ascontiguousarray(array, dtype=np.float64)
    # Sample by sample: a difference of all of them at once would take as much memory again.
    size, lost = (np.zeros(array.shape[1:]) for _ in range(2))
    for one, other in zip(whole, single, strict=True):
        np.maximum(size, np.abs(one), out=size)
        np.maximum(lost, np.abs(one - other), out=lost)
    return single if bool((lost <= _ROUNDING * size).all()) else whole


def _spans_decades(y: np.ndarray) -> bool:
    """Whether positive numbers span decades because of large values: a square has small ones, which say nothing."""
    if float(y.min()) <= 0:
        return False
    low, middle, high = np.log10(np.quantile(y, [0.01, 0.5, 0.99]))
    return bool(high - low > 1 and middle - low < 1.5 * (high - middle))


def standardise(x: Tensor, pairs: Sequence[tuple[int, int]]) -> Tensor:
    """Channels of fields with mean 0 and standard deviation 1; pairs are only divided, by one number."""
    x = x.clone()
    together = {c for pair in pairs for c in pair}
    for c in range(x.shape[1]):
        if c not in together:
            channel = x[:, c].double()
            x[:, c] = ((channel - channel.mean()) / channel.std().clamp_min(1e-30)).float()
    for pair in pairs:
        size = torch.sqrt(x[:, list(pair)].double().square().mean()).clamp_min(1e-30)
        x[:, list(pair)] = (x[:, list(pair)] / size).float()
    return x


def find_copies(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, tuple[int, int]]:
    """Whether each pair of input and target is an exact copy of an earlier one, `(N,)`, and the first such pair.

    Only a digest of every sample is kept.

    Example:
        >>> copied, first = find_copies(np.array([1.0, 2.0, 1.0]), np.array([3.0, 3.0, 3.0]))
        >>> copied.tolist(), first
        ([False, False, True], (0, 2))
    """
    seen: dict[bytes, int] = {}
    copied = np.zeros(len(x), dtype=bool)
    example = (0, 0)
    for k in range(len(x)):
        digest = hashlib.blake2b(np.ascontiguousarray(x[k]).tobytes(), digest_size=16)
        digest.update(np.ascontiguousarray(y[k]).tobytes())
        first = seen.setdefault(digest.digest(), k)
        if first != k:
            example = example if copied.any() else (first, k)
            copied[k] = True
    return copied, example


def refuse_copies(copied: np.ndarray, example: tuple[int, int], remedy: str) -> None:
    """Raises where more than one sample in a hundred is a copy: it would be fitted to and judged by at once."""
    copies = int(copied.sum())
    if copies > _COPIES * len(copied):
        raise InputError(
            f"samples must differ, got {copies} copies among {len(copied)} (sample {example[1]} is sample "
            f"{example[0]} again); {remedy}."
        )


def unmasked(array: Any, name: str) -> np.ndarray:
    """The array with masked numbers as NaN; masked integers are refused, since they have no NaN.

    Arguments:
        name: What to call it in messages.

    Example:
        >>> unmasked(np.ma.masked_equal([1.0, 9.0], 9.0), "x")
        array([ 1., nan])
        >>> unmasked(np.ma.masked_equal([1, 9], 9), "x")
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: `x` must have no masked entries, got 1 of 2; fill or drop them.
    """
    array = _joined(array, name)
    if not isinstance(array, np.ma.MaskedArray):
        return np.asarray(array)
    masked = int(np.ma.count_masked(array))
    if not masked:
        return np.asarray(array)
    if array.dtype.kind != "f":
        raise InputError(f"`{name}` must have no masked entries, got {masked} of {array.size}; fill or drop them.")
    return np.asarray(array.filled(np.nan))


def _joined(value: Any, name: str) -> Any:
    """A masked array in place of lists of some and of torch's masked tensors; anything else as it is."""
    if isinstance(value, MaskedTensor):
        return np.ma.masked_array(value.get_data().cpu().numpy(), ~value.get_mask().cpu().numpy())
    if not isinstance(value, list | tuple):
        return value
    parts = [_joined(each, name) for each in value]
    if not any(isinstance(each, np.ma.MaskedArray) for each in parts):
        return value
    try:
        return np.ma.stack(parts)
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must be an array of numbers, got a list of masked arrays ({error}).") from error


def whole_tensor(value: Any, name: str) -> Tensor:
    """The numbers as a tensor, for work that knows no missing ones; raises where some are masked."""
    if isinstance(value, Tensor) and not isinstance(value, MaskedTensor):
        return value
    joined = _joined(value, name)
    if isinstance(joined, np.ma.MaskedArray) and (masked := int(np.ma.count_masked(joined))):
        raise InputError(f"`{name}` must have no masked entries, got {masked} of {joined.size}; fill or drop them.")
    if isinstance(joined, np.ndarray):
        joined = joined.astype(joined.dtype.newbyteorder("="), copy=False)
    return torch.as_tensor(joined)


def missing_marks(attributes: Mapping[str, Any]) -> list[float]:
    """The numbers that stand for missing values in a variable, as the conventions of netCDF name them."""
    named = [np.ravel(attributes[key]) for key in ("_FillValue", "missing_value") if key in attributes]
    return [each.item() for marks in named if marks.dtype.kind in "fiu" for each in marks[:_MOST_MARKS]]
