"""What every layer of a model makes of some inputs: by hooks, or node by node of a program or an ONNX file."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from atlasd.errors import DataError
from atlasd.nn.checks import evaluating


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
            return model.steps(x)
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
        pointwise=type(module).__module__ == "torch.nn.modules.activation" or _is_whole(module),
        window=window,
        sides=sides if "Pad" in kind and isinstance(sides, tuple) else (),
        batchwise=isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None,
        parts=not _is_whole(module) and any(True for _ in module.children()),
    )


def _pair(value: Any) -> tuple[int, int]:
    first, second = value if isinstance(value, tuple | list) and len(value) == 2 else (_one(value), _one(value))
    return int(first), int(second)


def _one(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple | list) else value)


def _is_whole(module: nn.Module) -> bool:
    """Layers of atlasd that hold another module count as one."""
    return type(module).__name__ == "GroupActivation"


_ROOT = re.compile(r"^(getattr\()*L(\['(self|fn)'\]|__self___)")
"""How a path of modules begins, in the versions of torch."""


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
            label = ".".join(re.findall(r"\w+", _ROOT.sub("", name))) or n.name
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


_POINTWISE = ("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Gelu", "Sigmoid", "Tanh", "Softplus", "Erf", "HardSwish")


class OnnxModel(nn.Module):
    """A model in an ONNX file, run by onnxruntime."""

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
        if len(self._session.get_inputs()) != 1:
            raise DataError(f"`{path}` must take one input, got {len(self._session.get_inputs())}; export it with one.")

    def forward(self, x: Tensor) -> Any:
        """Inputs `(B, *)` to one output or a tuple of them."""
        made = self._run(self._session, x)
        return made[0] if len(made) == 1 else tuple(made)

    def steps(self, x: Tensor) -> list[Step]:
        """The operations that depend on the inputs, in the order of their work."""
        try:
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
            numbers = {t.name for t in model.graph.initializer if t.data_type not in (6, 7)}  # integers say where
        except Exception:  # no package onnx, weights in other files, outputs that are no tensors: it runs, unwatched
            return []
        moving = {model.graph.input[0].name: x}
        found = []
        for node in model.graph.node:
            given, made = tuple(moving[i] for i in node.input if i in moving), values[node.output[0]]
            if not given or not made.is_floating_point():
                continue
            moving[node.output[0]] = made
            weighted = any(
                i in numbers or (i in values and values[i].is_floating_point()) for i in node.input if i not in moving
            )
            pointwise = not weighted and node.op_type in _POINTWISE
            sizes = {a.name: list(a.ints) for a in node.attribute if len(a.ints)}
            place = _walk(sizes) if made.ndim == 4 and len(sizes.get("kernel_shape", [])) == 2 else (None, ())
            found.append(Step(node.name, node.op_type, given, made, weighted, pointwise, *place))
        return found

    @property
    def batch(self) -> int | None:
        """The number of samples that it takes; `None` for any."""
        first = self._session.get_inputs()[0].shape[0]
        return first if isinstance(first, int) else None

    @staticmethod
    def _run(session: Any, x: Tensor) -> list[Tensor]:
        given = session.get_inputs()[0]
        x = x.detach().double() if given.type == "tensor(double)" else x.detach().float()
        return [torch.from_numpy(y) for y in session.run(None, {given.name: x.numpy()})]


def _walk(sizes: dict[str, list[int]]) -> tuple[Window, tuple[int, ...]]:
    """The window of an operation of ONNX, and what it pads at each side where these differ."""
    ends = sizes.get("pads", [0, 0, 0, 0])  # tops and lefts, then bottoms and rights
    padding = [(a + b) // 2 for a, b in zip(ends[:2], ends[2:], strict=True)]
    rest = (sizes.get("strides", [1, 1]), padding, sizes.get("dilations", [1, 1]))
    return Window(_pair(sizes["kernel_shape"]), *map(_pair, rest)), tuple(ends) if ends[:2] != ends[2:] else ()
