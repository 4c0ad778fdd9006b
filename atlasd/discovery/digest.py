"""The digest of a result, which a later change of its files breaks, and the form that a result must have."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from atlasd.discovery.frames import Frames
from atlasd.errors import DataError
from atlasd.runtime.content import read_tensors, tensor_digest

NAME = "digest"
FRAMES = "frames.safetensors"
_REMEDY = "remove it to do without its pictures, or run again"
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "experiment": (str, type(None)), "config": dict, "seed": int, "version": str, "group": dict, "generators": list,
    "cosets": list, "spectrum": list, "verdict": dict, "predictor": dict, "charts": list, "metrics": dict,
    "paper": dict, "seconds": dict,
}  # fmt: skip
_MOST = 10_000
"""Entries of a list, which a page shows one by one."""
_PLAIN = (str, int, float, bool, type(None))


def check_content(content: Mapping[str, Any]) -> None:
    """Raises `TypeError`, `ValueError` or `KeyError` where `result.json` does not have the form of a result.

    A digest without a key says that nothing was changed by accident; anybody can make a new one. Whatever reads the
    content may rely on its form only because of this check.
    """
    for name, kind in _TYPES.items():
        _expect(content[name], kind, name)
    for name, value in (*content.items(), *content["verdict"].items(), *content["metrics"].items()):
        if isinstance(value, list) and len(value) > _MOST:
            raise ValueError(f"{name} must have at most {_MOST} entries, got {len(value)}")
    rows = content["metrics"].get("rows")
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    if len(rows) * len({key for row in rows for key in row}) > 100 * _MOST:
        raise ValueError(f"rows must make a table of at most {100 * _MOST} cells, got far more")
    for name in ("command", NAME):
        _expect(content.get(name), (str, type(None)), name)
    for name, value in _expect(content.get("files", {}), dict, "files").items():
        _expect(value, str, name)
    _expect(content["predictor"]["kind"], str, "kind")
    _expect(content["verdict"]["symmetric"], (bool, type(None)), "symmetric")
    _expect(content["verdict"]["reason"], str, "reason")
    _expect(content["verdict"].get("gates", {}), dict, "gates")
    for name in ("directions", "cosets", "rejected"):
        for entry in _expect(content["verdict"].get(name, []), list, name):
            _check_entry(entry)
            for text in ("decision", "reason"):
                _expect(entry[text], str, text)
    for chart in content["charts"]:
        center = _expect(_expect(chart, dict, "chart")["center"], list, "center")
        _check_entry({**chart, "center": None, **{f"center {k}": float(c) for k, c in enumerate(center)}})
        _expect(chart.get("reason", ""), str, "reason")


def _expect(value: Any, kind: type | tuple[type, ...], name: str) -> Any:
    # True is an integer for Python, and not for anybody else.
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
        raise TypeError(f"{name} must not be {type(value).__name__}")
    return value


def _check_entry(entry: Any) -> None:
    for name, value in _expect(entry, dict, "entry").items():
        _expect(value, _PLAIN, name)


def digest(content: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """The digest of a result: of all its plain values but for timings, and of its tensors."""
    return tensor_digest(tensors, json.dumps(_timeless(content), sort_keys=True).encode())


def check_digest(content: Mapping[str, Any], tensors: Mapping[str, Tensor], version: str) -> str | None:
    """Why a result must not be believed, or nothing.

    Arguments:
        version: The version of the program that reads.
    """
    if _number(content.get("version")) > _number(version):
        return f"it was written by atlasd {content.get('version')}, newer than this {version}; install that version"
    if content.get(NAME) != digest(content, tensors):
        return "it was changed after it was written, since its digest does not fit; run it again"
    return None


def read_beside(directory: Path, name: str, content: Mapping[str, Any]) -> dict[str, Tensor]:
    """Tensors for the pictures of a result, empty if there are none; the digest of the result covers them.

    Arguments:
        name: The file in it.
        content: What `result.json` holds; results of earlier versions cover no other files.
    """
    path = directory / name
    if not path.is_file():
        return {}
    try:
        tensors = read_tensors(path, _REMEDY)
        same = "files" not in content or content["files"].get(name) == tensor_digest(tensors)
    except (OSError, TypeError) as error:
        raise DataError(f"`{path}` is damaged: {error}; {_REMEDY}.") from error
    if not same:
        raise DataError(f"`{path}` must be as atlasd wrote it, got another digest; {_REMEDY}.")
    return tensors


def read_frames(directory: Path, content: Mapping[str, Any]) -> Frames | None:
    """The frames that a result was saved with, `None` if there are none."""
    shown = read_beside(directory, FRAMES, content)
    if not shown:
        return None
    try:
        return Frames.from_tensors(shown)
    except (LookupError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"`{directory / FRAMES}` holds no frames: {error!r}; remove it or run again.") from error


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
