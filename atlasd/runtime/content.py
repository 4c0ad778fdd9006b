"""Files of JSON and tensors, written whole and read with limits, and digests of what they hold."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from atlasd.errors import DataError
from atlasd.runtime.files import read_bytes, write_atomically

MOST_JSON = 24 << 20
"""Bytes of a JSON file: empty lists take 25 times as much when they are read."""
MOST_TENSORS = 2 << 30
"""Bytes of a file of tensors."""
DEPTH = 60
"""Levels of JSON; a result has ten."""


def read_json(path: Path, *, follow: bool = True) -> Any:
    """The content of a JSON file; raises `OSError`, or `ValueError` with the cause.

    Arguments:
        follow: Whether a symbolic link is followed.
    """
    try:
        content = json.loads(read_bytes(path, MOST_JSON, follow=follow))
    except RecursionError as error:
        raise DataError(f"`{path}` must have at most {DEPTH} levels, got far more; is it the right file?") from error
    _check_depth(path, content)
    return content


def _check_depth(path: Path, content: Any) -> None:
    level = [content]
    for _ in range(DEPTH):
        level = [value for each in level for value in _inside(each)]
        if not level:
            return
    raise DataError(f"`{path}` must have at most {DEPTH} levels, got more; is it the right file?")


def _inside(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> str:
    """Writes a safetensors file, whole or not at all, and returns the SHA-256 of its bytes."""
    # Bytes, not `save_file`: that one leaves files of its own behind, and has its own errors and modes.
    data = save(dict(tensors), None if metadata is None else dict(metadata))
    write_atomically(path, lambda file: file.write_bytes(data))
    return hashlib.sha256(data).hexdigest()


def read_tensors(path: Path, remedy: str = "run it again") -> dict[str, Tensor]:
    """The tensors of a safetensors file; raises `OSError`, or `DataError` with the remedy where it is damaged."""
    return unpack_tensors(path, read_bytes(path, MOST_TENSORS), remedy)[0]


def unpack_tensors(path: Path, data: bytes, remedy: str = "run it again") -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of the bytes of a safetensors file.

    Arguments:
        path: What to call it in messages.
        remedy: What to do where it is damaged.
    """
    try:
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + size]).get("__metadata__") or {}
    except (SafetensorError, ValueError, TypeError, KeyError, AttributeError, RuntimeError, RecursionError) as error:
        raise DataError(f"`{path}` is damaged: {' '.join(str(error).split())[:160]}; {remedy}.") from error
    return tensors, metadata


def tensor_digest(tensors: Mapping[str, Tensor], start: bytes = b"") -> str:
    """SHA-256 of names, types, shapes and values, in the order of the names.

    Arguments:
        start: What comes first.
    """
    digest = hashlib.sha256(start)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


_BLOCK = 32 << 20
"""Bytes that are read at a time."""
_DEPTH = 20


def digest_of(*values: Any) -> str:
    """SHA-256 of values, as 32 hexadecimal digits; arrays count in whole, and are read block by block.

    Example:
        >>> import torch
        >>> x = torch.zeros(100, 3)
        >>> before = digest_of(x, {"seed": 1})
        >>> x[71, 2] = 1e-9
        >>> before == digest_of(x, {"seed": 1})
        False
    """
    digest = hashlib.sha256()
    for value in values:
        _feed(digest, value, _DEPTH)
    return digest.hexdigest()[:32]


def _feed(digest: Any, value: Any, depth: int) -> None:
    if hasattr(value, "shape") and hasattr(value, "__getitem__") and not isinstance(value, type):
        _feed_array(digest, value)
        return
    name = value if isinstance(value, type) else type(value)
    digest.update(f"({name.__module__}.{name.__qualname__}".encode())
    if depth and (parts := _parts(value)) is not None:
        for key, part in parts:
            digest.update(f"|{key}=".encode())
            _feed(digest, part, depth - 1)
    else:
        digest.update(re.sub(r" at 0x[0-9a-f]+", "", repr(value)).encode(errors="backslashreplace"))
    digest.update(b")")


def _parts(value: Any) -> list[tuple[Any, Any]] | None:
    """What a value consists of; `None` where its text says everything."""
    if isinstance(value, type | str | bytes):
        return None
    if isinstance(value, Mapping):
        return [(repr(k), v) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, set | frozenset):
        return [(each, None) for each in sorted(map(repr, value))]
    if is_dataclass(value):
        return [(f.name, getattr(value, f.name)) for f in fields(value)]
    if (code := getattr(value, "__code__", None)) is not None:  # a function: its code and its constants
        closed = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        given = value.__defaults__, value.__kwdefaults__, getattr(value, "__self__", None)
        return [("name", value.__qualname__), ("code", _code(code)), ("given", given), ("in", closed)]
    slots = [s for kind in type(value).__mro__ for s in getattr(kind, "__slots__", ()) if hasattr(value, s)]
    inside = {**{s: getattr(value, s) for s in slots}, **getattr(value, "__dict__", {})}
    return None if not inside else sorted(inside.items(), key=lambda item: str(item[0]))


def _code(code: Any) -> list[Any]:
    """What a compiled function does, with the names that it uses and the functions inside of it."""
    constants = [_code(each) if hasattr(each, "co_code") else each for each in code.co_consts]
    return [code.co_code, code.co_names, constants]


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _feed_array(digest: Any, array: Any) -> None:
    """Shape, type and all numbers."""
    shape = tuple(int(s) for s in array.shape)
    digest.update(f"array {shape}".encode())
    if not shape:
        digest.update(_bytes(array))
        return
    # An array in chunks says how many rows are read together.
    rows = getattr(array, "rows", 0) or max(1, _BLOCK // max(8 * math.prod(shape[1:]), 1))
    for start in range(0, shape[0], rows):
        digest.update(_bytes(array[start : start + rows]))


def _bytes(block: Any) -> bytes:
    values = np.ascontiguousarray(block.detach().cpu().numpy() if hasattr(block, "detach") else block)
    text = repr(values.tolist()).encode() if values.dtype.hasobject else values.tobytes()
    return values.dtype.str.encode() + text
