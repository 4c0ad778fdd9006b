"""The slider: a transformation in precomputed frames, both sides of the map, and their difference."""

from __future__ import annotations

__all__ = ["SCRIPT", "film_html", "script_hash"]

import base64
import hashlib
import json
import math
from importlib import resources
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.frames import Track
from atlasd.discovery.result import Discovery
from atlasd.report.judged import chosen_tolerance
from atlasd.report.png import data_address, difference_palette, field_palette, palette_png, strip
from atlasd.report.svg import text, track_svg
from atlasd.report.words import ENOUGH, axis_names, describe_generator, share, strength, track_strengths

SCRIPT = resources.files("atlasd.report").joinpath("page.js").read_text(encoding="utf-8")
"""Everything is computed beforehand: it only looks up positions and words."""

_PANELS = {
    "input": ("Transformed input", "g·x"),
    "left": ("Map of the transformed input", "Φ(g·x)"),
    "right": ("Transformed output of the map", "g·Φ(x)"),
    "difference": ("Difference of the two", "Φ(g·x) − g·Φ(x)"),
}
_BOX = 200


def script_hash() -> str:
    """By which the page allows its own script, and no other."""
    return f"sha256-{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}"


def film_html(discovery: Discovery, key: str, most: int) -> str:
    """The slider with its choice of transformations; empty where nothing was filmed.

    Arguments:
        discovery: With its frames.
        key: Tells the sliders of one page apart.
        most: The most transformations that are shown.
    """
    frames = discovery.frames
    if frames is None or not frames.tracks or most < 1:
        return ""
    tracks = [t for t in frames.tracks if not t.name.startswith("contrast")][: max(most - 1, 1)]
    tracks += [t for t in frames.tracks if t.name.startswith("contrast")][: max(most - len(tracks), 0)]
    tolerance = chosen_tolerance(discovery)
    axes = axis_names(discovery)
    names = [_track_name(track, discovery, axes) for track in tracks]
    choices = "".join(
        f"<label><input type='radio' name='{key}' value='{k}'{' checked' if k == 0 else ''}> {text(name)}</label>"
        for k, name in enumerate(names)
    )
    body = "".join(
        _track_html(track, name, f"{key}-{k}", tolerance, axes)
        for k, (track, name) in enumerate(zip(tracks, names, strict=True))
    )
    where = f" Chart {frames.chart} is shown." if len(discovery.charts) > 1 else ""
    sign = "the last picture stays empty" if tracks[0].pictures else "the points stay on the line"
    return (
        f"<p>If the map commutes with g, it makes no difference whether one transforms first or maps first: {sign}."
        f"{where}</p><div class='film'><fieldset class='choices'><legend>Transformation g</legend>{choices}</fieldset>"
        f"{body}</div>"
        "<noscript><p>The slider needs JavaScript; the pictures show its starting position.</p></noscript>"
    )


def _track_name(track: Track, discovery: Discovery, axes: list[str]) -> str:
    kind, _, rest = track.name.partition(" ")
    if kind == "generator" and rest.isdigit() and int(rest) <= len(discovery.algebra.basis):
        return f"generator {rest}: {describe_generator(discovery.algebra.basis[int(rest) - 1], axes)}"
    if kind == "elements":
        return f"the {len(track.t)} cosets, one by one"
    if kind == "contrast":
        return f"for contrast: {rest}" + (", outside the group" if discovery.verdict.symmetric else "")
    return track.name


def _track_html(track: Track, name: str, key: str, tolerance: float | None, axes: list[str]) -> str:
    last = len(track.t) - 1
    start = _start(track)
    strengths = track_strengths(track)
    words = [_words(track, i, strengths[i]) for i in range(last + 1)]
    curve, places = track_svg(track, strengths, tolerance)
    dots: dict[str, Any] = {}
    panels = _pictures(track, start) if track.pictures else _points(track, start, dots, axes)
    data = {
        "words": words,
        "places": [round(p, 1) for p in places],
        "dots": dots,
        "matrices": [[_entry(v) for v in g.flatten().tolist()] for g in track.matrices],
    }
    rows = "".join(
        "<tr>" + "".join(f"<td>{_entry(v)}</td>" for v in row) + "</tr>" for row in track.matrices[start].tolist()
    )
    what = "element" if track.name == "elements" else "size t"
    attribute = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return (
        f"<div class='track' role='group' aria-label='{text(name)}' data-track='{text(attribute)}'>"
        f"<div class='drive'><label for='{key}'>{what}</label>"
        f"<input type='range' id='{key}' min='0' max='{last}' step='1' value='{start}' "
        f"aria-valuetext='{text(words[start])}'><button type='button'>Play</button></div>"
        f"<output for='{key}' aria-live='off'>{text(words[start])}</output>"
        f"<div class='panels {'four' if track.pictures else 'two'}'>{panels}</div>"
        f"<div class='pair'><figure>{curve}<figcaption>Strength of the breaking on held-out data. Coverage is the "
        f"share of the transformed samples that lie where data are; below {share(ENOUGH)} nothing is shown."
        "</figcaption></figure>"
        f"<div class='now'><p>The matrix g</p><div class='scroll'><table><tbody>{rows}</tbody></table></div></div>"
        "</div></div>"
    )


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


def _pictures(track: Track, start: int) -> str:
    palettes = {"input": field_palette("viridis"), "difference": difference_palette()}
    parts = []
    for name, (title, formula) in _PANELS.items():
        picture = track.pictures[name]
        count, height, width = picture.levels.shape
        source = data_address(palette_png(strip(picture.levels), palettes.get(name, field_palette("magma"))))
        parts.append(
            f"<figure class='panel {name}'><svg viewBox='0 0 {width} {height}' role='img' "
            f"aria-label='{text(f'{title}, {formula}')}'><image href='{source}' data-width='{width}' "
            f"x='{-start * width}' y='0' width='{count * width}' height='{height}' preserveAspectRatio='none'/></svg>"
            f"<figcaption>{text(title)}<br><span class='formula'>{text(formula)}</span><br>"
            f"<span class='faint'>{picture.low:.3g} to {picture.high:.3g}</span></figcaption></figure>"
        )
    return "".join(parts)


def _points(track: Track, start: int, dots: dict[str, Any], axes: list[str]) -> str:
    i, j = track.axes
    moved, left, right = (track.points[k] for k in ("input", "left", "right"))
    reach = _reach(moved)
    low, high = _span(right)
    outputs = torch.stack([right, left], dim=-1)
    dots["input"] = _places(moved, -reach, reach)
    dots["output"] = _places(outputs, low, high)
    diagonal = f"<line x1='0' y1='{_BOX}' x2='{_BOX}' y2='0' class='diagonal'/>"
    cross = (
        f"<line x1='0' y1='{_BOX / 2}' x2='{_BOX}' y2='{_BOX / 2}' class='grid'/>"
        f"<line x1='{_BOX / 2}' y1='0' x2='{_BOX / 2}' y2='{_BOX}' class='grid'/>"
    )
    return _cloud(
        "input",
        dots["input"][start],
        cross,
        "Transformed inputs, g·x",
        f"axis {axes[i]} across, axis {axes[j]} up, ±{reach:.3g}",
    ) + _cloud(
        "output",
        dots["output"][start],
        diagonal,
        "Both sides, sample by sample",
        f"g·Φ(x) across, Φ(g·x) up, {low:.3g} to {high:.3g}: on the line they agree",
    )


def _cloud(name: str, places: list[list[float]], ground: str, title: str, note: str) -> str:
    circles = "".join(f"<circle cx='{x}' cy='{y}' r='3.2'/>" for x, y in places)
    return (
        f"<figure class='panel'><svg viewBox='0 0 {_BOX} {_BOX}' role='img' aria-label='{text(title)}' class='cloud'>"
        f"<rect width='{_BOX}' height='{_BOX}' class='frame'/>{ground}<g data-dots='{name}' class='dots'>{circles}</g>"
        f"</svg><figcaption>{text(title)}<br><span class='faint'>{text(note)}</span></figcaption></figure>"
    )


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
