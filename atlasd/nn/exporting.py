"""Networks as files that plain torch and ONNX read and write; never a pickle."""

from __future__ import annotations

import copy
import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx, nn

from atlasd.errors import DataError, InputError
from atlasd.nn.checks import map_leaves
from atlasd.nn.traces import OnnxModel

if TYPE_CHECKING:
    from torch import Tensor


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


def export(module: nn.Module) -> nn.Module:
    """A copy in which every layer of atlasd has become plain modules of torch, with the same outputs.

    A network made of torch's own containers then needs torch alone: it runs under `torch.export` and
    `torch.compile`, and a program saved by `torch.export.save` loads where atlasd is not installed.

    Example:
        >>> from atlasd.algebra import known
        >>> from atlasd.nn import GroupConv2d, GroupPool
        >>> group = known.cyclic(4)
        >>> network = nn.Sequential(GroupConv2d(1, 4, 3, group=group, out_type="regular"), GroupPool(4, group=group))
        >>> export(network)
        Sequential(
          (0): Conv2d(1, 4, kernel_size=(3, 3), stride=(1, 1))
          (1): Sequential(
            (0): Unflatten(dim=1, unflattened_size=(1, 4))
            (1): MaxPool3d(kernel_size=(4, 1, 1), stride=(4, 1, 1), padding=0, dilation=1, ceil_mode=False)
            (2): Flatten(start_dim=1, end_dim=2)
          )
        )
    """
    done: dict[int, nn.Module] = {}
    return _plain(copy.deepcopy(module), done)


def export_onnx(module: nn.Module, x: Tensor, path: str | Path) -> Path:
    """Writes a network as an ONNX file, which runs without torch; the number of samples stays free.

    Arguments:
        module: A network, of layers of atlasd or of torch.
        x: Inputs as the network takes them, at least two samples.
        path: The file, ending in `.onnx`.
    """
    path = Path(path)
    if path.suffix != ".onnx":
        raise InputError(f"`path` must end in .onnx, got {str(path)!r}; rename it.")
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise InputError(f"ONNX needs the package {error.name!r}; pip install 'atlasd[onnx]'.") from error
    import torch

    plain = export(module).eval()
    batch = torch.export.Dim("samples", min=1)
    torch.onnx.export(
        plain, (x,), path, input_names=["x"], output_names=["y"], dynamo=True, external_data=False, verbose=False,
        dynamic_shapes=({0: batch},),
    )  # fmt: skip
    return path


def _plain(module: nn.Module, done: dict[int, nn.Module]) -> nn.Module:
    """Replaces the layers of atlasd inside; a layer that is used twice becomes one plain module that is used twice."""
    if id(module) in done:
        return done[id(module)]
    way_out: Callable[[], nn.Module] | None = getattr(module, "export", None)
    ours = type(module).__module__.split(".")[0] == "atlasd"
    result = way_out() if ours and callable(way_out) else module
    done[id(module)] = result
    # By the children themselves: `named_modules` and `named_children` leave out the second use of a layer.
    for name, child in list(result._modules.items()):
        if child is not None:
            result._modules[name] = _plain(child, done)
    return result


_RANGES, _ENDLESS = "ranges", 2**31
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
        made.meta[_RANGES] = dict(loaded.range_constraints)
    except Exception as error:
        raise DataError(f"`{path}` cannot be read as an exported program: {str(error).splitlines()[0]}.") from error
    if inputs != 1:
        raise DataError(f"`{path}` must take one input, got {inputs}; export it with one.")
    return made


def batch_limits(model: Callable[[Tensor], Any]) -> tuple[int, int | None]:
    """The fewest and the most samples that a program takes at a time; no most where it takes any number."""
    if isinstance(model, OnnxModel):
        return model.batch or 1, model.batch
    like = example_input(model)
    if like is None:
        return 1, None
    size = like.shape[0]
    if isinstance(size, int):
        return size, size
    assert isinstance(model, fx.GraphModule)
    ends = next((r for symbol, r in model.meta.get(_RANGES, {}).items() if str(symbol) == str(size)), None)
    return (1, None) if ends is None else (int(ends.lower), int(ends.upper) if ends.upper < _ENDLESS else None)


def example_input(model: Callable[[Tensor], Any]) -> Tensor | None:
    """What a program was exported with, without numbers; `None` where that is not known."""
    nodes = model.graph.nodes if isinstance(model, fx.GraphModule) else ()
    return next((n.meta["val"] for n in nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), Tensor)), None)


def any_batch(model: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """The same for any number of samples: where that is limited, it is run part by part, the last one filled up."""
    least, most = batch_limits(model)
    if most is None:
        return model

    def asked(x: Tensor) -> Any:
        parts, size = [], max(least, min(most, len(x)))
        for part in x.split(size):
            filled = torch.cat([part, part[-1:].expand(size - len(part), *part.shape[1:])])
            parts.append(map_leaves(lambda y, count=len(part): y[:count], model(filled)))
        return map_leaves(lambda *ys: torch.cat(ys), *parts)

    return asked
