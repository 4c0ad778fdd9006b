"""Drawings inside the page: plain SVG whose colours come from the style sheet, so that they suit light and dark."""

from __future__ import annotations

__all__ = ["bars_svg", "curve_svg", "map_svg", "spectrum_svg", "staircase_svg", "track_svg"]

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from markupsafe import Markup

from atlasd.discovery.frames import Picture, Track
from atlasd.discovery.result import ChartFinding
from atlasd.report.pictures import field_palette, picture_address
from atlasd.report.sentences import ENOUGH, share, strength
from atlasd.report.templates import part

WIDTH = 400
_LEFT, _RIGHT = 46, 12


@dataclass(frozen=True)
class Shape:
    """One element of a drawing."""

    tag: str
    attributes: dict[str, str]
    words: str = ""
    inside: tuple[Shape, ...] = ()


def _shape(tag: str, kind: str = "", words: str = "", inside: Sequence[Shape] = (), **attributes: Any) -> Shape:
    given = {k.replace("_", "-"): f"{v:.1f}" if isinstance(v, float) else str(v) for k, v in attributes.items()}
    return Shape(tag, given | ({"class": kind} if kind else {}), words, tuple(inside))


def _drawing(height: float, shapes: Sequence[Shape], name: str) -> Markup:
    return part("parts.html", "drawing", WIDTH, f"{height:.0f}", shapes, name)


def _label(x: float, y: float, words: str, kind: str = "tick", anchor: str = "middle") -> Shape:
    return _shape("text", kind, words, x=float(x), y=float(y), text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Shape:
    return _shape("line", kind, x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2))


def _circle(x: float, y: float, r: float, kind: str, **more: Any) -> Shape:
    return _shape("circle", kind, cx=float(x), cy=float(y), r=float(r), **more)


def _rect(x: float, y: float, width: float, height: float, kind: str = "", **more: Any) -> Shape:
    sides: dict[str, Any] = {"x": float(x), "y": float(y), "width": float(width), "height": float(height)}
    return _shape("rect", kind, **sides, **more)


def _title(words: str) -> list[Shape]:
    return [_shape("title", words=words)]


def _path(points: Sequence[tuple[float, float]], kind: str) -> list[Shape]:
    """A line through the points; it breaks where a number is missing."""
    words, pen = [], "M"
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            words.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
        else:
            pen = "M"
    return [_shape("path", kind, d=" ".join(words))] if words else []


def spectrum_svg(spectrum: Sequence[float], tolerance: float | None) -> Markup:
    """First-order strengths of all directions on a logarithmic scale, with the null level and the tolerance.

    Arguments:
        spectrum: Squares of strengths, ascending.
        tolerance: The largest strength that counts as a symmetry.
    """
    height, top, bottom = 230.0, 14.0, 190.0
    strengths = [math.sqrt(v) if v >= 0 else math.nan for v in spectrum]
    finite = [v for v in strengths if math.isfinite(v)]
    floor = min([max(v, 1e-6) for v in finite if v > 0] + [1e-2])
    low, high = math.floor(math.log10(floor)), math.ceil(math.log10(max([*finite, 1.0]) * 1.2))
    limit = tolerance if tolerance is not None and math.isfinite(tolerance) and tolerance > 0 else None

    def place(value: float) -> float:
        part = (math.log10(max(value, 10.0**low)) - low) / max(high - low, 1)
        return bottom - min(part, 1.0) * (bottom - top)

    parts = []
    step = max(1, math.ceil((high - low) / 5))
    for power in range(low, high + 1, step):
        y = place(10.0**power)
        parts.append(_line(_LEFT, y, WIDTH - _RIGHT, y, "grid"))
        parts.append(_label(_LEFT - 4, y + 4, f"{100 * 10.0**power:g}", anchor="end"))
    gap = (WIDTH - _LEFT - _RIGHT) / max(len(spectrum), 1)
    size = min(5.0, max(2.0, gap / 3))
    for k, value in enumerate(strengths):
        x = _LEFT + gap * (k + 0.5)
        if len(spectrum) <= 16:
            parts.append(_label(x, bottom + 16, str(k + 1)))
        if not math.isfinite(value):
            parts.append(_label(x, bottom - 4, "∅"))
            continue
        y, inside = place(value), limit is not None and value <= limit
        parts.append(_line(x, bottom, x, y, f"stem {'in' if inside else 'out'}"))
        title = _title(f"direction {k + 1}: {strength(value)}")
        if inside:
            parts.append(_circle(x, y, size, "dot in", inside=title))
        else:
            parts.append(_rect(x - size, y - size, 2 * size, 2 * size, "dot out", inside=title))
    for level, kind, words in ((1.0, "null", "null level"), (limit, "cut", "tolerance")):
        if level is not None:
            y = place(level)
            parts.append(_line(_LEFT, y, WIDTH - _RIGHT, y, kind))
            parts.append(_label(_LEFT + 4, y - 5, f"{words} {100 * level:.3g} %", "tick strong", "start"))
    parts.append(_label((WIDTH + _LEFT) / 2, height - 6, "direction, weakest first; strength in per cent"))
    count = sum(limit is not None and v <= limit for v in strengths)
    return _drawing(
        height, parts, f"Spectrum: {count} of {len(spectrum)} directions lie below the tolerance at first order."
    )


def map_svg(
    charts: Sequence[ChartFinding],
    places: Sequence[Sequence[float]],
    picture: Picture | None,
    shape: Sequence[int],
    radii: Sequence[float],
    limit: float,
) -> Markup:
    """The charts where they lie, over one field, coloured by their breaking; outlier charts have a cross.

    Arguments:
        charts: What was found on each.
        places: Where each lies, in pixels; the last two coordinates are drawn.
        picture: The field, levels `(h, w)`.
        shape: Its spatial shape in pixels.
        radii: In- and out-radius in pixels, if known.
        limit: The least strength that the scale of colours reaches.
    """
    centres = [place[-2:] for place in places]
    if len(shape) >= 2:
        origin, extent = (-0.5, -0.5), (float(shape[-2]), float(shape[-1]))
    else:
        margin = 1.3 * max(radii[0] if radii else 1.0, 1.0)
        origin = (min(c[0] for c in centres) - margin, min(c[1] for c in centres) - margin)
        extent = (
            max(c[0] for c in centres) + margin - origin[0],
            max(c[1] for c in centres) + margin - origin[1],
        )
    # A tall field is not wider than the screen is high.
    scale = min((WIDTH - 2) / extent[1], 420 / extent[0])
    width, tall = extent[1] * scale, extent[0] * scale
    left = (WIDTH - width) / 2
    parts = []
    if picture is not None:
        source = picture_address(picture.levels, field_palette("gray"))
        place: dict[str, Any] = {
            "href": source,
            "x": left,
            "y": 0,
            "width": width,
            "height": tall,
            "preserveAspectRatio": "none",
        }
        parts.append(_shape("image", "ground", **place))
    parts.append(_rect(left, 0, width, tall, "frame"))
    errors = [c.error for c in charts if math.isfinite(c.error)]
    top = max([*errors, limit])
    size = max(5.0, min(11.0, 60 / math.sqrt(len(charts))))
    # Outlier charts come last, on top.
    for number, chart in sorted(enumerate(charts), key=lambda pair: pair[1].outlier):
        row, column = centres[number]
        x, y = left + (column - origin[1]) * scale, (row - origin[0]) * scale
        parts.append(_chart(number, chart, x, y, size, top, [r * scale for r in radii]))
    y = tall + 16
    stops = [_shape("stop", offset=f"{k * 10}%", stop_color=_shade(k / 10)[0]) for k in range(11)]
    key = f"ramp{len(charts)}x{tall:.0f}x{top:.4f}".replace(".", "_")
    parts.append(_shape("defs", inside=[_shape("linearGradient", inside=stops, id=key)]))
    parts.append(_rect(8, y, 170, 10, rx=2, fill=f"url(#{key})"))
    parts += [_label(8, y + 25, "0 %", anchor="start"), _label(178, y + 25, strength(top), anchor="end")]
    parts.append(_label(93, y + 25, "breaking"))
    parts.append(_shape("g", "apart", inside=_cross(212, y + 6, 6)))
    parts.append(_label(225, y + 10, "outlier chart", anchor="start"))
    if any(not math.isfinite(c.error) for c in charts):
        parts.append(_circle(320, y + 6, 6, "chart unknown"))
        parts.append(_label(331, y + 10, "not judged", anchor="start"))
    apart = [str(k) for k, c in enumerate(charts) if c.outlier]
    named = f"outlier charts: {', '.join(apart)}" if apart else "no outlier chart"
    return _drawing(
        tall + 46, parts, f"Map of {len(charts)} charts over one field, {named}. The table has the numbers."
    )


def _shade(share: float) -> tuple[str, str]:
    """A colour of the scale, and the ink that can be read on it."""
    r, g, b, _ = matplotlib.colormaps["viridis"](min(max(share, 0.0), 1.0))
    ink = "#000" if 0.3 * r + 0.59 * g + 0.11 * b > 0.5 else "#fff"
    return f"#{round(255 * r):02x}{round(255 * g):02x}{round(255 * b):02x}", ink


def _cross(x: float, y: float, r: float) -> list[Shape]:
    return [_line(x - r, y - r, x + r, y + r, "cross"), _line(x - r, y + r, x + r, y - r, "cross")]


def _chart(number: int, chart: ChartFinding, x: float, y: float, size: float, top: float, radii: list[float]) -> Shape:
    known = math.isfinite(chart.error)
    colour, ink = _shade(chart.error / max(top, 1e-300)) if known else ("none", "currentColor")
    place = ", ".join(f"{v:g}" for v in chart.center)
    words = f"chart {number} at ({place}): " + (f"breaking {strength(chart.error)}" if known else "not judged")
    words += ", outlier chart" if chart.outlier else ""
    parts = _title(words)
    if radii:
        r = radii[-1]
        parts.append(_rect(x - r, y - r, 2 * r, 2 * r, "window", stroke=colour if known else "gray"))
    fill = {"fill": colour} if known else {}
    parts.append(_circle(x, y, size, "chart" if known else "chart unknown", **fill))
    if size >= 7 or chart.outlier:
        parts.append(_shape("text", "number", str(number), x=x, y=y + 3.5, text_anchor="middle", fill=ink))
    if chart.outlier:
        parts += _cross(x + size + 4, y - size - 4, 5)
    return _shape("g", "apart" if chart.outlier else "along", inside=parts)


def track_svg(track: Track, strengths: Sequence[float], tolerance: float | None) -> tuple[Markup, list[float]]:
    """The strength of the breaking at every step, and where each step stands on the axis.

    Arguments:
        track: Steps and their coverage.
        strengths: One per step, from 0 to 1; NaN where nothing was measured.
        tolerance: The largest strength that counts as a symmetry.
    """
    height, top, bottom = 190.0, 22.0, 150.0
    steps = track.name == "elements"
    t = track.t.tolist()
    low, high = (0.5, len(t) + 0.5) if steps else (min(t), max(t))
    places = [_LEFT + (v - low) / max(high - low, 1e-9) * (WIDTH - _LEFT - _RIGHT) for v in t]
    points = [(x, bottom - v * (bottom - top)) for x, v in zip(places, strengths, strict=True)]
    parts = []
    half = (places[1] - places[0]) / 2 if len(places) > 1 else 10.0
    for x, covered in zip(places, track.covered.tolist(), strict=True):
        if covered < ENOUGH:
            first, last = max(x - half, _LEFT), min(x + half, WIDTH - _RIGHT)
            parts.append(_rect(first, top, last - first, bottom - top, "beyond"))
    parts += [_line(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis"), _line(_LEFT, top, _LEFT, bottom, "axis")]
    parts += [_line(_LEFT, top, WIDTH - _RIGHT, top, "null")]
    parts += [_label(_LEFT - 4, bottom + 4, "0 %", anchor="end"), _label(_LEFT - 4, top + 4, "100 %", anchor="end")]
    if tolerance is not None and 0 < tolerance < 1:
        y = bottom - tolerance * (bottom - top)
        parts += [_line(_LEFT, y, WIDTH - _RIGHT, y, "cut"), _label(_LEFT - 4, y + 4, share(tolerance), anchor="end")]
    # A step between two that were not measured has no line.
    size = 4.5 if steps else 2.2
    parts += [_circle(x, y, size, "dot in") for x, y in points if math.isfinite(y)]
    if steps:
        parts += [_label(x, bottom + 15, f"{v:g}") for x, v in zip(places, t, strict=True)]
        parts.append(_label((WIDTH + _LEFT) / 2, height - 8, "element"))
    else:
        parts += _path(points, "curve residual")
        ticks = [places[0], (places[0] + places[-1]) / 2, places[-1]]
        parts += [_label(x, bottom + 15, f"{v:.3g}") for x, v in zip(ticks, (low, (low + high) / 2, high), strict=True)]
        parts.append(_label((WIDTH + _LEFT) / 2, height - 8, "size of the transformation, t"))
    parts += [_line(46, 10, 62, 10, "curve residual"), _label(66, 14, "strength of the breaking", anchor="start")]
    parts += [_line(230, 10, 246, 10, "null"), _label(250, 14, "null level", anchor="start")]
    parts += [_line(314, 10, 330, 10, "cut"), _label(334, 14, "tolerance", anchor="start")]
    middle = places[len(places) // 2]
    parts.append(_line(middle, top, middle, bottom, "marker"))
    return _drawing(height, parts, "Strength of the breaking as the transformation grows."), places


def staircase_svg(panels: Sequence[tuple[str, int, Sequence[float], Sequence[float]]], chosen: float) -> Markup:
    """Counts against the tolerance, one panel above the other.

    Arguments:
        panels: For each a name, the count at tolerance 0, upper ends and lower ends of intervals.
        chosen: The tolerance that is marked.
    """
    tall, left, right = 92.0, 30.0, WIDTH - 22.0

    def across(tolerance: float) -> float:
        # Small tolerances need more room than large ones.
        return left + math.sqrt(min(max(tolerance, 0.0), 1.0)) * (right - left)

    parts, words = [], []
    for number, (name, offset, uppers, lowers) in enumerate(panels):
        top, bottom = 44.0 + number * (tall + 26), 44.0 + number * (tall + 26) + tall
        most = max(offset + len(lowers), 1)

        def up(count: int, bottom: float = bottom, most: int = most) -> float:
            return bottom - (tall - 10) * count / most

        parts += [_line(left, bottom, right, bottom, "axis"), _line(left, top, left, bottom, "axis")]
        for count in sorted({offset, most}):
            parts.append(_label(left - 5, up(count) + 4, str(count), anchor="end"))
        parts.append(_label(left, top - 6, name, "tick strong", "start"))
        for ends, kind in ((lowers, "curve limit"), (uppers, "curve residual")):
            points, count = [(across(0.0), up(offset))], offset
            for end in sorted(v for v in ends if v <= 1):
                points += [(across(end), up(count)), (across(end), up(count + 1))]
                count += 1
            parts += _path([*points, (right, up(count))], kind)
        parts.append(_line(across(chosen), top, across(chosen), bottom, "marker"))
        shown = offset + sum(v <= chosen for v in uppers)
        words.append(f"{name} {shown}")
    foot = 44.0 + len(panels) * (tall + 26) - 12
    for tick in (0.0, 0.01, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0):
        parts.append(_label(across(tick), foot, f"{100 * tick:g} %" if tick in (0.0, 1.0) else f"{100 * tick:g}"))
    parts.append(_label((left + right) / 2, foot + 18, "tolerance"))
    parts += [_line(left, 10, left + 16, 10, "curve residual"), _label(left + 20, 14, "shown", anchor="start")]
    parts += [_line(110, 10, 126, 10, "curve limit"), _label(130, 14, "not excluded", anchor="start")]
    parts += [_line(232, 4, 232, 16, "marker"), _label(238, 14, f"chosen, {share(chosen)}", anchor="start")]
    return _drawing(foot + 26, parts, f"At the chosen tolerance of {share(chosen)}: {', '.join(words)}.")


def curve_svg(name: str, values: Sequence[float]) -> Markup:
    """One training curve; logarithmic where it spans much."""
    height, top, bottom = 150.0, 24.0, 122.0
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return Markup("")
    log = min(finite) > 0 and max(finite) > 20 * min(finite)
    heights = [math.log10(v) if log and v > 0 else v for v in values]
    low, high = min(h for h in heights if math.isfinite(h)), max(h for h in heights if math.isfinite(h))
    gap = (WIDTH - _LEFT - _RIGHT) / max(len(values) - 1, 1)
    points = [
        (_LEFT + gap * k, bottom - (h - low) / max(high - low, 1e-12) * (bottom - top)) for k, h in enumerate(heights)
    ]
    parts = [_label(_LEFT, 14, name, "tick strong", "start"), *_path(points, "curve residual")]
    parts += [_line(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis"), _line(_LEFT, top, _LEFT, bottom, "axis")]
    parts += [_label(_LEFT - 6, top + 6, f"{max(finite):.2g}", anchor="end")]
    parts += [_label(_LEFT - 6, bottom, f"{min(finite):.2g}", anchor="end"), _label(_LEFT, bottom + 16, "1")]
    parts += [_label(WIDTH - _RIGHT, bottom + 16, f"step {len(values)}", anchor="end")]
    return _drawing(height, parts, f"Training curve: {name}.")


def bars_svg(amounts: Sequence[tuple[str, float]], unit: str) -> Markup:
    """Amounts as bars, with their numbers."""
    most = max((v for _, v in amounts), default=1.0) or 1.0
    parts = []
    for k, (name, value) in enumerate(amounts):
        y = 8.0 + 24 * k
        parts.append(_label(108, y + 12, name, anchor="end"))
        parts.append(_rect(114, y, max(210 * value / most, 1), 15, "amount", rx=2))
        parts.append(_label(120 + 210 * value / most, y + 12, f"{value:.1f} {unit}", anchor="start"))
    return _drawing(8 + 24 * len(amounts), parts, "; ".join(f"{n} {v:.1f} {unit}" for n, v in amounts))
