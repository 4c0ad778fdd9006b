"""Programs of `torch.export.save`, read so that nothing in them runs.

Reading such a file unpickles, evaluates and compiles what stands in it: example inputs may be pickles of anything,
sizes and guards are expressions, and names are pasted into the source text of a function. So an archive is first copied
with what is known to be harmless, and only the copy is given to torch.
"""

from __future__ import annotations

__all__ = ["safe_copy"]

import io
import json
import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from atlasd.errors import DataError

_PACKED, _SMALL = 3, 1 << 20
"""How many times larger than a file its members may be, and the size from which that counts: torch packs nothing."""
_COMPILED = (".so", ".o", ".cpp", ".cubin")
_SYMBOL = re.compile(r"Symbol\('\w+'(, \w+=(True|False))*\)")
_EXPRESSION = re.compile(r"^[\w\s+\-*/%(),.<>=|&~^]*$")
_WORD = re.compile(r"[\w.]*", re.ASCII)
_ORIGIN = re.compile(r"[\w.,;@\-\[\]'\"<> ]*", re.ASCII)
_SHAPE = re.compile(r"[\w\s\[\]{}\",:.\\\-]*", re.ASCII)
_OPERATOR = re.compile(r"(torch\.ops\.(aten|prims|higher_order)|_operator|math)\.[\w.]+|torch\._?sym_\w+", re.ASCII)
_ON_FILES = ("from_file", "save")
_CONTAINERS = {"builtins.tuple", "builtins.list", "builtins.dict", "collections.OrderedDict"}


def safe_copy(path: Path) -> io.BytesIO:
    """A copy of a program with nothing in it that would run.

    Raises:
        DataError: It is no program, or holds what could run, such as a pickle or a name that is none.
    """
    copy = io.BytesIO()
    try:
        with zipfile.ZipFile(path) as archive, zipfile.ZipFile(copy, "w") as checked:
            claimed, stored = sum(member.file_size for member in archive.infolist()), path.stat().st_size
            if claimed > _PACKED * max(stored, _SMALL):
                raise DataError(
                    f"`{path}` must unpack to about its size, got {claimed >> 20} MB for {stored >> 20}; export again."
                )
            for name in archive.namelist():
                checked.writestr(name, _member(path, name, archive.read(name)))
    except DataError:
        raise
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, LookupError, AttributeError, RuntimeError) as error:
        raise DataError(f"`{path}` must be a file of torch.export.save, got something else: {error}.") from error
    copy.seek(0)
    return copy


def _member(path: Path, name: str, content: bytes) -> bytes:
    if name.endswith(_COMPILED):
        raise DataError(f"`{path}` must hold no compiled code, got {name}; export it again.")
    if name.endswith("_config.json"):
        _check_config(path, content)
    elif name.endswith(".json"):
        return json.dumps(_checked(path, "", json.loads(content))).encode()
    elif "sample_inputs" in name or name.endswith(".pt"):
        try:
            torch.load(io.BytesIO(content), weights_only=True)
        except Exception as error:
            raise DataError(
                f"`{path}` must hold tensors only, got a pickle in {name}; export the model again."
            ) from error
    return content


def _check_config(path: Path, content: bytes) -> None:
    for name, entry in json.loads(content).get("config", {}).items():
        plain = not entry.get("use_pickle") and str(entry.get("path_name", "")).startswith(("weight_", "tensor_"))
        if not plain:
            raise DataError(
                f"`{path}` must hold plain tensors, got {name!r} as a pickle; export it with plain tensors."
            )


def _checked(path: Path, key: str, value: Any) -> Any:
    """A part of a program under a key: texts are checked, and what only guards or explains is left out."""
    if key == "guards_code":
        return []
    if isinstance(value, list):
        return [_checked(path, key, each) for each in value]
    if isinstance(value, dict):
        if key == "metadata":
            value = {k: v for k, v in value.items() if k in ("nn_module_stack", "torch_fn")}
        for name in value:
            _check_text(path, "", name)
        return {name: _checked(path, name, each) for name, each in value.items()}
    if isinstance(value, str):
        _check_text(path, key, value)
    return value


def _check_text(path: Path, key: str, text: str) -> None:
    if key in ("as_string", "as_strings", "torch_version"):  # values, which torch writes in quotes
        return
    if "expr" in key:
        good = _is_arithmetic(text)
    elif key in ("in_spec", "out_spec"):
        kinds = set(re.findall(r'"type": "([^"]*)"', text))
        good = bool(_SHAPE.fullmatch(text)) and kinds <= _CONTAINERS
    elif key in ("nn_module_stack", "torch_fn"):
        good = bool(_ORIGIN.fullmatch(text))
    elif key in ("target", "as_operator") and "." in text:
        good = bool(_OPERATOR.fullmatch(text)) and not any(f".{name}." in f"{text}." for name in _ON_FILES)
    else:
        good = bool(_WORD.fullmatch(text))
    if not good:
        what = {"expr_str": "sizes that are arithmetic", "target": "operators of tensors"}.get(key, "plain names")
        raise DataError(f"`{path}` must hold {what}, got {text[:40]!r}; export it again.")


def _is_arithmetic(text: str) -> bool:
    """Whether an expression holds numbers, symbols and functions of them only: no strings, no attributes."""
    text = _SYMBOL.sub("s", text)
    return bool(_EXPRESSION.match(text)) and "__" not in text and not re.search(r"[A-Za-z_)]\s*\.", text)
