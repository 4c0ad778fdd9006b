"""Which symmetries a model really has: element by element, output by output, layer by layer."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.data.cleaning import whole_tensor
from atlasd.discovery.discover import discover
from atlasd.discovery.residual import scaled
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.geometry.actions import Action
from atlasd.geometry.resample import pixel_grid
from atlasd.nn.audit_layers import LayerFinding, audit_layers, fix_price, found_action, model_group
from atlasd.nn.checks import both_sides, default_action, evaluating, leaves
from atlasd.nn.groups import GroupLike, as_group
from atlasd.nn.tensor_types import TensorType
from atlasd.nn.traces import trace
from atlasd.runtime.files import write_atomically
from atlasd.runtime.random import stream

EXACT, INTERPOLATED = 1e-4, 0.05
"""Tolerances for elements that map the grid or vectors exactly, and for those that need interpolation."""
_FIELD_SIZES, _VECTOR_SIZES = (0.4, math.pi / 4, math.pi / 2), (0.3, 1.0)
_DRAWS = 200
_ROUNDED = 4
"""Units of the last place that sums in another order may differ by, and how many times more than two calls an element
may make outputs differ."""


@dataclass(frozen=True)
class ElementFinding:
    """The breaking of one element of the group.

    Arguments:
        name: Such as "generator 1 at t = 0.79" or "coset 2".
        strengths: Breaking of every output: 0 for a symmetry, 1 for a model that takes no notice of the element; NaN
            for an output that is constant.
        lower: Lower ends of intervals of 95 % over the samples.
        decision: "symmetry", "broken" or "cannot tell".
    """

    name: str
    strengths: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    tolerance: float
    decision: str

    @property
    def worst(self) -> float:
        """The largest strength of any output."""
        return max((s for s in self.strengths if not math.isnan(s)), default=math.nan)


@dataclass(frozen=True, eq=False)
class Audit:
    """What was found out about a model.

    Arguments:
        group: The group that was asked about.
        elements: Its generators at finite sizes and its cosets, each with its breaking.
        outputs: Names of the outputs.
        layers: The layers under the worst element; none where they cannot be watched.
        found: The discovery of the group from the model, where no group was given.
        data: The discovery from the data, where targets were given.
        notes: What a user should know besides.
        price: Errors of the model and of the one that was fixed, where that was asked for.
        fixed: How it was fixed and which errors these are.
    """

    group: Group
    elements: tuple[ElementFinding, ...]
    outputs: tuple[str, ...]
    layers: tuple[LayerFinding, ...] = ()
    found: Discovery | None = None
    data: Discovery | None = None
    notes: tuple[str, ...] = ()
    price: tuple[float, float] | None = None
    fixed: str = ""

    @property
    def symmetric(self) -> bool:
        """Whether the model has the whole group."""
        return bool(self.elements) and all(e.decision == "symmetry" for e in self.elements)

    @property
    def culprit(self) -> LayerFinding | None:
        """The layer at which the breaking starts."""
        return next((layer for layer in self.layers if layer.culprit), None)

    @property
    def worst(self) -> ElementFinding | None:
        """The element with the largest breaking."""
        known = [e for e in self.elements if not math.isnan(e.worst)]
        return max(known, key=lambda e: e.worst, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; numbers that JSON lacks are `None`."""
        content = {
            "group": self.group.name,
            "symmetric": self.symmetric,
            "outputs": list(self.outputs),
            "elements": [asdict(e) for e in self.elements],
            "layers": [asdict(layer) for layer in self.layers],
            "model": None if self.found is None else self.found.verdict.reason,
            "data": None if self.data is None else {"group": self.data.answer, "reason": self.data.verdict.reason},
            "notes": list(self.notes),
            "price": None
            if self.price is None
            else {"model": self.price[0], "averaged": self.price[1], "how": self.fixed},
        }
        plain: dict[str, Any] = json.loads(json.dumps(content), parse_constant=lambda _: None)
        return plain

    def save(self, path: str | Path) -> Path:
        """Writes the audit as JSON."""
        text = json.dumps(self.to_dict(), indent=2) + "\n"
        return write_atomically(Path(path), lambda part: part.write_text(text))

    def __str__(self) -> str:
        verdict = "has" if self.symmetric else "does not have" if self.broken else "cannot be said to have"
        lines = [f"The model {verdict} the symmetry {self.group.name}."]
        if not self.elements:
            lines = ["No symmetry was asked about." if self.found is None else f"The model: {self.found.answer}."]
        if self.found is not None:
            lines.append(f"  discovered from the model: {self.found.verdict.reason}")
        for e in self.elements:
            ends = [max((v for v in side if not math.isnan(v)), default=0.0) for side in (e.lower, e.upper)]
            worst = f"breaking {e.worst:.2%} ({ends[0]:.2%} to {ends[1]:.2%})"
            worst = "constant outputs" if math.isnan(e.worst) else worst
            lines.append(f"  {e.name:24} {worst:36} {e.decision} (tolerance {e.tolerance:.2%})")
            if len(e.strengths) > 1 and e.decision == "broken":
                off = [f"{n} {s:.2%}" for n, s in zip(self.outputs, e.strengths, strict=True) if s > e.tolerance]
                lines.append(f"    outputs: {', '.join(off[:6])}{' ...' if len(off) > 6 else ''}")
        if self.culprit is not None:
            c = self.culprit
            cause = f": {c.cause}" if c.cause else ""
            figures = f"; in {c.given:.2%}, out {c.made:.2%}" if c.made > c.given else ""
            lines.append(f"  it starts at layer {c.name} ({c.kind}){cause}{figures}")
        if self.data is not None:
            lines.append(f"  the data: {self.data.verdict.reason}")
        if self.price is not None:
            lines.append(f"  {self.fixed} {self.price[1]:.4g}, {self.price[0]:.4g} before")
        return "\n".join([*lines, *(f"  note: {n}" for n in self.notes)])

    @property
    def broken(self) -> bool:
        """Whether some element is surely broken."""
        return any(e.decision == "broken" for e in self.elements)


def audit(
    model: Callable[[Tensor], Any],
    x: Any,
    group: GroupLike | None = None,
    data: Any = None,
    *,
    action: Action | None = None,
    outputs: TensorType | None = None,
    tolerance: float | None = None,
    radius: float | None = None,
    fix: bool = False,
    seed: int = 0,
) -> Audit:
    """Tells which symmetries a model has, how strongly each is broken, and where that starts.

    Arguments:
        model: A module or any function; modules are asked in evaluation mode and left as they were.
        x: Inputs `(B, *)`, at least 4: fields `(B, C, H, W)` or vectors; from the data, or smooth fields of any kind.
        group: The group to ask about; by default the one that `discover` finds from the model.
        data: Targets that belong to `x`; with them, the symmetry of the data is discovered as well.
        action: How the group acts, see `field_error`.
        outputs: How outputs that are not fields transform, see `field_error`.
        tolerance: Largest strength that counts as none; by default 1e-4, and 0.05 for elements that need
            interpolation, and the tolerance of the discovery where the group was discovered.
        radius: Which outputs of fields count, see `field_error`.
        fix: Whether to make the model symmetric, and compare its errors on `data` before and after: by its average
            over a compact group, by a standard pose of the inputs under any other.
        seed: Seed of the intervals and of the discovery.

    Example:
        >>> from atlasd.algebra import known
        >>> x = torch.randn(16, 1, 9, 9, generator=torch.Generator().manual_seed(0))
        >>> audit(nn.AvgPool2d(3, 1, 1), x, known.cyclic(4)).symmetric
        True
        >>> model = nn.Sequential(nn.AvgPool2d(3, 1, 1), nn.ZeroPad2d((1, 0, 0, 0)), nn.AvgPool2d(2, 1))
        >>> print(audit(model, x, known.cyclic(4)).culprit.name)
        1
    """
    x = whole_tensor(x, "x")
    if len(x) < 4:
        raise InputError(
            f"`x` must have at least 4 samples, got {len(x)}; breakings are measured against their spread."
        )
    if not bool(x.isfinite().all()):
        raise InputError("`x` must be finite, got NaN or infinite numbers; leave these samples out.")
    y, first, chance = _asked(model, x)
    rounding = _ROUNDED * max(chance, *(torch.finfo(part.dtype).eps for part in leaves(y).values()))
    notes = _notes(model, x)
    if _ROUNDED * chance == rounding:
        notes.append(f"its outputs differ from call to call, by {chance:.2g} of their size")
    found = None
    if group is None:
        found = model_group(model, x, first, action, outputs, seed)
        group = found.group
        tolerance = float(found.config["tolerance"]) if tolerance is None else tolerance
        action = found_action(found, x, first) if action is None and outputs is None else action
        if not group.dimension and group.components == 1:
            notes.append("no symmetry was found in the model; give `group` to measure how strongly one is broken")
    group = as_group(group)
    findings: list[ElementFinding] = []
    elements = _elements(group, x)
    names: list[str] = []
    with evaluating(model), torch.no_grad():
        every = torch.stack([g for _, g in elements]) if elements else group.cosets
        ask = partial(both_sides, model, x, y, elements=every, action=action, outputs=outputs, radius=radius)
        for label, g in elements:
            names, finding = _element(ask, x, label, g, tolerance, rounding, seed)
            findings.append(finding)
    layers: tuple[LayerFinding, ...] = ()
    off = [i for i, f in enumerate(findings) if f.decision == "broken"]
    if off:
        exact = [i for i in off if findings[i].tolerance == min(findings[j].tolerance for j in off)]
        worst = max(exact, key=lambda i: findings[i].worst)
        acting = default_action(group.size, x, first, outputs) if action is None else action
        limit = findings[worst].tolerance
        layers = audit_layers(model, x, elements[worst][1], acting, limit)
    given = None if data is None else whole_tensor(data, "data")
    price, fixed = fix_price(model, x, group, given, action, outputs) if fix else (None, "")
    beside = None
    if given is not None:
        try:
            beside = discover(x, given, action=action, seed=seed, progress=False)
        except InputError as error:
            notes.append(f"what the data have cannot be discovered: {error}")
    return Audit(group, tuple(findings), tuple(names), layers, found, beside, tuple(notes), price, fixed)


def _asked(model: Callable[[Tensor], Any], x: Tensor) -> tuple[Any, Tensor, float]:
    """What the model makes of the inputs, the first tensor of that, and the share that differs from call to call."""
    try:
        with evaluating(model), torch.no_grad():
            y, again = model(x), model(x)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        kind = str(x.dtype).removeprefix("torch.")
        raise InputError(
            f"`x` must be what the model takes, got {kind} numbers of shape {tuple(x.shape)}: {reason}; convert them."
        ) from error
    first = next(iter(leaves(y).values()), None)
    if first is None:
        raise InputError("`model` must return at least one tensor, got none; let it return what is to be compared.")
    pairs = zip(leaves(y).values(), leaves(again).values(), strict=True)
    shares = [float((a - b).square().mean() / a.square().mean().clamp_min(1e-60)) for a, b in pairs]
    return y, first, max((math.sqrt(share) for share in shares if math.isfinite(share)), default=0.0)


def _elements(group: Group, x: Tensor) -> list[tuple[str, Tensor]]:
    """Generators at finite sizes, and cosets, by name."""
    sizes = _FIELD_SIZES if x.ndim == group.size + 2 and group.size in (2, 3) else _VECTOR_SIZES
    rows = []
    for k, a in enumerate(scaled(group.algebra.frame())):
        rows += [(f"generator {k + 1} at t = {t:.2f}", torch.matrix_exp(t * a)) for t in sizes]
    return rows + [(f"coset {k + 2}", c) for k, c in enumerate(group.cosets[1:])]


def _element(
    ask: Callable[..., Iterator[tuple[str, Tensor, Tensor, Tensor]]],
    x: Tensor,
    label: str,
    g: Tensor,
    tolerance: float | None,
    rounding: float,
    seed: int,
) -> tuple[list[str], ElementFinding]:
    disc, limit = None, EXACT
    if x.ndim == len(g) + 2 and not _on_grid(g, tuple(x.shape[2:])):
        # Corners that a rotation takes out of the window would count as a breaking.
        disc, limit = _disc(tuple(x.shape[2:])), INTERPOLATED
    named = list(ask(g=g, disc=disc))
    names = [name for name, *_ in named]
    strengths, lower, upper = zip(
        *(_strength(a.flatten(1), b.flatten(1), rounding, seed) for _, _, a, b in named), strict=True
    )
    limit = limit if tolerance is None else tolerance
    known = [(low, high) for low, high in zip(lower, upper, strict=True) if not math.isnan(high)]
    if any(low > limit for low, _ in known):
        decision = "broken"
    elif known and len(known) == len(lower) and all(high <= limit for _, high in known):
        decision = "symmetry"
    else:
        decision = "cannot tell"
    return names, ElementFinding(label, strengths, lower, upper, limit, decision)


def _strength(a: Tensor, b: Tensor, rounding: float, seed: int) -> tuple[float, float, float]:
    """Strength and its interval: the difference of both sides over that of the sides of different samples.

    What rounding, a share of the size of outputs, makes of them may be no breaking: the lower end is beyond it.
    """
    count = len(a)
    miss = (a - b).square().mean(1)
    if not bool(miss.isfinite().all()):
        return math.inf, math.inf, math.inf
    # Never a sample with itself.
    cross = ((a.sum(0) * b.sum(0)).mean() - (a * b).sum(0).mean()) / (count * (count - 1))
    null = float(a.square().mean() + b.square().mean() - 2 * cross)
    size = float(b.square().mean())
    # Fields differ from place to place as well: a constant output differs in neither way.
    spread = max(null, 0.0) + float((b - b.mean()).square().mean())
    if spread <= 1e-12 * max(size, 1e-30) and float(miss.mean()) <= 1e-12 * max(size, 1e-30):
        return math.nan, math.nan, math.nan
    null = max(null, 1e-3 * spread)
    generator = stream(seed, "audit")
    drawn = miss[torch.randint(count, (_DRAWS, count), generator=generator)].mean(1)
    low, high = (float(drawn.quantile(q)) for q in (0.025, 0.975))
    low = max(0.0, low - rounding**2 * size)
    return float((miss.mean() / null).sqrt()), math.sqrt(low / null), math.sqrt(high / null)


def _disc(shape: tuple[int, ...]) -> Tensor:
    """One inside the disc that fits the window, zero outside, with a soft edge of four pixels."""
    r = pixel_grid(shape, dtype=torch.float64).norm(dim=1).reshape(shape)
    return (((min(shape) - 1) / 2 - r) / 4).clamp(0, 1).mul(math.pi / 2).sin().square()


def _on_grid(g: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether an element maps pixels to pixels."""
    whole = bool(((g - g.round()).abs() < 1e-6).all())
    return whole and (len(set(shape)) == 1 or bool((g.abs() - torch.eye(len(g)).to(g)).abs().max() < 1e-6))


def _notes(model: Callable[[Tensor], Any], x: Tensor) -> list[str]:
    steps = trace(model, x)
    if not steps:
        return ["its layers cannot be watched"]
    notes = []
    modules = model.named_modules() if isinstance(model, nn.Module) else ()
    norms = [n for n, m in modules if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.training]
    if norms:
        notes.append(f"batch norm is in training mode ({norms[0]}): used so, samples depend on their batch")
    batchwise = [s.name for s in steps if s.batchwise]
    if batchwise:
        notes.append(f"batch norm without running averages ({batchwise[0]}): samples depend on their batch")
    halves = [s.name for s in steps if s.made.dtype in (torch.float16, torch.bfloat16)]
    if halves:
        notes.append(f"half precision from layer {halves[0]} on: symmetries hold up to rounding at best")
    return notes
