"""Which layer of a model breaks a symmetry, the likely cause, and what a repair costs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.discovery.discover import discover
from atlasd.discovery.result import Discovery
from atlasd.discovery.targets import as_said
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.nn.averaging import symmetrize
from atlasd.nn.canonical import canonicalize
from atlasd.nn.checks import evaluating, leaves
from atlasd.nn.exporting import any_batch
from atlasd.nn.groups import invariant_form
from atlasd.nn.tensor_types import TensorType
from atlasd.nn.traces import Step, trace


class _Wrapped(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.forward = function


def fix_price(
    model: Callable[[Tensor], Any],
    x: Tensor,
    group: Group,
    y: Tensor | None,
    action: Action | None,
    outputs: TensorType | None,
) -> tuple[tuple[float, float], str]:
    """Errors of a model before and after it was made symmetric, with words for how and which errors these are."""
    if y is None:
        raise InputError("`fix` must have targets in `data` to show its price, got none; give them.")
    inner = model if isinstance(model, nn.Module) else _Wrapped(model)
    fixed: nn.Module
    if invariant_form(group) is not None:
        fixed, how = symmetrize(inner, group, action=action, outputs=outputs), "averaged over the group"
    else:
        fixed, how = canonicalize(inner, group, x, action=action, outputs=outputs), "brought to a standard pose"
    errors = []
    for one in (model, fixed):
        with evaluating(one), torch.no_grad():
            made = one(x)
        fits = isinstance(made, Tensor) and len(made) == len(y)
        if fits and y.is_floating_point():
            fits = made.numel() == y.numel()
        elif fits:
            fits = made.shape[:1] + made.shape[2:] == y.shape and made.ndim > 1
        if not fits:
            shape = tuple(made.shape) if isinstance(made, Tensor) else type(made).__name__
            raise InputError(
                f"targets must be like the outputs of the model, {shape}, or classes, got {tuple(y.shape)}; check them."
            )
        if y.is_floating_point():
            errors.append(float((made.reshape(y.shape) - y).square().mean()))
        else:
            errors.append(float((made.argmax(1) != y).double().mean()))
    measure = "mean squared error" if y.is_floating_point() else "share of wrong classes"
    return (errors[0], errors[1]), f"{how}: {measure}"


def model_group(
    model: Callable[[Tensor], Any],
    x: Tensor,
    first: Tensor,
    action: Action | None,
    outputs: TensorType | None,
    seed: int,
) -> Discovery:
    """The group of the first output, `first` for `x`; numbers for a whole field are taken as a field that is even."""

    asked = any_batch(model)

    def function(z: Tensor) -> Tensor:
        with evaluating(model):
            y = asked(z)
        made = next(iter(leaves(y).values()))
        if z.ndim < 4 or made.ndim == z.ndim:
            return made
        return made.reshape(len(z), -1, *[1] * (z.ndim - 2)).expand(-1, -1, *z.shape[2:])

    rho_out: Any = "auto"
    if action is None and x.ndim >= 4 and first.ndim < x.ndim:
        rho_out = "trivial"
    if action is None and outputs is not None:
        rho_out = outputs.matrix
    return discover(x, function=function, action=action, rho_out=rho_out, seed=seed, progress=False)


def found_action(found: Discovery, x: Tensor, first: Tensor) -> Action | None:
    """How inputs and outputs transform, where the discovery found that they are components of vectors."""
    count = 1 if first.ndim == 1 else first.shape[1 if first.ndim == 4 else -1]
    said = str(found.config.get("targets", ""))
    rho_in, rho_out = as_said(said, found.group.size, x.shape[1] if x.ndim == 4 else 0, count)
    if x.ndim == 4:
        return GridAction(fill="zeros", rho_in=rho_in, rho_out=rho_out) if rho_in or rho_out else None
    return VectorAction(rho_out=rho_out) if rho_out or "invariant" in said else None


_CONSTANT = 1e-6
_HALF = "half precision"
_MIXED = "its channels do not transform among themselves: weights that do not obey the constraint"


@dataclass(frozen=True)
class LayerFinding:
    """One layer under the worst element.

    Arguments:
        given: Breaking of what comes in, beyond any orthogonal map of the channels.
        made: Breaking of what goes out.
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
    grid = tuple(x.shape[2:]) if isinstance(action, GridAction) else ()
    rows: list[LayerFinding] = []
    found = blind = False  # blind: the layers just before could not be judged
    for one, other in zip(before, after, strict=True):
        pairs = list(zip(one.given, other.given, strict=True))
        given = max((_misfit(a, b, g, grid) for a, b in pairs), default=0.0)
        made = _misfit(one.made, other.made, g, grid)
        culprit = not found and (_off(made, tolerance) or _off(given, tolerance))
        if one.parts and not culprit:
            continue
        cause = _cause(one, other, g, grid, tolerance, given) if culprit else ""
        if culprit and blind and math.isnan(given):
            cause = f"{cause or 'unknown'}; or a layer before it, which takes more samples to be judged"
        found = found or culprit
        blind = math.isnan(made) or (blind and _off(made, tolerance))
        if culprit and one.pointwise and rows and cause != _HALF and not _off(given, tolerance):
            # A pointwise nonlinearity shows what the layer before did to the channels.
            rows[-1] = replace(rows[-1], culprit=True, cause=cause or _MIXED)
            culprit, cause = False, ""
        rows.append(LayerFinding(one.name, one.kind, given, made, culprit, cause))
    return tuple(rows)


def _off(misfit: float, tolerance: float) -> bool:
    return misfit > tolerance and not math.isnan(misfit)


def _misfit(a: Tensor, b: Tensor, g: Tensor, grid: tuple[int, ...], border: int = 0) -> float:
    """What no map of the channels explains in b = h(g x) by g h(x), over the spread; NaN where it cannot be said.

    Arguments:
        grid: The spatial shape of the inputs; empty for vectors.
    """
    if a.shape != b.shape or a.ndim < 2 or not a.is_floating_point():
        return math.nan
    d = len(grid)
    if d and a.ndim == 3:  # which axis holds the places is not known: that which explains more
        pairs = zip(_on_places(a, grid), _on_places(b, grid), strict=True)
        return min((_misfit(u, v, g, grid, border) for u, v in pairs), default=math.nan)
    a, b = a.double(), b.double()
    if not bool((a + 0 * b.sum()).isfinite().all()):
        return math.inf
    if d and a.ndim > 2:
        if a.ndim < d + 2:
            return math.nan
        a, b = a.flatten(1, -d - 1), b.flatten(1, -d - 1)
        if min(a.shape[2:]) > 1:
            a = GridAction(dimensions=d, fill="zeros").on_input(g, a)
        if border:
            inside: Any = (..., *[slice(border, -border)] * d)
            a, b = a[inside], b[inside]
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


def _on_places(t: Tensor, grid: tuple[int, ...]) -> list[Tensor]:
    """Tokens `(B, T, C)` or `(B, C, T)` as fields, where T is a grid as the inputs are, beside a class token or not."""
    fields: list[Tensor] = []
    for z in (t.mT, t) if len(grid) == 2 else ():
        for extra in (0, 1):
            rows = math.isqrt((z.shape[2] - extra) * grid[0] // grid[1])
            columns = rows * grid[1] // grid[0]
            if rows > 1 and rows * columns == z.shape[2] - extra and rows * grid[1] == columns * grid[0]:
                fields.append(z[..., extra:].unflatten(2, (rows, columns)))
    return fields


def _procrustes(u: Tensor, v: Tensor) -> Tensor:
    """Mean square of v - u R for the best orthogonal R."""
    p, _, q = torch.linalg.svd(u.mT @ v)
    return (v - u @ (p @ q)).square().mean()


def _cause(one: Step, other: Step, g: Tensor, grid: tuple[int, ...], tolerance: float, given: float) -> str:
    if one.parts:
        return "what it does beside its layers"
    if any(t.dtype in (torch.float16, torch.bfloat16) for t in (*one.given, one.made)):
        return _HALF
    if grid and any(_has_places(t) for t in (*one.given, one.made)):
        return "position channels: some channels vary with the place and not with the sample"
    if _off(given, tolerance):
        such = "padding, slicing or adding positions" if grid else "products of components, sorting or adding positions"
        return f"what is done to its inputs between the layers, such as {such}"
    if one.batchwise:
        return "batch norm without running averages: a sample depends on its batch"
    if len(set(one.sides)) > 1:
        return f"padding: sides of {one.sides} pixels"
    stride = _uneven_stride(one)
    if stride:
        return stride
    if grid and one.made.ndim == len(grid) + 2 and min(one.made.shape[2:]) > 6:
        border = max(1, min(one.made.shape[2:]) // 4)
        if not _off(_misfit(one.made, other.made, g, grid, border), tolerance):
            return "padding: only the border is off"
    if one.weighted and one.kind.lower() in ("add", "sub", "mul"):
        return "constants that are not the same everywhere, such as positions"
    return "its weights do not obey the constraint" if one.weighted else ""


def _has_places(t: Tensor) -> bool:
    """Whether some channel varies with the place and is the same for all samples."""
    if t.ndim < 4 or len(t) < 2:
        return False
    t = t.double()
    over_samples, over_places = t.std(0).flatten(1).amax(1), t.mean(0).flatten(1).std(1, correction=0)
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
