"""What every layer of a model makes of some inputs: by hooks, or node by node of an exported program."""

from __future__ import annotations

__all__ = ["Step", "Window", "trace"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from atlasd.nn.checks import evaluating
from atlasd.nn.model_files import OnnxModel, OnnxNode


@dataclass(frozen=True)
class Window:
    """How a layer walks over the plane, each for rows and columns."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]


@dataclass(frozen=True, eq=False)
class Step:
    """One layer at work.

    Arguments:
        name: Name of the layer.
        kind: Its type.
        given: What came in, as tensors.
        made: What went out.
        weighted: Whether it has weights.
        pointwise: Whether it acts on every number alone.
        window: How it walks over the plane, where it does.
        sides: Pixels that a padding adds at each side.
        batchwise: Whether it normalises by the batch itself, so that a sample depends on others.
        parts: Whether it is made of other layers, which stand before it.
    """

    name: str
    kind: str
    given: tuple[Tensor, ...]
    made: Tensor
    weighted: bool = False
    pointwise: bool = False
    window: Window | None = None
    sides: tuple[int, ...] = ()
    batchwise: bool = False
    parts: bool = False


def trace(model: Callable[[Tensor], Any], x: Tensor) -> list[Step]:
    """The layers of a model in the order of their work; none for a function that is no module."""
    if not isinstance(model, nn.Module):
        return []
    with evaluating(model), torch.no_grad():
        if isinstance(model, fx.GraphModule):
            nodes = _Nodes(model)
            nodes.run(x)
            return nodes.steps
        if isinstance(model, OnnxModel):
            return [_onnx_step(node) for node in model.nodes(x)]
        return _by_hooks(model, x)


def _by_hooks(model: nn.Module, x: Tensor) -> list[Step]:
    steps: list[Step] = []
    handles = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Any, ...], made: Any) -> None:
            if isinstance(made, Tensor):
                tensors = tuple(t.detach() for t in given if isinstance(t, Tensor))
                steps.append(_step(name, module, tensors, made.detach()))

        return hook

    for name, module in model.named_modules():
        inside = any(name.startswith(f"{other}.") for other, m in model.named_modules() if other and _is_whole(m))
        if not inside:
            handles.append(module.register_forward_hook(watch(name or "the whole model")))
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return steps


_RESAMPLING = ("MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "Upsample", "ZeroPad2d", "Flatten")


def _step(name: str, module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> Step:
    kind, weighted = type(module).__name__, any(True for _ in module.parameters())
    frame: Any = getattr(module, "_frame", (module,))[0]
    window = None
    values = [getattr(frame, key, None) for key in ("kernel_size", "stride", "padding")]
    if made.ndim == 4 and None not in values and not isinstance(values[2], str):
        window = Window(_pair(values[0]), _pair(values[1]), _pair(values[2]), _pair(getattr(frame, "dilation", 1)))
    sides = getattr(module, "padding", ())
    return Step(
        name,
        kind,
        given,
        made,
        weighted,
        pointwise=not weighted and kind not in _RESAMPLING,
        window=window,
        sides=sides if "Pad" in kind and isinstance(sides, tuple) else (),
        batchwise=isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None,
        parts=not _is_whole(module) and any(True for _ in module.children()),
    )


_POINTWISE = ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "Sigmoid", "Tanh", "Softplus", "Erf", "HardSwish")


def _onnx_step(node: OnnxNode) -> Step:
    sizes, window = node.options, None
    kernel, sides = sizes.get("kernel_shape", []), tuple[int, ...]()
    if node.made.ndim == 4 and len(kernel) == 2:
        ends = sizes.get("pads", [0, 0, 0, 0])  # tops and lefts, then bottoms and rights
        sides = tuple(ends) if ends[:2] != ends[2:] else ()
        rest = ([s // 2 for s in map(sum, zip(ends[:2], ends[2:], strict=True))], sizes.get("dilations", [1, 1]))
        window = Window(_pair(kernel), _pair(sizes.get("strides", [1, 1])), _pair(rest[0]), _pair(rest[1]))
    pointwise = not node.weighted and node.kind in _POINTWISE
    return Step(node.name, node.kind, node.given, node.made, node.weighted, pointwise, window, sides)


def _pair(value: Any) -> tuple[int, int]:
    first, second = value if isinstance(value, tuple | list) and len(value) == 2 else (_one(value), _one(value))
    return int(first), int(second)


def _one(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple | list) else value)


def _is_whole(module: nn.Module) -> bool:
    """Layers of atlasd that hold another module count as one."""
    return type(module).__name__ == "GroupActivation"


class _Nodes(fx.Interpreter):
    """Runs a program and keeps what its operations made of the inputs; weights and constants are no inputs."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.steps: list[Step] = []
        self._moving: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        given = [a for a in n.all_input_nodes if a in self._moving]
        # Sizes are numbers: what was built from a size alone, such as coordinates, does not follow the inputs.
        if isinstance(made, Tensor) and (n.op == "placeholder" or given):
            self._moving.add(n)
        if given and isinstance(made, Tensor) and made.is_floating_point():
            stack = n.meta.get("nn_module_stack") or {}
            name = str(list(stack.values())[-1][0]) if stack else ""
            kind = str(n.target).split(".")[1] if "." in str(n.target) else str(n.target)
            label = name.removeprefix("L['self'].").removeprefix("L__self___") or n.name
            self.steps.append(
                Step(
                    f"{label} ({n.name})" if name else n.name,
                    kind,
                    tuple(self.env[a].detach() for a in given),
                    made.detach(),
                    weighted=any(a.op == "get_attr" for a in n.all_input_nodes),
                    pointwise=len(n.all_input_nodes) == 1 and torch.Tag.pointwise in getattr(n.target, "tags", ()),
                    window=self._window(n, kind, made),
                    sides=tuple(n.args[1]) if kind == "pad" else (),  # type: ignore[arg-type]
                )
            )
        return made

    def _window(self, n: fx.Node, kind: str, made: Tensor) -> Window | None:
        """The window of a convolution or a pooling, from the arguments of its operation."""
        if made.ndim != 4 or kind not in ("conv2d", "max_pool2d", "avg_pool2d"):
            return None
        args: dict[str, Any] = {a.name: a.default_value for a in n.target._schema.arguments if a.has_default_value()}  # type: ignore[union-attr]
        args |= dict(zip((a.name for a in n.target._schema.arguments), n.args, strict=False))  # type: ignore[union-attr]
        args |= n.kwargs
        if isinstance(args["padding"], str):
            return None
        kernel = self.env[args["weight"]].shape[2:] if kind == "conv2d" else args["kernel_size"]
        stride, dilation = args["stride"] or kernel, args.get("dilation", 1)
        return Window(_pair(tuple(kernel)), _pair(tuple(stride)), _pair(args["padding"]), _pair(dilation))
