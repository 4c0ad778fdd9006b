"""Values as plain JSON and tensors, and back: reading makes only what is registered here, and runs nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

from torch import Tensor

from atlasd.errors import DataError

C = TypeVar("C", bound=type)
Reader = Callable[[Mapping[str, Any]], Any]
_known: dict[str, tuple[type, tuple[str, ...], Reader]] = {}
_PLAIN = (str, int, float, bool, type(None))


class Unstorable(Exception):
    """A value holds something that cannot be written down, such as a function; it is computed again instead."""


def storable(*names: str, read: Reader | None = None) -> Callable[[C], C]:
    """Registers a class whose values are the attributes `names`; those of a dataclass are its fields.

    Arguments:
        names: Attributes to write; for a dataclass they may be left out.
        read: Makes a value from them; by default the class is called with them.
    """

    def register(cls: C) -> C:
        given = names or (tuple(f.name for f in fields(cls)) if is_dataclass(cls) else ())
        _known[cls.__name__ if cls.__name__[0] != "_" else f"{cls.__module__}.{cls.__name__}"] = (
            cls,
            given,
            read or (lambda content: cls(**content)),
        )
        return cls

    return register


def encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A tree of plain values; tensors go into `tensors` under numbers."""
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Tensor):
        tensors[str(len(tensors))] = value.detach().cpu().clone().contiguous()
        return {"$": "tensor", "at": str(len(tensors) - 1)}
    if isinstance(value, range):
        return {"$": "range", "at": [value.start, value.stop]}
    if isinstance(value, list | tuple):
        return {"$": type(value).__name__, "at": [encode(v, tensors) for v in value]}
    if isinstance(value, Mapping):
        return {"$": "dict", "at": [[str(k), encode(v, tensors)] for k, v in value.items()]}
    if isinstance(value, type):
        for name, (cls, _, _) in _known.items():
            if cls is value:
                return {"$": "class", "at": name}
    for name, (cls, names, _) in _known.items():
        if type(value) is cls:
            return {"$": name, "at": [[n, encode(getattr(value, n), tensors)] for n in names]}
    raise Unstorable(type(value).__name__)


def decode(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value behind a tree; raises `DataError` for anything that is not registered."""
    if isinstance(tree, _PLAIN):
        return tree
    try:
        kind, content = tree["$"], tree["at"]
        if kind == "tensor":
            return tensors[content]
        if kind == "range":
            return range(*content)
        if kind in ("list", "tuple"):
            return (list if kind == "list" else tuple)(decode(v, tensors) for v in content)
        values = {k: decode(v, tensors) for k, v in content} if kind != "class" else {}
        if kind == "dict":
            return values
        return _known[content][0] if kind == "class" else _known[kind][2](values)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(f"a kept stage is damaged or of another version: {error!r}; start the run again.") from error
