"""What a discovery says, in plain words."""

from __future__ import annotations

__all__ = ["MARKS", "answer_sentences", "axis_names", "describe_generator", "headline", "percent", "short_number"]

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from atlasd.discovery.conclude import describe_extent
from atlasd.discovery.result import Decision, Discovery

MARKS: dict[Decision, str] = {"symmetry": "✓", "broken": "✕", "not testable": "∅", "cannot tell": "?"}
"""A sign for each decision: colour alone does not tell them apart."""


def headline(discovery: Discovery) -> tuple[str, Decision]:
    """The shortest answer, and the decision that it stands for."""
    if discovery.verdict.symmetric:
        return discovery.group.name, "symmetry"
    reason = discovery.verdict.reason.lower()
    if reason.startswith("cannot tell"):
        return "Cannot tell", "cannot tell"
    if reason.startswith("not testable"):
        return "Not testable", "not testable"
    return "No symmetry found", "broken"


def answer_sentences(discovery: Discovery) -> list[str]:
    """The answer in words: what was found, how sure that is, how far it holds and where it fails."""
    decision = headline(discovery)[1]
    if decision == "symmetry":
        return [_found(discovery), *_certainty(discovery), *_places(discovery), _stand_in(discovery)]
    words = [discovery.verdict.reason]
    if decision == "broken":
        words += ["Every direction that could be tested moves the two sides of the map apart.", _stand_in(discovery)]
    elif decision == "cannot tell":
        words.append("More samples, or a predictor that fits better, may allow an answer.")
    else:
        words.append("Data or outputs that vary more would make a test possible.")
    return words


def _found(discovery: Discovery) -> str:
    group = discovery.group
    if not group.dimension:
        return f"The map commutes with the {group.order} elements of {group.name}."
    kinds = [describe_generator(a, axis_names(discovery)) for a in discovery.algebra.basis]
    named = f", {kinds[0]}" if len(kinds) == 1 and not kinds[0].startswith("a mix") else ""
    many = f"one continuous direction{named}," if group.dimension == 1 else f"{group.dimension} continuous directions"
    parts = "one component" if group.order == 1 else f"{group.order} components"
    return f"The map commutes with {group.name}: {many} and {parts}."


def _certainty(discovery: Discovery) -> list[str]:
    judged = (*discovery.verdict.directions, *discovery.verdict.cosets)
    if not judged:
        return []
    worst, limit = max(d.upper for d in judged), judged[0].tolerance
    most = percent(worst) if 0 < worst < 1e-4 else f"at most {percent(worst)}"
    words = [
        f"On held-out data the two sides differ by {most} of what unrelated motions would give; "
        f"{percent(limit)} would still count."
    ]
    extents = [(d.extent, k) for k, d in enumerate(discovery.verdict.directions) if d.extent is not None]
    if extents:
        extent, k = min(extents)
        words.append(f"It was seen to hold for {describe_extent(discovery.algebra.basis[k], extent)}.")
    return words


def _places(discovery: Discovery) -> list[str]:
    charts = discovery.charts
    if len(charts) < 2:
        return []
    apart = [str(k) for k, c in enumerate(charts) if c.outlier]
    if not apart:
        return [f"All {len(charts)} charts agree."]
    shown = ", ".join(apart[:12]) + (" and more" if len(apart) > 12 else "")
    subject = f"Chart {shown} stands" if len(apart) == 1 else f"Charts {shown} stand"
    return [f"{subject} apart from the other {len(charts) - len(apart)}."]


def _stand_in(discovery: Discovery) -> str:
    p = discovery.predictor
    if not p.samples:
        return "The map was given as a function, so nothing had to be learned."
    return f"The learned stand-in for the map removes {percent(p.skill)} of the error that trivial guesses leave."


def axis_names(discovery: Discovery) -> list[str]:
    """Names of the axes along which matrices act: those of the array for fields, numbers for vectors."""
    n = discovery.algebra.basis.shape[-1]
    frames = discovery.frames
    if (frames is not None and frames.shape) or any(discovery.charts and len(c.center) == n for c in discovery.charts):
        return {2: ["row", "column"], 3: ["depth", "row", "column"]}.get(n, [str(k + 1) for k in range(n)])
    return [str(k + 1) for k in range(n)]


def describe_generator(a: Tensor, axes: Sequence[str] | None = None, tolerance: float = 0.05) -> str:
    """What a generator does, in a word, if one word is right to within `tolerance`.

    Example:
        >>> describe_generator(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        'a rotation'
        >>> describe_generator(torch.eye(3))
        'a scaling'
    """
    a = a.double() / a.double().norm().clamp_min(1e-300)
    n = len(a)
    names = list(axes) if axes is not None else [str(k + 1) for k in range(n)]
    if float((a - torch.eye(n).double() * a.diagonal().mean()).norm()) < tolerance:
        return "a scaling"
    if float((a - torch.diag(a.diagonal())).norm()) < tolerance:
        return "a stretch along the axes"
    i, j = divmod(int((a.abs() - 2 * torch.eye(n).double()).argmax()), n)
    i, j = min(i, j), max(i, j)
    pair = torch.zeros(n, n, dtype=torch.float64)
    pair[i, j], pair[j, i] = a[i, j], a[j, i]
    where = "" if n == 2 else f" of axes {names[i]} and {names[j]}"
    if float((a - pair).norm()) < tolerance:
        up, down = float(a[i, j]), float(a[j, i])
        if abs(up + down) < 2 * tolerance:
            return f"a rotation{where}"
        if abs(up - down) < 2 * tolerance:
            return f"a squeeze{where}" if n == 2 else f"a boost{where}"
        if min(abs(up), abs(down)) < tolerance:
            return f"a shear{where}"
    if float((a + a.mT).norm()) < 2 * tolerance:
        return "a rotation"
    return "a mix of motions"


def percent(share: float) -> str:
    """A share in per cent, with as many digits as it needs."""
    if not math.isfinite(share):
        return "an unknown share"
    value = 100 * share
    if 0 < value < 0.01:
        return "less than 0.01 %"
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def short_number(value: float | None) -> str:
    """A number with at most four digits behind the point, a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    if 0 < abs(value) < 5e-5:
        return "<0.0001"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.0f}"
