"""How tasks and what they share travel to workers and back."""

from __future__ import annotations

import hashlib
import io
import pickle
import uuid
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy.typing as npt
import torch

T = TypeVar("T")
_KEPT = 32
"""Shared values that a worker keeps."""
_opened: OrderedDict[str, Any] = OrderedDict()
_PLAIN = {torch.float64, torch.float32, torch.int64, torch.bool}


class Shared(Generic[T]):
    """A value that many tasks need; a worker unpacks it once and keeps it for a while.

    Arguments:
        value: Anything that can be pickled and is small: large arrays are given as references to files.
    """

    def __init__(self, value: T) -> None:
        self.value = value
        self._packed: tuple[str, bytes] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._packed is None:
            data = _pack(self.value)
            self._packed = hashlib.sha256(data).hexdigest(), data
        return _unpack, self._packed


def ask(shared: Shared[Any], method: str, arguments: tuple[Any, ...]) -> Any:
    """What a method of a shared value says: a task."""
    return getattr(shared.value, method)(*arguments)


def _unpack(key: str, data: bytes) -> Shared[Any]:
    if key not in _opened:
        _opened[key] = Shared(pickle.loads(data))
    _opened.move_to_end(key)
    while len(_opened) > _KEPT:
        _opened.popitem(last=False)
    return _opened[key]


class _Pickler(pickle.Pickler):
    """Tensors travel as arrays: torch's own way takes a millisecond for each."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor or value.requires_grad or value.dtype not in _PLAIN:
            return NotImplemented
        # Strides must stay as they are: sums over another order of the same numbers round differently.
        if value.device.type != "cpu" or not value.is_contiguous():
            return NotImplemented
        return _tensor, (value.numpy(),)


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array)


def dumps(value: Any) -> bytes:
    """Anything that can be pickled, as bytes."""
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    return buffer.getvalue()


def _pack(value: Any) -> bytes:
    try:
        return dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        # Functions that are defined inside others travel by value where cloudpickle is there, as it is with Dask.
        import cloudpickle  # type: ignore[import-untyped, unused-ignore]

        return cloudpickle.dumps(value)


@dataclass(frozen=True)
class Packed:
    """A function and its arguments as bytes."""

    data: bytes

    def __dask_tokenize__(self) -> str:
        return uuid.uuid4().hex  # Dask names a task by its arguments, and would look through all of them
