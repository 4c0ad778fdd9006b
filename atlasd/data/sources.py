"""Data that are not plain arrays: torch datasets and loaders, xarray arrays with named axes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset, default_collate

from atlasd.data.cleaning import unmasked
from atlasd.errors import InputError

_SAMPLE = (
    "time t sample samples sample_id member members realization realisation ensemble number event events "
    "batch case cases run record date valid_time n obs observation index simulation sim image images img "
    "trial year month day hour step frame snapshot row_id entry"
)
_CHANNEL = "channel channels c ch chan variable variables band bands feature features level lev plev species rgb"
_DEPTH = "z depth altitude alt k zc"
_ROW = "lat latitude y row rows height h rlat nlat j south_north north yc lats"
_COLUMN = "lon longitude long x column columns col cols width w rlon nlon i west_east east xc lons"
_ROLES = {
    **dict.fromkeys(_SAMPLE.split(), "N"), **dict.fromkeys(_CHANNEL.split(), "C"), **dict.fromkeys(_DEPTH.split(), "D"),
    **dict.fromkeys(_ROW.split(), "H"), **dict.fromkeys(_COLUMN.split(), "W"),
}  # fmt: skip


@dataclass(frozen=True)
class Arrangement:
    """Which axes of an array are samples, channels and space.

    Arguments:
        samples: Axes that count samples; several are merged.
        channels: Axes that count channels; several are merged.
        space: Axes of space in the order depth, row, column; empty for vectors.

    Example:
        >>> arrange(("lat", "lon", "time"), (5, 6, 40))(np.zeros((5, 6, 40))).shape
        (40, 1, 5, 6)
    """

    samples: tuple[int, ...]
    channels: tuple[int, ...]
    space: tuple[int, ...]

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """The array as `(N, C, *S)`; vectors keep the order of their axes after the first."""
        moved = array.transpose(*self.samples, *self.channels, *self.space)
        sizes = [array.shape[a] for a in self.samples]
        channels = [array.shape[a] for a in self.channels]
        space = [array.shape[a] for a in self.space]
        if not space:
            return moved.reshape(math.prod(sizes), *channels)
        return moved.reshape(math.prod(sizes), math.prod(channels), *space)


def arrange(dims: tuple[str, ...], shape: tuple[int, ...]) -> Arrangement | None:
    """The meaning of named axes, or `None` where the names say nothing about space or samples."""
    # "lat_2", "x0" and "Time" are what their stems are.
    roles = [_ROLES.get(re.sub(r"[_\-]?\d+$", "", d.lower()), "?") for d in dims]
    if "H" in roles and "W" in roles:
        return _field(dims, shape, roles)
    samples = [k for k, r in enumerate(roles) if r == "N"]
    if not samples or len(samples) == len(dims) == 1:
        return None if not samples else Arrangement((0,), (), ())
    return Arrangement(tuple(samples), tuple(k for k in range(len(dims)) if k not in samples), ())


def _field(dims: tuple[str, ...], shape: tuple[int, ...], roles: list[str]) -> Arrangement:
    for role, meaning in (("H", "rows"), ("W", "columns"), ("D", "depth")):
        if roles.count(role) > 1:
            raise InputError(
                f"dimensions must name {meaning} once, got {dims}; choose one variable or rename a dimension."
            )
    samples = [k for k, r in enumerate(roles) if r == "N"]
    unknown = [k for k, r in enumerate(roles) if r == "?"]
    if not samples and unknown:
        samples, unknown = unknown[:1], unknown[1:]
    if not samples:
        raise InputError(
            f"one dimension must count samples, such as time, got {dims} of shape {shape}; one field is not enough."
        )
    channels = [k for k, r in enumerate(roles) if r == "C"] + unknown
    space = [roles.index(r) for r in "DHW" if r in roles]
    return Arrangement(tuple(samples), tuple(channels), tuple(space))


def gather(x: Any, y: Any = None) -> tuple[Any, Any]:
    """Inputs and targets as arrays or tensors, whatever they came in.

    Tensors are handed on as they are, on the device where they are. Datasets and loaders give pairs; their tensors are
    stacked. Axes of xarray arrays are put in order by their names: samples, channels, space.

    Arguments:
        x: An array, a tensor, a torch dataset or loader of pairs, or an xarray array.
        y: An array, a tensor or an xarray array; left out with a dataset.

    Example:
        >>> pairs = TensorDataset(torch.zeros(5, 3), torch.arange(5))
        >>> [tuple(part.shape) for part in gather(DataLoader(pairs, batch_size=2))]
        [(5, 3), (5,)]
    """
    if isinstance(x, DataLoader | Dataset):
        if y is not None:
            raise InputError(
                f"`y` must be left out where `x` is a {type(x).__name__}, which gives the targets itself; drop one."
            )
        return _from_dataset(x)
    if _is_xarray(x) or _is_xarray(y):
        return _from_xarray(x, y)
    return x, y


def _from_dataset(source: DataLoader | Dataset) -> tuple[Any, Any]:
    if isinstance(source, TensorDataset):
        parts: Iterator[Any] | list[Any] = [source.tensors]
    elif isinstance(source, DataLoader):
        parts = iter(source)
    else:
        parts = _batches(source)
    rows = []
    for part in parts:
        if not isinstance(part, list | tuple) or len(part) not in (1, 2):
            got = f"{len(part)} entries" if isinstance(part, list | tuple) else type(part).__name__
            raise InputError(f"`x` must give pairs of input and target, got {got}; wrap it so that it gives (x, y).")
        if not all(isinstance(p, Tensor) for p in part):
            kinds = ", ".join(type(p).__name__ for p in part)
            raise InputError(f"`x` must give tensors, got {kinds}; convert them in the dataset.")
        rows.append(part)
    if not rows:
        raise InputError("`x` must hold samples, got an empty dataset; give more data.")
    if len({tuple(p[0].shape[1:]) for p in rows}) > 1:
        shapes = sorted({tuple(p[0].shape[1:]) for p in rows})
        raise InputError(f"`x` must give inputs of one shape, got {shapes[0]} and {shapes[1]}; crop or pad them.")
    joined = [rows[0][k] if len(rows) == 1 else torch.cat([r[k] for r in rows]) for k in range(len(rows[0]))]
    return joined[0], joined[1] if len(joined) > 1 else None


def _batches(dataset: Dataset, size: int = 256) -> Iterator[Any]:
    """Samples in the order of the dataset, a few hundred together."""
    if not isinstance(dataset, Sized) and not isinstance(dataset, Iterable):
        raise InputError(f"`x` must have a length or be iterable, got {type(dataset).__name__}; use a DataLoader.")
    samples: Iterable[Any] = (dataset[k] for k in range(len(dataset))) if isinstance(dataset, Sized) else dataset
    batch: list[Any] = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield _collated(batch)
            batch = []
    if batch:
        yield _collated(batch)


def _collated(batch: list[Any]) -> Any:
    if isinstance(batch[0], list | tuple):  # torch would take what lies under a mask
        batch = [tuple(unmasked(p, "x") if isinstance(p, np.ma.MaskedArray) else p for p in each) for each in batch]
    try:
        return default_collate(batch)
    except (RuntimeError, TypeError) as error:
        raise InputError(f"`x` must give samples that can be stacked: {str(error).splitlines()[0]}") from error


def _is_xarray(value: Any) -> bool:
    # By name: xarray is optional, and is loaded already where this is true.
    return type(value).__module__.split(".")[0] == "xarray"


def _from_xarray(x: Any, y: Any) -> tuple[Any, Any]:
    for value, name in ((x, "x"), (y, "y")):
        if (_is_xarray(value) and not hasattr(value, "dims")) or type(value).__name__ == "Dataset":
            raise InputError(f"`{name}` must be a DataArray, got an xarray {type(value).__name__}; pick a variable.")
    is_field = False
    if _is_xarray(x):
        x, is_field = _ordered(x)
    if _is_xarray(y):
        integers = y.dtype.kind in "iub"
        y, field = _ordered(y)
        if is_field and field and integers and y.shape[1] == 1:
            y = y[:, 0]  # classes have no axis of channels
    return x, y


def _ordered(array: Any) -> tuple[np.ndarray, bool]:
    dims = tuple(str(d) for d in array.dims)
    arrangement = arrange(dims, tuple(array.shape))
    values = np.asarray(array.values)
    return (values, False) if arrangement is None else (arrangement(values), bool(arrangement.space))
