"""The way out of atlasd: networks in plain modules of torch."""

from __future__ import annotations

__all__ = ["export", "export_onnx"]

import copy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from atlasd.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor
from torch import nn


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
