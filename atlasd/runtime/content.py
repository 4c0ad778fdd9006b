"""JSON and tensors in files: written whole, and read with limits on size and depth."""

from __future__ import annotations

__all__ = ["read_json", "read_tensors", "tensor_digest", "unpack_tensors", "write_tensors"]

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from atlasd.errors import DataError
from atlasd.runtime.files import read_bytes, write_atomically

MOST_JSON = 64 << 20
"""Bytes of a JSON file."""
MOST_TENSORS = 2 << 30
"""Bytes of a file of tensors."""
DEPTH = 60
"""Levels of JSON; a result has ten."""


def read_json(path: Path, *, follow: bool = True) -> Any:
    """The content of a JSON file; raises `OSError`, or `ValueError` with the cause.

    Arguments:
        path: The file.
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
        data: Its content.
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
        tensors: By name.
        start: What comes first.
    """
    digest = hashlib.sha256(start)
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()
