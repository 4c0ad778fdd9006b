"""A seal on results: a digest that a later change of the files breaks."""

from __future__ import annotations

__all__ = ["check_seal", "seal"]

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from torch import Tensor

NAME = "digest"


def seal(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The digest of a result: of all its plain values but for timings, and of its tensors.

    Arguments:
        content: What `result.json` holds.
        tensors: What `tensors.safetensors` holds.
    """
    digest = hashlib.sha256(json.dumps(_timeless(content), sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def check_seal(content: Mapping[str, Any], tensors: Mapping[str, Tensor], version: str) -> str | None:
    """Why a result must not be believed, or nothing.

    Arguments:
        content: What `result.json` holds.
        tensors: What `tensors.safetensors` holds.
        version: The version of the program that reads.
    """
    if _number(content.get("version")) > _number(version):
        return f"it was written by atlasd {content.get('version')}, newer than this {version}; install that version"
    if content.get(NAME) != seal(content, tensors):
        return "it was changed after it was written, since its digest does not fit; run it again"
    return None


def _timeless(value: Any) -> Any:
    """Plain values without those that tell how long something took, and without the digest itself."""
    if isinstance(value, Mapping):
        return {k: _timeless(v) for k, v in value.items() if k != NAME and not k.endswith("seconds")}
    return [_timeless(v) for v in value] if isinstance(value, list | tuple) else value


def _number(version: object) -> tuple[int, ...]:
    """Major and minor version; what is no version is newer than any."""
    try:
        return tuple(int(part) for part in str(version).split(".")[:2])
    except ValueError:
        return (10**9,)
