"""Drawings inside the page: plain SVG whose colours come from the style sheet, so that they suit light and dark."""

from __future__ import annotations

__all__ = ["bars_svg", "curve_svg", "map_svg", "spectrum_svg", "text", "track_svg"]

import html
import math
from collections.abc import Sequence

import matplotlib

from atlasd.discovery.frames import Picture, Track
from atlasd.discovery.result import ChartFinding
from atlasd.report.png import data_address, field_palette, palette_png
from atlasd.report.words import short_number
from atlasd.runtime.text import escaped

WIDTH = 400
_LEFT, _RIGHT = 46, 12


def text(value: object) -> str:
    """Everything that is not markup of this room passes here."""
    return html.escape(escaped(str(value)), quote=True)


def _svg(height: float, inside: Sequence[str], name: str, kind: str = "") -> str:
    return (
        f"<svg viewBox='0 0 {WIDTH} {height:.0f}' role='img' aria-label='{text(name)}' class='plot {kind}'>"
        f"{''.join(inside)}</svg>"
    )


def _label(x: float, y: float, words: str, kind: str = "tick", anchor: str = "middle") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' class='{kind}' text-anchor='{anchor}'>{text(words)}</text>"


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f"<line x1='{x1:.1f}' y1='{y1:.1f}' x2='{x2:.1f}' y2='{y2:.1f}' class='{kind}'/>"


def _path(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through the points; it breaks where a number is missing."""
    words, pen = [], "M"
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            words.append(f"{pen}{x:.1f} {y:.1f}")
            pen = "L"
        else:
            pen = "M"
    return f"<path d='{' '.join(words)}' class='{kind}'/>" if words else ""


def spectrum_svg(spectrum: Sequence[float], tolerance: float | None, accepted: int) -> str:
    """Errors of all directions at first order, on a logarithmic scale, with the chance level and the cut."""
    height, top, bottom = 230.0, 14.0, 190.0
    finite = [v for v in spectrum if math.isfinite(v)]
    floor = min([max(v, 1e-12) for v in finite if v > 0] + [1e-3])
    low, high = math.floor(math.log10(floor)), math.ceil(math.log10(max([*finite, 1.0]) * 1.2))
    low = max(low, high - 14)

    def place(value: float) -> float:
        share = (math.log10(max(value, 10.0**low)) - low) / max(high - low, 1)
        return bottom - min(share, 1.0) * (bottom - top)

    parts = []
    step = max(1, math.ceil((high - low) / 5))
    for power in range(low, high + 1, step):
        y = place(10.0**power)
        parts += [_line(_LEFT, y, WIDTH - _RIGHT, y, "grid"), _label(_LEFT - 6, y + 4, f"1e{power}", anchor="end")]
    gap = (WIDTH - _LEFT - _RIGHT) / max(len(spectrum), 1)
    size = min(5.0, max(2.0, gap / 3))
    for k, value in enumerate(spectrum):
        x = _LEFT + gap * (k + 0.5)
        if not math.isfinite(value):
            parts.append(_label(x, bottom - 4, "∅"))
            continue
        y, kind = place(value), "in" if k < accepted else "out"
        parts.append(_line(x, bottom, x, y, f"stem {kind}"))
        title = f"<title>direction {k + 1}: {short_number(value)}</title>"
        if k < accepted:
            parts.append(f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{size:.1f}' class='dot in'>{title}</circle>")
        else:
            corner = f"x='{x - size:.1f}' y='{y - size:.1f}' width='{2 * size:.1f}' height='{2 * size:.1f}'"
            parts.append(f"<rect {corner} class='dot out'>{title}</rect>")
        if len(spectrum) <= 16:
            parts.append(_label(x, bottom + 16, str(k + 1)))
    parts += [_line(_LEFT, place(1.0), WIDTH - _RIGHT, place(1.0), "chance")]
    parts.append(_label(_LEFT + 4, place(1.0) - 5, "chance", "tick strong", "start"))
    if tolerance is not None and math.isfinite(tolerance) and tolerance > 0:
        y = place(tolerance)
        parts += [_line(_LEFT, y, WIDTH - _RIGHT, y, "cut")]
        parts.append(_label(_LEFT + 4, y - 5, f"cut {tolerance:g}", "tick strong", "start"))
    parts.append(_label((WIDTH + _LEFT) / 2, height - 6, "direction, smallest error first"))
    named = f"{accepted} of {len(spectrum)} directions lie below the cut and were kept"
    return _svg(height, parts, f"Spectrum: {named}.")


def map_svg(
    charts: Sequence[ChartFinding],
    places: Sequence[Sequence[float]],
    picture: Picture | None,
    shape: Sequence[int],
    radii: Sequence[float],
    limit: float,
) -> str:
    """The charts where they lie, over one field, coloured by their error; those that stand apart have a cross.

    Arguments:
        charts: What was found on each.
        places: Where each lies, in pixels; the last two coordinates are drawn.
        picture: The field, levels `(h, w)`.
        shape: Its spatial shape in pixels.
        radii: In- and out-radius in pixels, if known.
        limit: The least error that the scale of colours reaches.
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
        source = data_address(palette_png(picture.levels, field_palette("gray")))
        parts.append(
            f"<image href='{source}' x='{left:.1f}' y='0' width='{width:.1f}' height='{tall:.1f}' "
            "preserveAspectRatio='none' class='ground'/>"
        )
    parts.append(f"<rect x='{left:.1f}' y='0' width='{width:.1f}' height='{tall:.1f}' class='frame'/>")
    errors = [c.error for c in charts if math.isfinite(c.error)]
    top = max([*errors, limit])
    size = max(5.0, min(11.0, 60 / math.sqrt(len(charts))))
    # Those that stand apart come last, on top.
    for number, chart in sorted(enumerate(charts), key=lambda pair: pair[1].outlier):
        row, column = centres[number]
        x, y = left + (column - origin[1]) * scale, (row - origin[0]) * scale
        parts.append(_chart(number, chart, x, y, size, top, [r * scale for r in radii]))
    y = tall + 16
    stops = "".join(f"<stop offset='{k * 10}%' stop-color='{_shade(k / 10)[0]}'/>" for k in range(11))
    key = f"ramp{len(charts)}x{tall:.0f}x{top:.4f}".replace(".", "_")
    parts.append(f"<defs><linearGradient id='{key}'>{stops}</linearGradient></defs>")
    parts.append(f"<rect x='8' y='{y:.1f}' width='170' height='10' rx='2' fill='url(#{key})'/>")
    parts += [_label(8, y + 25, "0 exact", anchor="start"), _label(178, y + 25, short_number(top), anchor="end")]
    parts.append(_label(93, y + 25, "error"))
    parts.append(f"<g class='apart'>{_cross(212, y + 6, 6)}</g>")
    parts.append(_label(225, y + 10, "stands apart", anchor="start"))
    if any(not math.isfinite(c.error) for c in charts):
        parts.append(f"<circle cx='320' cy='{y + 6:.1f}' r='6' class='chart unknown'/>")
        parts.append(_label(331, y + 10, "not judged", anchor="start"))
    apart = [str(k) for k, c in enumerate(charts) if c.outlier]
    named = f"standing apart: {', '.join(apart)}" if apart else "none stands apart"
    return _svg(tall + 46, parts, f"Map of {len(charts)} charts over one field, {named}. The table has the errors.")


def _shade(share: float) -> tuple[str, str]:
    """A colour of the scale, and the ink that can be read on it."""
    r, g, b, _ = matplotlib.colormaps["viridis"](min(max(share, 0.0), 1.0))
    ink = "#000" if 0.3 * r + 0.59 * g + 0.11 * b > 0.5 else "#fff"
    return f"#{round(255 * r):02x}{round(255 * g):02x}{round(255 * b):02x}", ink


def _cross(x: float, y: float, r: float) -> str:
    return _line(x - r, y - r, x + r, y + r, "cross") + _line(x - r, y + r, x + r, y - r, "cross")


def _chart(number: int, chart: ChartFinding, x: float, y: float, size: float, top: float, radii: list[float]) -> str:
    known = math.isfinite(chart.error)
    colour, ink = _shade(chart.error / max(top, 1e-300)) if known else ("none", "currentColor")
    place = ", ".join(f"{v:g}" for v in chart.center)
    words = f"chart {number} at ({place}): error {short_number(chart.error)}" + (
        ", stands apart" if chart.outlier else ""
    )
    parts = [f"<g class='{'apart' if chart.outlier else 'along'}'><title>{text(words)}</title>"]
    if radii:
        r = radii[-1]
        parts.append(
            f"<rect x='{x - r:.1f}' y='{y - r:.1f}' width='{2 * r:.1f}' height='{2 * r:.1f}' class='window' "
            f"stroke='{colour if known else 'gray'}'/>"
        )
    fill = f"fill='{colour}'" if known else ""
    parts.append(
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{size:.1f}' {fill} class='chart{'' if known else ' unknown'}'/>"
    )
    if size >= 7 or chart.outlier:
        parts.append(
            f"<text x='{x:.1f}' y='{y + 3.5:.1f}' text-anchor='middle' class='number' fill='{ink}'>{number}</text>"
        )
    if chart.outlier:
        parts.append(_cross(x + size + 4, y - size - 4, 5))
    return "".join(parts) + "</g>"


def track_svg(track: Track, tolerance: float, marker: bool = True) -> tuple[str, list[float]]:
    """How far the two sides lie apart at every step, beside chance; and where each step stands on the axis."""
    height, top, bottom = 190.0, 22.0, 150.0
    steps = track.name == "elements"
    t = track.t.tolist()
    low, high = (0.5, len(t) + 0.5) if steps else (min(t), max(t))
    places = [_LEFT + (v - low) / max(high - low, 1e-9) * (WIDTH - _LEFT - _RIGHT) for v in t]
    finite = [v for v in (*track.miss.tolist(), *track.chance.tolist()) if math.isfinite(v)]
    most = max([*finite, 1e-9])

    def curve(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(x, bottom - v / most * (bottom - top)) for x, v in zip(places, values, strict=True)]

    parts = []
    half = (places[1] - places[0]) / 2 if len(places) > 1 else 10.0
    for x, share in zip(places, track.covered.tolist(), strict=True):
        if share < 0.3:
            first, last = max(x - half, _LEFT), min(x + half, WIDTH - _RIGHT)
            parts.append(
                f"<rect x='{first:.1f}' y='{top}' width='{last - first:.1f}' height='{bottom - top}' class='beyond'/>"
            )
    parts += [_line(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis"), _line(_LEFT, top, _LEFT, bottom, "axis")]
    parts += [_label(_LEFT - 6, bottom + 4, "0", anchor="end"), _label(_LEFT - 6, top + 4, f"{most:.2g}", anchor="end")]
    miss, chance = track.miss.tolist(), track.chance.tolist()
    if steps:
        parts += [
            f"<rect x='{x - 7:.1f}' y='{y:.1f}' width='14' height='{bottom - y:.1f}' class='bar chance'/>"
            for x, y in curve(chance)
            if math.isfinite(y)
        ]
        parts += [f"<circle cx='{x:.1f}' cy='{y:.1f}' r='4.5' class='dot in'/>" for x, y in curve(miss) if y == y]
        parts += [_label(x, bottom + 15, f"{v:g}") for x, v in zip(places, t, strict=True)]
        parts.append(_label((WIDTH + _LEFT) / 2, height - 8, "element"))
    else:
        parts += [_path(curve(chance), "curve chance"), _path(curve([tolerance * v for v in chance]), "curve limit")]
        parts.append(_path(curve(miss), "curve miss"))
        ticks = [places[0], (places[0] + places[-1]) / 2, places[-1]]
        parts += [_label(x, bottom + 15, f"{v:.3g}") for x, v in zip(ticks, (low, 0, high), strict=True)]
        parts.append(_label((WIDTH + _LEFT) / 2, height - 8, "size of the motion, t"))
    parts += [_line(56, 10, 76, 10, "curve miss"), _label(81, 14, "difference", anchor="start")]
    parts += [_line(152, 10, 172, 10, "curve chance"), _label(177, 14, "chance", anchor="start")]
    if not steps:
        parts += [
            _line(230, 10, 250, 10, "curve limit"),
            _label(255, 14, f"cut, {tolerance:g} of chance", anchor="start"),
        ]
    if marker:
        middle = places[len(places) // 2]
        parts.append(_line(middle, top, middle, bottom, "marker"))
    return _svg(height, parts, "How far the two sides lie apart as the motion grows, beside chance."), places


def curve_svg(name: str, values: Sequence[float]) -> str:
    """One training curve; logarithmic where it spans much."""
    height, top, bottom = 150.0, 24.0, 122.0
    finite = [v for v in values if math.isfinite(v)]
    if not finite:
        return ""
    log = min(finite) > 0 and max(finite) > 20 * min(finite)
    heights = [math.log10(v) if log and v > 0 else v for v in values]
    low, high = min(h for h in heights if math.isfinite(h)), max(h for h in heights if math.isfinite(h))
    gap = (WIDTH - _LEFT - _RIGHT) / max(len(values) - 1, 1)
    points = [
        (_LEFT + gap * k, bottom - (h - low) / max(high - low, 1e-12) * (bottom - top)) for k, h in enumerate(heights)
    ]
    parts = [_label(_LEFT, 14, name, "tick strong", "start"), _path(points, "curve miss")]
    parts += [_line(_LEFT, bottom, WIDTH - _RIGHT, bottom, "axis"), _line(_LEFT, top, _LEFT, bottom, "axis")]
    parts += [_label(_LEFT - 6, top + 6, f"{max(finite):.2g}", anchor="end")]
    parts += [_label(_LEFT - 6, bottom, f"{min(finite):.2g}", anchor="end"), _label(_LEFT, bottom + 16, "1")]
    parts += [_label(WIDTH - _RIGHT, bottom + 16, f"step {len(values)}", anchor="end")]
    return _svg(height, parts, f"Training curve: {name}.")


def bars_svg(amounts: Sequence[tuple[str, float]], unit: str) -> str:
    """Amounts as bars, with their numbers."""
    most = max((v for _, v in amounts), default=1.0) or 1.0
    parts = []
    for k, (name, value) in enumerate(amounts):
        y = 8.0 + 24 * k
        parts.append(_label(108, y + 12, name, anchor="end"))
        parts.append(
            f"<rect x='114' y='{y}' width='{max(210 * value / most, 1):.1f}' height='15' rx='2' class='amount'/>"
        )
        parts.append(_label(120 + 210 * value / most, y + 12, f"{value:.1f} {unit}", anchor="start"))
    return _svg(8 + 24 * len(amounts), parts, "; ".join(f"{n} {v:.1f} {unit}" for n, v in amounts))
