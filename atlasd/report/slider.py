"""The slider: a transformation in precomputed frames, both sides of the map, and their difference."""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import matplotlib
import numpy as np
import numpy.typing as npt
import torch
from markupsafe import Markup
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from atlasd.discovery.frames import Track
from atlasd.discovery.result import Discovery
from atlasd.report.figures import AMBER, BLUE, GREY, RED, WIDTH, inline_svg
from atlasd.report.sentences import (
    ENOUGH,
    axis_names,
    chosen_tolerance,
    describe_generator,
    share,
    strength,
    track_strengths,
)
from atlasd.report.templates import part

_PANELS = {
    "input": ("Transformed input", "g·x"),
    "left": ("Map of the transformed input", "Φ(g·x)"),
    "right": ("Transformed output of the map", "g·Φ(x)"),
    "difference": ("Difference of the two", "Φ(g·x) − g·Φ(x)"),
}
_BOX = 200
_MARKER = (28.5, 161.5)
"""Ends of the line that marks a step of the curve, in points."""

_Palette: TypeAlias = npt.NDArray[np.uint8]
"""Colours with shape `(256, 4)`: red, green, blue, opacity. The last one is for pixels that do not count."""

_STEPS = 63
"""Different colours of a picture: fewer compress better, and nobody sees more; odd, so that zero has its own."""
_UNCOUNTED = np.array([[128, 128, 128, 70]], dtype=np.uint8)


def _picture_address(levels: Tensor, palette: _Palette) -> str:
    """An address that holds the picture of levels `(h, w)`, unsigned bytes that number the colours of the palette."""
    rows = levels.detach().cpu().numpy().astype(np.uint8)
    coarse = np.rint(np.rint(rows / 254 * (_STEPS - 1)) * 254 / (_STEPS - 1))
    image = Image.fromarray(np.where(rows == 255, 255, coarse).astype(np.uint8))
    image.putpalette(palette.tobytes(), "RGBA")
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _strip(levels: Tensor) -> Tensor:
    """Frames `(T, h, w)` side by side, `(h, T w)`."""
    t, h, w = levels.shape
    return levels.movedim(0, 1).reshape(h, t * w)


def _field_palette(name: str = "viridis") -> _Palette:
    """A palette of matplotlib; what does not count is grey."""
    colours = (matplotlib.colormaps[name](np.linspace(0, 1, 255)) * 255).round().astype(np.uint8)
    return np.concatenate([colours, _UNCOUNTED])


def _difference_palette() -> _Palette:
    """Blue below zero, red above, and clear at zero: right on light and on dark paper."""
    share = np.linspace(-1, 1, 255)[:, None]
    colour = np.where(share < 0, np.array([[38, 110, 190]]), np.array([[205, 60, 40]]))
    opacity = np.abs(share) ** 0.7 * 255
    return np.concatenate([np.concatenate([colour, opacity], axis=1).round().astype(np.uint8), _UNCOUNTED])


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
    return part("slider.html", "slider", key, names, shown, chart, bool(tracks[0].pictures))


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
    steps = (track.t.tolist(), strengths, track.covered.tolist())
    figure, places = _draw_track(*steps, tolerance, track.name == "elements")
    marker = part("slider.html", "marker", round(places[start], 1), *_MARKER)
    curve = inline_svg(figure, "Strength of the breaking as the transformation grows.", marker)
    dots: dict[str, Any] = {}
    panels = list(_strips(track, start) if track.pictures else _clouds(track, start, dots, axes))
    matrices = [[[f"{v:z.2f}" for v in row] for row in g] for g in track.matrices.tolist()]
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


def _draw_track(
    t: Sequence[float], strengths: Sequence[float], covered: Sequence[float], tolerance: float | None, elements: bool
) -> tuple[Figure, list[float]]:
    """The strength of the breaking at every step of a transformation, and where each step stands, in points.

    Arguments:
        t: Size of every step, or the number of the element.
        strengths: One per step, from 0 to 1; NaN where nothing was measured.
        covered: Share of the transformed samples that lie where data are; steps with too few are shaded.
        elements: Whether steps are single elements, which no line joins.
    """
    figure = Figure(figsize=(WIDTH, 2.8))
    axes = figure.add_axes((0.14, 0.2, 0.83, 0.66))
    half = (t[1] - t[0]) / 2 if len(t) > 1 else 0.5
    axes.set_xlim((t[0] - half, t[-1] + half) if elements else (t[0], t[-1]))
    axes.set_ylim(0.0, 105.0)
    for step, share_covered in zip(t, covered, strict=True):
        if share_covered < ENOUGH:
            axes.axvspan(step - half, step + half, color=GREY, alpha=0.16, linewidth=0)
    line = "" if elements else "-"
    # A step between two that were not measured has no line.
    percent = 100 * np.array(strengths)
    axes.plot(t, percent, color=BLUE, linestyle=line, marker="o", markersize=6 if elements else 3, label="breaking")
    axes.axhline(100.0, color=RED, linestyle="--", linewidth=1.2, label="null level")
    if tolerance is not None and 0 < tolerance < 1:
        axes.axhline(100 * tolerance, color=AMBER, linestyle=":", linewidth=1.5, label="tolerance")
    if elements:
        axes.set_xticks(list(t) if len(t) <= 16 else [t[0], t[-1]])
    axes.set_xlabel("element" if elements else "size of the transformation, t")
    axes.set_ylabel("breaking, %")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.98), ncols=3, frameon=False)
    figure.dpi = 72.0  # drawings are measured in points
    places = axes.transData.transform(np.stack([np.asarray(t), np.zeros(len(t))], axis=1))
    return figure, [float(x) for x in places[:, 0]]


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
    palettes = {"input": _field_palette("viridis"), "difference": _difference_palette()}
    for name, (title, formula) in _PANELS.items():
        picture = track.pictures[name]
        source = _picture_address(_strip(picture.levels), palettes.get(name, _field_palette("magma")))
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
