"""The sections of the page: facts, matrices, verdict, map, predictor, controls, time and settings."""

from __future__ import annotations

import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from atlasd.discovery.result import ChartFinding, Direction, Discovery
from atlasd.report.figures import draw_curves, draw_fields, draw_located_charts, draw_spectrum, inline_svg
from atlasd.report.sentences import (
    COLUMNS,
    MARKS,
    MISSING,
    NULL_LEVEL,
    answer_sentences,
    axis_names,
    chart_reason,
    charts_that_agree,
    chosen_tolerance,
    describe_generator,
    headline,
    judged_rows,
    share,
    strength,
    track_strengths,
)
from atlasd.report.templates import part
from atlasd.report.tolerance import tolerance_block

_MOST_MATRICES = 32
_MOST_ROWS = 40
_GATES = {
    "skill": ("Skill of the predictor on held-out data", "at least 0.3"),
    "testable": ("Share of the outputs that a transformation could change", "above 0.000001"),
    "saturated": ("Class probabilities all but constant", "no"),
    "untrained": ("Residual of the same generators for an untrained predictor", "above the tolerance"),
}
"""What earlier versions measured before a claim; the sensitivity of each direction replaces it."""


def article(
    discovery: Discovery, content: Mapping[str, Any], fields: Mapping[str, Tensor], title: str
) -> dict[str, Any]:
    """What the template of the page shows of one discovery, without its slider; sections without content are empty.

    Arguments:
        content: The content of its `result.json`.
    """
    answer, decision = headline(discovery)
    lead, *more = answer_sentences(discovery)
    return {
        "title": title,
        "answer": answer,
        "decision": decision,
        "sign": MARKS[decision],
        "lead": lead,
        "more": " ".join(more),
        "facts": _facts(discovery),
        "group": _group(discovery),
        "map": _map(discovery, fields),
        "verdict": _verdict(discovery),
        "tolerances": tolerance_block(discovery),
        "predictor": _predictor(discovery),
        "controls": _controls(discovery),
        "source": _source(content),
        "own_data": content.get("experiment") == "discover",
        "comparison": _comparison(content),
        "sample": _sample(fields),
        "time": _time(content),
        "again": _again(content),
    }


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """A table of plain texts; the first cell of each row is its heading."""
    return part("parts.html", "table", head, list(rows))


def _facts(discovery: Discovery) -> list[tuple[str, str]]:
    """The numbers that people ask for first."""
    group, judged = discovery.group, (*discovery.verdict.directions, *discovery.verdict.cosets[1:])
    rows = []
    if discovery.verdict.symmetric:
        rows += [("continuous directions", str(group.dimension)), ("components", str(group.components))]
        uppers = [d.upper for d in judged if math.isfinite(d.upper)]
        rows += [("breaking at most", strength(max(uppers)))] if uppers else []
    charts = discovery.charts
    if len(charts) > 1 and any(math.isfinite(c.error) for c in charts):
        rows.append(("charts that agree", f"{charts_that_agree(charts)} of {sum(not c.dropped for c in charts)}"))
    p = discovery.predictor
    rows += [("predictor skill", share(p.skill) if p.samples else "given")]
    return [*rows, ("seconds", f"{sum(discovery.seconds.values()):.0f}")]


def _group(discovery: Discovery) -> str:
    """Generators and cosets as coloured matrices; nothing where no group was found."""
    if not discovery.verdict.symmetric:
        return ""
    axes = axis_names(discovery)
    basis, cosets, verdict = discovery.algebra.basis, discovery.cosets, discovery.verdict
    groups = []
    if len(basis):
        names = [f"generator {k + 1}: {describe_generator(a, axes)}" for k, a in enumerate(basis)]
        groups.append(("Generators", _matrices(basis, names, verdict.directions), len(basis)))
    identity = torch.eye(cosets.shape[-1], dtype=cosets.dtype)
    names = [f"coset {k + 1}" + (": the identity" if torch.equal(g, identity) else "") for k, g in enumerate(cosets)]
    heading = "Coset representatives" if len(basis) else "Elements"
    groups.append((heading, _matrices(cosets, names, verdict.cosets), len(cosets)))
    kind = "pair" if len(basis) * len(axes) <= 4 and len(cosets) * len(axes) <= 8 else "stack"
    return part("parts.html", "matrices", groups, axes, kind)


def _matrices(matrices: Tensor, names: Sequence[str], judged: Sequence[Direction]) -> list[tuple[str, str, Any]]:
    """Name, strength and cells of every matrix that is shown."""
    shown = matrices.detach().cpu().double()[:_MOST_MATRICES]
    largest = max(float(shown.abs().max()) if len(shown) else 0.0, 1e-12)
    fits = len(judged) == len(matrices)
    return [
        (
            name,
            f"breaking {strength(judged[k].strength)}" if fits and "identity" not in name else "",
            [[_cell(v, largest) for v in row] for row in shown[k].tolist()],
        )
        for k, name in enumerate(names[: len(shown)])
    ]


def _cell(value: float, largest: float) -> dict[str, Any]:
    share = min(abs(value) / largest, 1.0)
    colour = "38,110,190" if value < 0 else "205,60,40"
    return {"text": f"{value:z.2f}", "colour": f"{colour},{0.92 * share:.2f}", "heavy": share > 0.6}


def _verdict(discovery: Discovery) -> str:
    """One row for each transformation that was judged, and the spectrum."""
    tolerance = chosen_tolerance(discovery)
    caption = (
        f"{NULL_LEVEL} 0 % is an exact symmetry, and the tolerance is {share(tolerance or math.nan)}. "
        "Sensitivity is the share of a planted breaking that would have been noticed. "
        "Coverage is the share of the transformed samples that lie where data are."
    )
    columns = ["what", *COLUMNS[1:]]
    judged = part("parts.html", "verdict", discovery.verdict.reason, columns, judged_rows(discovery), caption)
    if not discovery.spectrum:
        return judged
    numbers = ", ".join(strength(math.sqrt(v)) if v >= 0 else MISSING for v in discovery.spectrum[:64])
    count = sum(math.sqrt(v) <= (tolerance or 0.0) for v in discovery.spectrum if v >= 0)
    words = f"Spectrum: {count} of {len(discovery.spectrum)} directions lie below the tolerance at first order."
    drawing = inline_svg(draw_spectrum(discovery.spectrum, tolerance), words)
    return judged + part("parts.html", "spectrum", drawing, numbers)


def _map(discovery: Discovery, fields: Mapping[str, Tensor]) -> str:
    """Where the charts lie and how well each agrees."""
    figure, charts = draw_located_charts(discovery, fields), discovery.charts
    if figure is None:
        return ""
    apart = ", ".join(str(k) for k, c in enumerate(charts) if c.outlier)
    named = f"outlier charts: {apart}" if apart else "no outlier chart"
    words = f"Map of {len(charts)} charts over one field, {named}. The table has the numbers."
    worst = sorted(enumerate(charts), key=lambda pair: (not pair[1].outlier, -_or_zero(pair[1].error)))
    rows = [
        (str(k), ", ".join(f"{v:g}" for v in c.center), strength(c.error), share(c.skill), _standing(c))
        for k, c in worst[:_MOST_ROWS]
    ]
    return part("parts.html", "map", inline_svg(figure, words), len(charts[0].center) == 3, rows, len(charts))


def _standing(chart: ChartFinding) -> str:
    """Whether a chart agrees with the others, and why not."""
    if chart.dropped:
        return f"✕ {chart_reason(chart)}"
    found = "✕ outlier chart" if chart.outlier else "agrees" if math.isfinite(chart.error) else "not judged"
    return f"{found}: {chart_reason(chart)}" if chart_reason(chart) else found


def _or_zero(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _predictor(discovery: Discovery) -> str:
    """The predictor in place of the unknown map."""
    p = discovery.predictor
    rows = [("kind", p.kind), ("skill against the best trivial map", share(p.skill))]
    rows += [("fitted to", f"{p.samples} samples"), ("seconds", f"{p.seconds:.1f}")]
    curves = Markup("").join(
        inline_svg(draw_curves({name: values}), f"Training curve: {name}.")
        for name, values in sorted(discovery.curves.items())
    )
    return _table(("predictor", "value"), rows) + (part("parts.html", "curves", curves) if curves else "")


def _controls(discovery: Discovery) -> str:
    """A transformation outside the group as negative control; for earlier runs what had to hold before a claim."""
    rows = []
    for key, value in discovery.verdict.gates.items():
        name, needed = _GATES.get(key, (str(key), ""))
        rows.append((name, _plain(value), needed))
    frames = discovery.frames
    for track in frames.tracks if frames is not None else ():
        sure = [v for v in track_strengths(track) if math.isfinite(v)]
        if track.name.startswith("contrast") and sure:
            name = track.name.partition(" ")[2]
            what = f"Negative control: largest breaking under a {name}"
            rows.append((what, strength(max(sure)), "above the tolerance" if discovery.verdict.symmetric else ""))
    return _table(("control", "measured", "needed"), rows) if rows else ""


def _source(content: Mapping[str, Any]) -> str:
    """Where the data came from, how they were understood, and what was left out."""
    data = (content.get("metrics") or {}).get("data")
    rows = [(str(k), _plain(v)) for k, v in data.items()] if isinstance(data, Mapping) else []
    return _table(("what", "as it was used"), rows) if rows else ""


def _comparison(content: Mapping[str, Any]) -> str:
    """Distances from the truth where it is known, and rows of a comparison."""
    metrics, paper = dict(content.get("metrics") or {}), dict(content.get("paper") or {})
    rows = metrics.pop("rows", None) or []
    metrics.pop("data", None)  # has a section of its own
    parts = []
    keys = [*metrics, *(k for k in paper if k not in metrics)]
    if keys:
        head = ("figure", "here", "paper") if paper else ("figure", "here")
        cells = [(str(k), _plain(metrics.get(k)), _plain(paper.get(k)))[: len(head)] for k in keys]
        parts.append(_table(head, cells))
    if rows and all(isinstance(row, Mapping) for row in rows):
        columns = list(dict.fromkeys(str(key) for row in rows for key in row))
        parts.append(_table(columns, [[_plain(row[k]) if k in row else "" for k in columns] for row in rows]))
    return Markup("").join(parts)


def _sample(fields: Mapping[str, Tensor]) -> str:
    """One sample of the data."""
    figure = draw_fields(fields)
    return "" if figure is None else Markup("<figure>{}</figure>").format(inline_svg(figure, "Fields of one sample."))


def _time(content: Mapping[str, Any]) -> str:
    """Seconds of every stage."""
    stages = [(str(k), float(v)) for k, v in (content.get("seconds") or {}).items() if v is not None]
    return _table(("stage", "seconds"), [(name, f"{value:.1f}") for name, value in stages]) if stages else ""


def _again(content: Mapping[str, Any]) -> str:
    """The command, the seed, the versions and every setting."""
    rows = [("seed", _plain(content.get("seed"))), ("atlasd", _plain(content.get("version")))]
    rows += [("python", platform.python_version())]
    for package in ("torch", "numpy", "scipy"):
        try:
            rows.append((package, version(package)))
        except PackageNotFoundError:
            continue
    rows += [("machine", f"{platform.system()} {platform.machine()}")]
    settings = list(_flat(content.get("config") or {}))
    return part("parts.html", "again", content.get("command"), rows, settings)


def _flat(config: Mapping[str, Any], before: str = "") -> Iterable[tuple[str, str]]:
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", _plain(value)


def _plain(value: Any) -> str:
    """Any value of a result, in a few characters."""
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else MISSING
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_plain(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_plain(v) for v in value) or "none"
    return str(value)
