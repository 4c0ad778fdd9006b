"""The slider: a transformation in precomputed frames, both sides of the map, and their difference."""

from __future__ import annotations

__all__ = ["slider_html"]

import json
import math
from collections.abc import Iterator
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from atlasd.discovery.frames import Track
from atlasd.discovery.result import Discovery
from atlasd.report.judged import chosen_tolerance
from atlasd.report.pictures import difference_palette, field_palette, picture_address, strip
from atlasd.report.sentences import ENOUGH, axis_names, describe_generator, share, strength, track_strengths
from atlasd.report.svg import track_svg
from atlasd.report.templates import part

_PANELS = {
    "input": ("Transformed input", "g·x"),
    "left": ("Map of the transformed input", "Φ(g·x)"),
    "right": ("Transformed output of the map", "g·Φ(x)"),
    "difference": ("Difference of the two", "Φ(g·x) − g·Φ(x)"),
}
_BOX = 200


def slider_html(discovery: Discovery, key: str, most: int) -> str:
    """The slider with its choice of transformations; empty where no frames were kept."""
    frames = discovery.frames
    if frames is None or not frames.tracks or most < 1:
        return ""
    tracks = [t for t in frames.tracks if not t.name.startswith("contrast")][: max(most - 1, 1)]
    tracks += [t for t in frames.tracks if t.name.startswith("contrast")][: max(most - len(tracks), 0)]
    tolerance, axes = chosen_tolerance(discovery), axis_names(discovery)
    names = [_track_name(track, discovery, axes) for track in tracks]
    shown = [_track(track, names[k], f"{key}-{k}", tolerance, axes) for k, track in enumerate(tracks)]
    chart = frames.chart if len(discovery.charts) > 1 else None
    return part("slider.html", "film", key, names, shown, chart, bool(tracks[0].pictures))


def _track_name(track: Track, discovery: Discovery, axes: list[str]) -> str:
    kind, _, rest = track.name.partition(" ")
    if kind == "generator" and rest.isdigit() and int(rest) <= len(discovery.algebra.basis):
        return f"generator {rest}: {describe_generator(discovery.algebra.basis[int(rest) - 1], axes)}"
    if kind == "elements":
        return f"the {len(track.t)} cosets, one by one"
    if kind == "contrast":
        return f"for contrast: {rest}" + (", outside the group" if discovery.verdict.symmetric else "")
    return track.name


def _track(track: Track, name: str, key: str, tolerance: float | None, axes: list[str]) -> Markup:
    start = _start(track)
    strengths = track_strengths(track)
    words = [_words(track, i, strengths[i]) for i in range(len(track.t))]
    curve, places = track_svg(track, strengths, tolerance)
    dots: dict[str, Any] = {}
    panels = list(_strips(track, start) if track.pictures else _clouds(track, start, dots, axes))
    matrices = [[[_entry(v) for v in row] for row in g] for g in track.matrices.tolist()]
    data = {
        "words": words,
        "places": [round(p, 1) for p in places],
        "dots": dots,
        "matrices": [[v for row in g for v in row] for g in matrices],
    }
    attribute = json.dumps(data, separators=(",", ":"), allow_nan=False)
    what = "element" if track.name == "elements" else "size t"
    kind = "four" if track.pictures else "two"
    drawn = (Markup("").join(panels), kind, curve, share(ENOUGH), matrices[start])
    return part("slider.html", "track", name, key, attribute, what, start, words, *drawn)


def _start(track: Track) -> int:
    """Where the slider stands first: away from the identity, where all agrees, and where the data still reach."""
    if track.name == "elements":
        return min(1, len(track.t) - 1)
    large = [i for i, t in enumerate(track.t.tolist()) if t > 0.4]
    if not large:
        return len(track.t) - 1
    best = max(float(track.covered[i]) for i in large)
    good = [i for i in large if float(track.covered[i]) >= 0.9 * best]
    return good[len(good) // 4]


def _words(track: Track, i: int, breaking: float) -> str:
    t = float(track.t[i])
    where = f"element {t:g} of {len(track.t)}" if track.name == "elements" else f"t = {t + 0.0:.2f}"
    if float((track.matrices[i] - torch.eye(track.matrices.shape[-1]).double()).abs().max()) < 1e-9:
        return f"{where}: the identity"
    if not math.isfinite(breaking):
        return f"{where}: not measured, too few transformed samples lie where data are"
    return f"{where}: strength of the breaking {strength(breaking)}; coverage {share(float(track.covered[i]))}"


def _strips(track: Track, start: int) -> Iterator[Markup]:
    palettes = {"input": field_palette("viridis"), "difference": difference_palette()}
    for name, (title, formula) in _PANELS.items():
        picture = track.pictures[name]
        source = picture_address(strip(picture.levels), palettes.get(name, field_palette("magma")))
        count, height, width = picture.levels.shape
        span = f"{picture.low:.3g} to {picture.high:.3g}"
        yield part("slider.html", "strip", name, title, formula, source, start, count, width, height, span)


def _clouds(track: Track, start: int, dots: dict[str, Any], axes: list[str]) -> Iterator[Markup]:
    i, j = track.axes
    moved, left, right = (track.points[k] for k in ("input", "left", "right"))
    reach = _reach(moved)
    low, high = _span(right)
    dots["input"] = _places(moved, -reach, reach)
    dots["output"] = _places(torch.stack([right, left], dim=-1), low, high)
    note = f"axis {axes[i]} across, axis {axes[j]} up, ±{reach:.3g}"
    yield part("slider.html", "cloud", "input", dots["input"][start], _BOX, "Transformed inputs, g·x", note)
    note = f"g·Φ(x) across, Φ(g·x) up, {low:.3g} to {high:.3g}: on the line they agree"
    yield part("slider.html", "cloud", "output", dots["output"][start], _BOX, "Both sides, sample by sample", note)


def _places(values: Tensor, low: float, high: float) -> list[list[list[float]]]:
    """Positions in the box for values `(T, B, 2)`; what is no number lies outside."""
    share = (values.double() - low) / max(high - low, 1e-300)
    x, y = share[..., 0] * _BOX, (1 - share[..., 1]) * _BOX
    return torch.stack([x, y], dim=-1).clamp(-50, _BOX + 50).nan_to_num(-50.0).round(decimals=1).tolist()


def _reach(moved: Tensor) -> float:
    """How far the plot of inputs reaches: most points at most sizes."""
    values = moved[moved.isfinite()].abs()
    return float(values.quantile(0.9)) * 1.2 if len(values) else 1.0


def _span(values: Tensor) -> tuple[float, float]:
    finite = values[values.isfinite()]
    if not len(finite):
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    margin = 0.08 * max(high - low, 1e-9)
    return low - margin, high + margin


def _entry(value: float) -> str:
    # Adding zero turns -0.00 into 0.00.
    return f"{round(value, 2) + 0.0:.2f}"
