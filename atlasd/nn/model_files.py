"""Models in files: exported programs and ONNX, and never a pickle."""

from __future__ import annotations

__all__ = ["OnnxModel", "OnnxNode", "any_batch", "load_model", "static_batch"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from atlasd.errors import DataError
from atlasd.nn.checks import map_leaves
from atlasd.nn.exported_programs import safe_copy

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
        return torch.export.load(program).module()
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


@dataclass(frozen=True, eq=False)
class OnnxNode:
    """One operation of an ONNX model at work.

    Arguments:
        name: Its name.
        kind: Its type, such as `Conv`.
        given: What came in and depends on the inputs of the model.
        made: What went out.
        weighted: Whether it has constants beside.
        options: Its attributes that are lists of integers, such as `strides`.
    """

    name: str
    kind: str
    given: tuple[Tensor, ...]
    made: Tensor
    weighted: bool
    options: dict[str, list[int]]


class OnnxModel(nn.Module):
    """A model in an ONNX file, run by onnxruntime.

    Arguments:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError as error:
            raise DataError(
                f"`{path}` needs the package 'onnxruntime' to be run; pip install 'atlasd[onnx]'."
            ) from error
        self.path = path
        try:
            self._session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:
            raise DataError(f"`{path}` cannot be read as ONNX: {str(error).splitlines()[0]}.") from error

    def forward(self, x: Tensor) -> Any:
        """Inputs `(B, *)` to one output or a tuple of them."""
        made = self._run(self._session, x)
        return made[0] if len(made) == 1 else tuple(made)

    def nodes(self, x: Tensor) -> list[OnnxNode]:
        """The operations that depend on the inputs, in the order of their work."""
        import onnx
        import onnxruntime

        model = onnx.load(str(self.path), load_external_data=False)
        names = [name for node in model.graph.node for name in node.output if name]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        values = dict(zip(names, self._run(session, x), strict=True))
        moving = {model.graph.input[0].name: x}
        found = []
        for node in model.graph.node:
            given, made = tuple(moving[i] for i in node.input if i in moving), values[node.output[0]]
            if not given or not made.is_floating_point():
                continue
            moving[node.output[0]] = made
            settings = {a.name: list(a.ints) for a in node.attribute if len(a.ints)}
            weighted = any(i and i not in moving for i in node.input)
            found.append(OnnxNode(node.name, node.op_type, given, made, weighted, settings))
        return found

    @staticmethod
    def _run(session: Any, x: Tensor) -> list[Tensor]:
        name = session.get_inputs()[0].name
        return [torch.from_numpy(y) for y in session.run(None, {name: x.detach().float().numpy()})]
