"""The blocks of the page: facts, matrices, verdict, map, predictor, controls, time and settings."""

from __future__ import annotations

__all__ = [
    "again_block",
    "comparison_block",
    "controls_block",
    "facts",
    "group_block",
    "map_block",
    "mark",
    "predictor_block",
    "table",
    "time_block",
    "verdict_block",
]

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.frames import Picture
from atlasd.discovery.result import ChartFinding, Direction, Discovery
from atlasd.report.judged import COLUMNS, MARKS, Row, chosen_tolerance, judged_rows
from atlasd.report.svg import bars_svg, curve_svg, map_svg, spectrum_svg, text
from atlasd.report.words import (
    MISSING,
    NULL_LEVEL,
    axis_names,
    chart_reason,
    charts_that_agree,
    describe_generator,
    share,
    strength,
    track_strengths,
)

_MOST_MATRICES = 32
_MOST_ROWS = 40
_GATES = {
    "skill": ("Skill of the predictor on held-out data", "at least 0.3"),
    "testable": ("Share of the outputs that a transformation could change", "above 0.000001"),
    "saturated": ("Class probabilities all but constant", "no"),
    "untrained": ("Residual of the same generators for an untrained predictor", "above the tolerance"),
}
"""What earlier versions measured before a claim; the sensitivity of each direction replaces it."""


def mark(decision: str) -> str:
    """A decision as a sign, a word and a border of its own."""
    return (
        f"<span class='mark {decision.split()[0]}'><span aria-hidden='true'>{MARKS[decision]}</span> {decision}</span>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table of plain texts; the first cell of each row is its heading."""
    lines = []
    for first, *rest in rows:
        cells = "".join(f"<td>{text(cell)}</td>" for cell in rest)
        lines.append(f"<tr><th scope='row'>{text(first)}</th>{cells}</tr>")
    top = "".join(f"<th scope='col'>{text(name)}</th>" for name in head)
    named = f"<caption>{text(caption)}</caption>" if caption else ""
    return (
        f"<div class='scroll'><table>{named}<thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def facts(discovery: Discovery) -> str:
    """The numbers that people ask for first."""
    group, judged = discovery.group, (*discovery.verdict.directions, *discovery.verdict.cosets[1:])
    rows = []
    if discovery.verdict.symmetric:
        rows += [("continuous directions", str(group.dimension)), ("components", str(group.order))]
        uppers = [d.upper for d in judged if math.isfinite(d.upper)]
        rows += [("breaking at most", strength(max(uppers)))] if uppers else []
    charts = discovery.charts
    if len(charts) > 1 and any(math.isfinite(c.error) for c in charts):
        rows.append(("charts that agree", f"{charts_that_agree(charts)} of {sum(not c.dropped for c in charts)}"))
    p = discovery.predictor
    rows += [("predictor skill", share(p.skill) if p.samples else "given")]
    rows += [("seconds", f"{sum(discovery.seconds.values()):.0f}")]
    inside = "".join(f"<li><b>{text(value)}</b><span>{text(name)}</span></li>" for name, value in rows)
    return f"<ul class='facts'>{inside}</ul>"


def group_block(discovery: Discovery) -> str:
    """Generators and cosets as coloured matrices; nothing where no group was found."""
    if not discovery.verdict.symmetric:
        return ""
    axes = axis_names(discovery)
    basis, cosets = discovery.algebra.basis, discovery.cosets
    parts = []
    if len(basis):
        names = [f"generator {k + 1}: {describe_generator(a, axes)}" for k, a in enumerate(basis)]
        parts.append(f"<div><h3>Generators</h3>{_matrices(basis, names, discovery.verdict.directions, axes)}</div>")
    identity = torch.eye(cosets.shape[-1], dtype=cosets.dtype)
    names = [f"coset {k + 1}" + (": the identity" if torch.equal(g, identity) else "") for k, g in enumerate(cosets)]
    heading = "One element of each component" if len(basis) else "Elements"
    parts.append(f"<div><h3>{heading}</h3>{_matrices(cosets, names, discovery.verdict.cosets, axes)}</div>")
    note = (
        "<p class='faint'>Row i, column j: how much axis j feeds into axis i. Blue is negative, red is positive, "
        "and all matrices share one scale.</p>"
    )
    kind = "pair" if len(basis) * len(axes) <= 4 and len(cosets) * len(axes) <= 8 else "stack"
    return f"<div class='{kind}'>{''.join(parts)}</div>{note}"


def _matrices(matrices: Tensor, names: Sequence[str], judged: Sequence[Direction], axes: Sequence[str]) -> str:
    shown = matrices.detach().cpu().double()[:_MOST_MATRICES]
    largest = max(float(shown.abs().max()) if len(shown) else 0.0, 1e-12)
    fits = len(judged) == len(matrices)
    errors = [
        f"breaking {strength(judged[k].strength)}" if fits and "identity" not in name else ""
        for k, name in enumerate(names)
    ]
    parts = []
    for matrix, name, error in zip(shown, names, errors, strict=False):
        head = "".join(f"<th scope='col'>{text(axis)}</th>" for axis in axes)
        rows = "".join(
            f"<tr><th scope='row'>{text(axis)}</th>" + "".join(_cell(v, largest) for v in row) + "</tr>"
            for axis, row in zip(axes, matrix.tolist(), strict=True)
        )
        parts.append(
            f"<table class='matrix'><caption>{text(name)}<br>{text(error)}</caption>"
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table>"
        )
    more = f"<p class='faint'>The first {len(shown)} of {len(matrices)}.</p>" if len(matrices) > len(shown) else ""
    return f"<div class='matrices'>{''.join(parts)}</div>{more}"


def _cell(value: float, largest: float) -> str:
    share = min(abs(value) / largest, 1.0)
    colour = "38,110,190" if value < 0 else "205,60,40"
    heavy = " class='heavy'" if share > 0.6 else ""
    # Adding zero turns -0.00 into 0.00.
    return f"<td{heavy} style='background:rgba({colour},{0.92 * share:.2f})'>{round(value, 2) + 0.0:.2f}</td>"


def verdict_block(discovery: Discovery) -> str:
    """One row for each transformation that was judged, and the spectrum."""
    parts = [f"<p>{text(discovery.verdict.reason)}</p>"]
    tolerance = chosen_tolerance(discovery)
    if judged := judged_rows(discovery):
        body = "".join(
            f"<tr class='part'><th scope='colgroup' colspan='{len(COLUMNS)}'>{text(heading)}</th></tr>"
            + "".join(_verdict_row(row) for row in rows)
            for heading, rows in judged
        )
        top = "".join(
            f"<th scope='col' class='{'number' if 2 <= k <= 4 else 'word'}'>{text(name or 'what')}</th>"
            for k, name in enumerate(COLUMNS)
        )
        caption = (
            f"{NULL_LEVEL} 0 % is an exact symmetry, and the tolerance is {share(tolerance or math.nan)}. "
            "Sensitivity is the share of a planted breaking that would have been noticed. "
            "Coverage is the share of the transformed samples that lie where data are."
        )
        parts.append(
            f"<div class='scroll'><table class='verdict'><caption>{text(caption)}</caption>"
            f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
        )
    if discovery.spectrum:
        numbers = ", ".join(strength(math.sqrt(v)) if v >= 0 else MISSING for v in discovery.spectrum[:64])
        parts.append(
            f"<h3>Spectrum</h3><figure>{spectrum_svg(discovery.spectrum, tolerance)}<figcaption>Strength of the "
            "breaking at first order, for every direction. Round and filled: below the tolerance; square and open: "
            "above it. First order only proposes; the table above decides at finite size.</figcaption></figure>"
            f"<details><summary>The numbers</summary><p>{numbers}</p></details>"
        )
    return "".join(parts)


def _verdict_row(row: Row) -> str:
    numbers = "".join(
        f"<td class='number' data-name='{text(name)}'>{text(value)}</td>"
        for name, value in (
            ("breaking", row.breaking),
            ("sensitivity", row.sensitivity),
            ("coverage", row.coverage),
        )
    )
    return (
        f"<tr><th scope='row'>{text(row.name)}</th><td>{mark(row.decision)}</td>{numbers}"
        f"<td class='wide'>{text(row.reason)}</td></tr>"
    )


def map_block(discovery: Discovery, fields: Mapping[str, Tensor]) -> str:
    """Where the charts lie and how well each agrees."""
    charts, frames = discovery.charts, discovery.frames
    if not charts or any(len(c.center) not in (2, 3) for c in charts):
        return ""
    picture = frames.field if frames is not None else None
    shape: Sequence[int] = frames.shape if frames is not None else ()
    radii: Sequence[float] = frames.radii if frames is not None else ()
    if picture is None and "input" in fields and fields["input"].ndim == 3:
        picture, shape = Picture.of(fields["input"][0].cpu()), tuple(fields["input"].shape[1:])
    if frames is None and "radii" in fields:
        radii = fields["radii"].tolist()
    places = frames.places if frames is not None and len(frames.places) == len(charts) else [c.center for c in charts]
    if "rows_up" in fields and float(fields["rows_up"]) > 0 and len(shape) == 2:  # north is up
        places = [(shape[0] - 1 - p[0], p[1]) for p in places]
        picture = None if picture is None else replace(picture, levels=picture.levels.flip(0))
    drawing = map_svg(charts, places, picture, shape, radii, chosen_tolerance(discovery) or 0.0)
    flat = "" if len(charts[0].center) == 2 else " The last two of the three axes are shown."
    rows = sorted(enumerate(charts), key=lambda pair: (not pair[1].outlier, -_or_zero(pair[1].error)))
    lines = "".join(
        f"<tr><th scope='row'>{k}</th><td>{text(', '.join(f'{v:g}' for v in c.center))}</td>"
        f"<td class='number'>{strength(c.error)}</td><td class='number'>{share(c.skill)}</td>"
        f"<td class='why'>{text(_standing(c))}</td></tr>"
        for k, c in rows[:_MOST_ROWS]
    )
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("chart", "centre", "breaking", "skill", ""))
    numbers = (
        f"<div class='scroll'><table class='charts'><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )
    if len(charts) > _MOST_ROWS:
        numbers += f"<p class='faint'>The {_MOST_ROWS} worst of {len(charts)}.</p>"
    if len(charts) > 8:
        numbers = f"<details open><summary>All charts, worst first</summary>{numbers}</details>"
    return (
        f"<div class='pair'><figure>{drawing}<figcaption>Every chart over one input field, coloured by its breaking "
        f"under the group that all share{'; the square is the window that is compared' if radii else ''}.{flat}"
        "</figcaption></figure>"
        f"<div>{numbers}</div></div>"
    )


def _standing(chart: ChartFinding) -> str:
    """Whether a chart agrees, and why not."""
    reason = chart_reason(chart)
    if chart.dropped:
        return f"✕ {reason}"
    word = "✕ outlier chart" if chart.outlier else "agrees" if math.isfinite(chart.error) else "not judged"
    return f"{word}: {reason}" if reason else word


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def predictor_block(discovery: Discovery) -> str:
    """The predictor in place of the unknown map."""
    p = discovery.predictor
    rows = [("kind", p.kind), ("skill against the best trivial map", share(p.skill))]
    rows += [("fitted to", f"{p.samples} samples"), ("seconds", f"{p.seconds:.1f}")]
    curves = "".join(curve_svg(name, values) for name, values in sorted(discovery.curves.items()))
    drawn = f"<details><summary>Training curves</summary><div class='pair'>{curves}</div></details>" if curves else ""
    return table(("predictor", "value"), rows) + drawn


def controls_block(discovery: Discovery) -> str:
    """A transformation outside the group as negative control; for earlier runs what had to hold before a claim."""
    rows = []
    for key, value in discovery.verdict.gates.items():
        name, needed = _GATES.get(key, (str(key), ""))
        rows.append((name, plain(value), needed))
    frames = discovery.frames
    for track in frames.tracks if frames is not None else ():
        sure = [v for v in track_strengths(track) if math.isfinite(v)]
        if track.name.startswith("contrast") and sure:
            name = track.name.partition(" ")[2]
            what = f"Negative control: largest breaking under a {name}"
            rows.append((what, strength(max(sure)), "above the tolerance" if discovery.verdict.symmetric else ""))
    return table(("control", "measured", "needed"), rows) if rows else ""


def source_block(content: Mapping[str, Any]) -> str:
    """Where the data came from, how they were understood, and what was left out."""
    data = (content.get("metrics") or {}).get("data")
    rows = [(str(k), plain(v)) for k, v in data.items()] if isinstance(data, Mapping) else []
    return table(("what", "as it was used"), rows) if rows else ""


def comparison_block(content: Mapping[str, Any]) -> str:
    """Distances from the truth where it is known, and rows of a comparison."""
    metrics, paper = dict(content.get("metrics") or {}), dict(content.get("paper") or {})
    rows = metrics.pop("rows", None) or []
    metrics.pop("data", None)  # has a section of its own
    parts = []
    keys = [*metrics, *(k for k in paper if k not in metrics)]
    if keys:
        head = ("figure", "here", "paper") if paper else ("figure", "here")
        cells = [(str(k), plain(metrics.get(k)), plain(paper.get(k)))[: len(head)] for k in keys]
        parts.append(table(head, cells))
    if rows and all(isinstance(row, Mapping) for row in rows):
        columns = list(dict.fromkeys(str(key) for row in rows for key in row))
        parts.append(table(columns, [[plain(row[k]) if k in row else "" for k in columns] for row in rows]))
    return "".join(parts)


def time_block(content: Mapping[str, Any]) -> str:
    """Seconds of every stage."""
    stages = [(str(k), float(v)) for k, v in (content.get("seconds") or {}).items() if v is not None]
    return f"<figure>{bars_svg(stages, 's')}</figure>" if stages else ""


def again_block(content: Mapping[str, Any]) -> str:
    """The command, the seed, the versions and every setting."""
    command = content.get("command")
    rows = [("seed", plain(content.get("seed"))), ("atlasd", plain(content.get("version")))]
    rows += [("python", platform.python_version())]
    for package in ("torch", "numpy", "scipy"):
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            continue
    rows += [("machine", f"{platform.system()} {platform.machine()}")]
    settings = table(("setting", "value"), list(_flat(content.get("config") or {})))
    shown = f"<pre tabindex='0' aria-label='Command'>{text(command)}</pre>" if command else ""
    return f"{shown}{table(('what', 'value'), rows)}<details><summary>Configuration</summary>{settings}</details>"


def _flat(config: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", plain(value)


def plain(value: Any) -> str:
    """Any value of a result, in a few characters."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else MISSING
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(plain(v) for v in value) or "none"
    return str(value)
