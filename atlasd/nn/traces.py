"""What every layer of a model makes of some inputs: by hooks, or node by node of an exported program."""

from __future__ import annotations

__all__ = ["Step", "trace"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from atlasd.nn.checks import evaluating


@dataclass(frozen=True, eq=False)
class Step:
    """One layer at work.

    Arguments:
        name: Name of the layer.
        kind: Its type.
        module: The layer itself; `None` in an exported program.
        given: What came in, as tensors.
        made: What went out.
    """

    name: str
    kind: str
    module: nn.Module | None
    given: tuple[Tensor, ...]
    made: Tensor


def trace(model: Callable[[Tensor], Any], x: Tensor) -> list[Step]:
    """The layers of a model in the order of their work; none for a function that is no module."""
    if not isinstance(model, nn.Module):
        return []
    with evaluating(model), torch.no_grad():
        if isinstance(model, fx.GraphModule):
            nodes = _Nodes(model)
            nodes.run(x)
            return nodes.steps
        return _by_hooks(model, x)


def _by_hooks(model: nn.Module, x: Tensor) -> list[Step]:
    steps: list[Step] = []
    handles = []

    def watch(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[Any, ...], made: Any) -> None:
            if isinstance(made, Tensor):
                tensors = tuple(t.detach() for t in given if isinstance(t, Tensor))
                steps.append(Step(name, type(module).__name__, module, tensors, made.detach()))

        return hook

    for name, module in model.named_modules():
        ours = type(module).__module__.startswith("atlasd.nn") and type(module).__name__.startswith("Group")
        inside = any(name.startswith(f"{other}.") for other, m in model.named_modules() if other and _is_whole(m))
        if name and not inside and (ours or not any(True for _ in module.children())):
            handles.append(module.register_forward_hook(watch(name)))
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return steps


def _is_whole(module: nn.Module) -> bool:
    """Layers of atlasd that hold another module count as one."""
    return type(module).__name__ == "GroupActivation"


class _Nodes(fx.Interpreter):
    """Runs a program and keeps what its operations made."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.steps: list[Step] = []

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n.op in ("call_function", "call_module") and isinstance(made, Tensor) and made.is_floating_point():
            stack = n.meta.get("nn_module_stack") or {}
            name = str(list(stack.values())[-1][0]) if stack else ""
            kind = str(n.target).split(".")[1] if "." in str(n.target) else str(n.target)
            given = tuple(self.env[a] for a in n.all_input_nodes if isinstance(self.env.get(a), Tensor))
            label = name.removeprefix("L['self'].").removeprefix("L__self___") or n.name
            self.steps.append(Step(f"{label} ({n.name})" if name else n.name, kind, None, given, made.detach()))
        return made
