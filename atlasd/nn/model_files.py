"""Models in files: exported programs and ONNX, and never a pickle."""

from __future__ import annotations

__all__ = ["load_model", "static_batch"]

import io
import json
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from atlasd.errors import DataError

_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")
_SYMBOL = re.compile(r"Symbol\('\w+'(, \w+=(True|False))*\)")
_EXPRESSION = re.compile(r"^[\w\s+\-*/%(),.<>=|&~^]*$")


def load_model(path: str | Path) -> Callable[[Tensor], Any]:
    """Reads a model from a file without running what is inside.

    Arguments:
        path: A program written by `torch.export.save` (.pt2), or an ONNX file.

    Raises:
        DataError: The file is a pickle or holds one that could run code, or cannot be read.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"`{path}` must be a model file, got nothing there; check the name.")
    if path.suffix == ".onnx":
        return _onnx(path)
    if path.suffix in _PICKLES or path.suffix != ".pt2":
        raise DataError(
            f"`{path}` must be a .pt2 or .onnx file, got {path.suffix or 'no suffix'}: pickles and TorchScript can run "
            "code when they are read; write it by torch.export.save(torch.export.export(model, (x,)), 'model.pt2')."
        )
    _check_archive(path)
    try:
        return torch.export.load(path).module()
    except Exception as error:
        raise DataError(f"`{path}` cannot be read as an exported program: {str(error).splitlines()[0]}.") from error


def static_batch(model: Callable[[Tensor], Any]) -> int | None:
    """The batch size that a program was exported for; `None` where it takes any."""
    if not isinstance(model, fx.GraphModule):
        return None
    for node in model.graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta.get("val"), Tensor):
            first = node.meta["val"].shape[0]
            return first if isinstance(first, int) else None
    return None


def _check_archive(path: Path) -> None:
    """Refuses archives with pickles that could run code: `torch.export.load` would read them."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            for name in names:
                content = archive.read(name)
                if name.endswith((".so", ".o", ".cpp", ".cubin")):
                    raise DataError(f"`{path}` must hold no compiled code, got {name}; export it again.")
                if name.endswith("_config.json"):
                    _check_config(path, content)
                elif name.endswith(".json"):
                    _check_expressions(path, json.loads(content))
                elif "sample_inputs" in name or name.endswith(".pt"):
                    _check_tensors(path, name, content)
    except DataError:
        raise
    except (zipfile.BadZipFile, OSError, ValueError, KeyError) as error:
        raise DataError(f"`{path}` must be a file of torch.export.save, got something else: {error}.") from error


def _check_config(path: Path, content: bytes) -> None:
    for name, entry in json.loads(content).get("config", {}).items():
        plain = not entry.get("use_pickle") and str(entry.get("path_name", "")).startswith(("weight_", "tensor_"))
        if not plain:
            raise DataError(
                f"`{path}` must hold plain tensors, got {name!r} as a pickle; export it with plain tensors."
            )


def _check_tensors(path: Path, name: str, content: bytes) -> None:
    try:
        torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:
        raise DataError(f"`{path}` must hold tensors only, got a pickle in {name}; export the model again.") from error


def _check_expressions(path: Path, content: Any) -> None:
    """Sizes are expressions that torch evaluates: only those of arithmetic may stand there."""
    if isinstance(content, dict):
        for key, value in content.items():
            if "expr" in key and isinstance(value, str) and not _is_arithmetic(value):
                raise DataError(f"`{path}` must hold sizes that are arithmetic, got {value[:40]!r}; export it again.")
            _check_expressions(path, value)
    elif isinstance(content, list):
        for value in content:
            _check_expressions(path, value)


def _is_arithmetic(text: str) -> bool:
    """Whether an expression holds numbers, symbols and functions of them only: no strings, no attributes."""
    text = _SYMBOL.sub("s", text)
    return bool(_EXPRESSION.match(text)) and "__" not in text and not re.search(r"[A-Za-z_)]\s*\.", text)


def _onnx(path: Path) -> Callable[[Tensor], Any]:
    try:
        import onnxruntime
    except ImportError as error:
        raise DataError(f"`{path}` needs the package 'onnxruntime' to be run; pip install 'atlasd[onnx]'.") from error
    try:
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise DataError(f"`{path}` cannot be read as ONNX: {str(error).splitlines()[0]}.") from error
    name = session.get_inputs()[0].name

    def model(x: Tensor) -> Any:
        made = [torch.from_numpy(y) for y in session.run(None, {name: x.detach().float().numpy()})]
        return made[0] if len(made) == 1 else tuple(made)

    return model
