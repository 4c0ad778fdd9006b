"""Which layer of a model breaks a symmetry, and the likely cause."""

from __future__ import annotations

__all__ = ["LayerFinding", "audit_layers"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.geometry.actions import Action, GridAction
from atlasd.nn.traces import Step, trace

_CONSTANT = 1e-6


@dataclass(frozen=True)
class LayerFinding:
    """One layer under the worst element.

    Arguments:
        name: Its name.
        kind: Its type.
        given: Breaking of what comes in, beyond any orthogonal map of the channels.
        made: Breaking of what goes out.
        culprit: Whether the breaking starts here.
        cause: The likely cause where it is plain, or "".
    """

    name: str
    kind: str
    given: float
    made: float
    culprit: bool = False
    cause: str = ""


def audit_layers(
    model: Callable[[Tensor], Any], x: Tensor, g: Tensor, action: Action, tolerance: float
) -> tuple[LayerFinding, ...]:
    r"""Follows one element through the layers.

    How hidden channels transform is not known. A layer passes if one orthogonal map R of its channels makes
    :math:`h(g x) = R\, g h(x)` for all samples and places; for features without places any linear map will do. The
    breaking is what is left, over the spread. It starts at the first layer whose outputs are off while its inputs are
    not, or whose inputs are off while all that was made before is not. Where all layers inside a module pass and what
    it makes of them does not, it is the module.

    Arguments:
        model: The model; without layers that can be watched nothing is found.
        x: Inputs `(B, *)`.
        g: The element, `(n, n)`.
        action: How it acts on the inputs.
        tolerance: Breaking above which a layer is off.
    """
    before, after = trace(model, x), trace(model, action.on_input(g, x))
    if len(before) != len(after):
        return ()
    spatial = isinstance(action, GridAction)
    rows: list[LayerFinding] = []
    found = False
    for one, other in zip(before, after, strict=True):
        pairs = list(zip(one.given, other.given, strict=True))
        given = max((_misfit(a, b, g, spatial) for a, b in pairs), default=0.0)
        made = _misfit(one.made, other.made, g, spatial)
        culprit = not found and (_off(made, tolerance) or _off(given, tolerance))
        if one.parts and not culprit:
            continue
        cause = _cause(one, other, g, spatial, tolerance, given, rows) if culprit else ""
        name, kind = one.name, one.kind
        if culprit and cause == "mixed" and rows:
            # A pointwise nonlinearity shows what the layer before did to the channels.
            cause = "its channels do not transform among themselves: weights that do not obey the constraint"
            rows[-1] = LayerFinding(rows[-1].name, rows[-1].kind, rows[-1].given, rows[-1].made, True, cause)
            culprit, cause = False, ""
            found = True
        found = found or culprit
        rows.append(LayerFinding(name, kind, given, made, culprit, cause))
    return tuple(rows)


def _off(misfit: float, tolerance: float) -> bool:
    return misfit > tolerance and not math.isnan(misfit)


def _misfit(a: Tensor, b: Tensor, g: Tensor, spatial: bool, border: int = 0) -> float:
    """What no map of the channels explains in b = h(g x) by g h(x), over the spread; NaN where it cannot be said."""
    if a.shape != b.shape or a.ndim < 2 or not a.is_floating_point():
        return math.nan
    a, b = a.double(), b.double()
    if not bool((a + 0 * b.sum()).isfinite().all()):
        return math.inf
    if spatial and a.ndim == 4:
        if min(a.shape[2:]) > 1:
            a = GridAction(fill="zeros").on_input(g, a)
        if border:
            a, b = (z[..., border:-border, border:-border] for z in (a, b))
        u, v = (z.movedim(1, -1).flatten(0, -2) for z in (a, b))
        left = _procrustes(u, v)
        spread = v.square().mean()
    else:
        u, v = a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1])
        ones = torch.ones(len(u), 1, dtype=u.dtype)
        half = len(u) // 2
        if half < u.shape[1] + 2:
            return math.nan
        u = torch.cat([u, ones], 1)
        fitted = torch.linalg.lstsq(u[:half], v[:half], driver="gelsd").solution
        left = (v[half:] - u[half:] @ fitted).square().mean()
        spread = (v - v.mean(0)).square().mean()
    if float(spread) <= _CONSTANT**2:
        return math.nan
    return float((left / spread).sqrt())


def _procrustes(u: Tensor, v: Tensor) -> Tensor:
    """Mean square of v - u R for the best orthogonal R."""
    p, _, q = torch.linalg.svd(u.mT @ v)
    return (v - u @ (p @ q)).square().mean()


def _cause(
    one: Step, other: Step, g: Tensor, spatial: bool, tolerance: float, given: float, rows: list[LayerFinding]
) -> str:
    if one.parts:
        return "what it does beside its layers"
    if any(t.dtype in (torch.float16, torch.bfloat16) for t in (*one.given, one.made)):
        return "half precision"
    if spatial and any(_has_places(t) for t in (*one.given, one.made)):
        return "position channels: some channels vary with the place and not with the sample"
    if one.batchwise:
        return "batch norm without running averages: a sample depends on its batch"
    if len(set(one.sides)) > 1:
        return f"padding: sides of {one.sides} pixels"
    stride = _uneven_stride(one)
    if stride:
        return stride
    if spatial and one.made.ndim == 4 and min(one.made.shape[2:]) > 6 and not _off(given, tolerance):
        border = max(1, min(one.made.shape[2:]) // 4)
        if not _off(_misfit(one.made, other.made, g, spatial, border), tolerance):
            return "padding: only the border is off"
    if one.pointwise and rows:
        return "mixed"
    return "its weights do not obey the constraint" if one.weighted else ""


def _has_places(t: Tensor) -> bool:
    """Whether some channel varies with the place and is the same for all samples."""
    if t.ndim != 4 or len(t) < 2:
        return False
    t = t.double()
    over_samples, over_places = t.std(0).amax((1, 2)), t.mean(0).flatten(1).std(1, correction=0)
    return bool(((over_samples < 1e-9) & (over_places > 1e-3)).any())


def _uneven_stride(step: Step) -> str:
    window = step.window
    if window is None or not step.given or step.given[0].ndim != 4:
        return ""
    for axis in range(2):
        size, steps = step.given[0].shape[2 + axis], window.stride[axis]
        room = size + 2 * window.padding[axis] - window.dilation[axis] * (window.kernel[axis] - 1) - 1
        if steps > 1 and room % steps:
            what = "pooling" if "pool" in step.kind.lower() else "stride"
            return f"{what}: steps of {steps} pixels leave {room % steps} over at one side"
    return ""
