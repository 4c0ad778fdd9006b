"""Models in files: exported programs and ONNX, and never a pickle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx

from atlasd.errors import DataError
from atlasd.nn.checks import map_leaves
from atlasd.nn.exporting import safe_copy
from atlasd.nn.traces import OnnxModel

_PICKLES = (".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".bin")


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
        return OnnxModel(path)
    if path.suffix in _PICKLES or path.suffix != ".pt2":
        raise DataError(
            f"`{path}` must be a .pt2 or .onnx file, got {path.suffix or 'no suffix'}: pickles and TorchScript can run "
            "code when they are read; write it by torch.export.save(torch.export.export(model, (x,)), 'model.pt2')."
        )
    program = safe_copy(path)
    try:
        loaded = torch.export.load(program)
        inputs, made = len(loaded.graph_signature.user_inputs), loaded.module()
    except Exception as error:
        raise DataError(f"`{path}` cannot be read as an exported program: {str(error).splitlines()[0]}.") from error
    if inputs != 1:
        raise DataError(f"`{path}` must take one input, got {inputs}; export it with one.")
    return made


def static_batch(model: Callable[[Tensor], Any]) -> int | None:
    """The batch size that a program was exported for; `None` where it takes any."""
    if isinstance(model, OnnxModel):
        return model.batch
    if not isinstance(model, fx.GraphModule):
        return None
    for node in model.graph.nodes:
        if node.op == "placeholder" and isinstance(node.meta.get("val"), Tensor):
            first = node.meta["val"].shape[0]
            return first if isinstance(first, int) else None
    return None


def any_batch(model: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """The same for any number of samples: a program for a fixed number is run part by part, the last one filled up."""
    size = static_batch(model)
    if size is None:
        return model

    def asked(x: Tensor) -> Any:
        parts = []
        for part in x.split(size):
            filled = torch.cat([part, part[-1:].expand(size - len(part), *part.shape[1:])])
            parts.append(map_leaves(lambda y, count=len(part): y[:count], model(filled)))
        return map_leaves(lambda *ys: torch.cat(ys), *parts)

    return asked
