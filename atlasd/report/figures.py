"""Figures of a discovery, drawn without a display and without global state; the page shows the same ones."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from atlasd.discovery.result import ChartFinding, Direction, Discovery
from atlasd.geometry.sphere import SphereChart
from atlasd.report.sentences import chosen_tolerance, headline, strength
from atlasd.runtime.files import write_atomically
from atlasd.runtime.text import escaped

NAMES = ("generators", "cosets", "structure", "spectrum", "charts", "fields", "spheres", "actions", "curves")
_MOST_MATRICES = 32
BLUE, RED, AMBER, GREY = "#1d5fa6", "#a8261d", "#7a5200", "#5a6169"
_PAGE = {BLUE: "--accent", RED: "--bad", AMBER: "--doubt", GREY: "--faint", "#000000": "--faint"}
"""Colours that the style sheet of the page has in two versions, light and dark."""
WIDTH = 5.6
"""Inches; at this width labels can be read on a phone."""
_ARROWS = 14
"""Arrows along the longer side of a field of vectors."""
_MOST_PIXELS = 256
"""Pixels along the longer side of a field that are drawn."""


def plots(rows: int, columns: int, size: tuple[float, float]) -> list[Axes]:
    """Plots in rows and columns, on a figure with fixed margins: to find margins takes as long as to draw."""
    width, height = size
    figure = Figure(figsize=size)
    margins = {"left": 0.75 / width, "right": 1 - 0.15 / width, "bottom": 0.5 / height, "top": 1 - 0.35 / height}
    figure.subplots_adjust(**margins, wspace=0.3, hspace=0.35)
    return [figure.add_subplot(rows, columns, k + 1) for k in range(rows * columns)]


def _figure(axes: Axes) -> Figure:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    return figure


def draw_matrices(matrices: Tensor, titles: Sequence[str], heading: str = "", columns: int = 6) -> Figure:
    """Matrices as heat maps, blue below zero and red above, with the numbers in the cells.

    Arguments:
        matrices: With shape `(m, n, n)`; only the first 32 are drawn.
        columns: Most matrices in one row.
    """
    shown = matrices.detach().cpu().double()[:_MOST_MATRICES]
    count, n = len(shown), matrices.shape[-1]
    columns = max(1, min(columns, count))
    rows = math.ceil(max(count, 1) / columns)
    cell = 1.9 if n <= 3 else 0.62 * n
    figure = Figure(figsize=(columns * cell + 0.4, rows * (cell + 0.35) + 0.45), layout="constrained")
    if len(matrices) > count:
        heading = f"{heading} (first {count} of {len(matrices)})"
    if heading:
        figure.suptitle(heading, fontsize=11)
    # One scale for all, so that small generators look small.
    largest = max(float(shown.abs().max()) if count else 0.0, 1e-12)
    for index, matrix in enumerate(shown):
        axes = figure.add_subplot(rows, columns, index + 1, xticks=[], yticks=[])
        axes.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-largest, vmax=largest)
        axes.set_title(titles[index], fontsize=9)
        for (i, j), value in np.ndenumerate(matrix.numpy()):
            ink = "white" if abs(value) > 0.65 * largest else "black"
            axes.text(j, i, f"{value:z.2f}", ha="center", va="center", color=ink, fontsize=9)
    return figure


def draw_spectrum(spectrum: Sequence[float], tolerance: float | None = None) -> Figure:
    """First-order strengths of all directions on a logarithmic scale, with the null level and the tolerance.

    Arguments:
        spectrum: Squares of strengths, ascending.
    """
    (axes,) = plots(1, 1, (WIDTH, 3.2))
    strengths = [100 * math.sqrt(v) if v >= 0 else math.nan for v in spectrum]
    finite = [v for v in strengths if math.isfinite(v)]
    # An exact symmetry of a function has no logarithm: it is drawn on the floor.
    floor = min([max(v, 1e-4) for v in finite if v > 0] + [1.0]) / 3
    heights = np.array([max(v, floor) if math.isfinite(v) else math.nan for v in strengths])
    limit = 100 * tolerance if tolerance is not None and math.isfinite(tolerance) and tolerance > 0 else None
    places, inside = np.arange(1, len(spectrum) + 1), heights <= (limit or 0.0)
    axes.vlines(places, floor, heights, colors=[BLUE if below else GREY for below in inside], linewidth=1)
    axes.scatter(places[inside], heights[inside], c=BLUE, s=36, zorder=3)
    axes.scatter(places[~inside], heights[~inside], edgecolors=GREY, facecolors="none", marker="s", s=36, zorder=3)
    axes.axhline(100.0, color=RED, linewidth=1, linestyle="--", label="null level")
    if limit is not None:
        axes.axhline(limit, color=AMBER, linewidth=1, linestyle=":", label=f"tolerance {limit:.3g} %")
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor * 0.8, top=max([*finite, 100.0]) * 2)
    axes.set_xticks(list(places) if len(spectrum) <= 16 else [1, len(spectrum)])
    axes.set_xlabel("direction, weakest first")
    axes.set_ylabel("breaking at first order, %")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
    return _figure(axes)


def draw_charts(
    charts: Sequence[ChartFinding],
    field: Tensor | None = None,
    radii: Sequence[float] = (),
    places: Sequence[Sequence[float]] | None = None,
    *,
    shape: Sequence[int] = (),
    least: float = 0.0,
) -> Figure:
    """The charts over one input field, coloured by their breaking; outlier charts are marked.

    Arguments:
        charts: Findings; the last two coordinates of their centres are drawn.
        field: One field to draw them over, with shape `(H, W)`.
        radii: In- and out-radius in pixels.
        places: Where the charts lie in pixels, if their centres say something else.
        least: The strength that the scale of colours reaches at least.
    """
    where = [p[-2:] for p in (places if places is not None else [c.center for c in charts])]
    (axes,) = plots(1, 1, (WIDTH, 4.8))
    if field is not None:
        rows, columns = shape[-2:] if len(shape) > 1 else field.shape
        extent = (-0.5, columns - 0.5, rows - 0.5, -0.5)
        axes.imshow(field.detach().cpu().numpy(), cmap="gray", alpha=0.55, interpolation="none", extent=extent)
    else:
        margin = 1.5 * (radii[0] if radii else 1.0)
        axes.set_xlim(min(c[1] for c in where) - margin, max(c[1] for c in where) + margin)
        axes.set_ylim(max(c[0] for c in where) + margin, min(c[0] for c in where) - margin)
        axes.set_aspect("equal")
    strengths = [100 * c.error if math.isfinite(c.error) else None for c in charts]
    largest = max([*(v for v in strengths if v is not None), 100 * least, 1e-3])
    for number, (chart, (row, column), value) in enumerate(zip(charts, where, strengths, strict=True)):
        colour = matplotlib.colormaps["viridis"](value / largest) if value is not None else GREY
        edge, style, width = (RED, "--", 2.5) if chart.outlier else (colour, "-", 1.5)
        for radius, alpha in zip(radii, (0.0, 0.45), strict=False):
            corner, side = (column - radius - 0.5, row - radius - 0.5), 2 * radius + 1
            face = (*colour[:3], alpha) if value is not None else "none"
            axes.add_patch(
                Rectangle(corner, side, side, facecolor=face, edgecolor=edge, linewidth=width, linestyle=style)
            )
        axes.plot(column, row, "x" if chart.outlier else "o", color=edge, markersize=7 if chart.outlier else 3)
        axes.annotate(str(number), (column, row), textcoords="offset points", xytext=(4, 3))
    scale = ScalarMappable(Normalize(0.0, largest), "viridis")
    _figure(axes).colorbar(scale, ax=axes, shrink=0.8, label="breaking under the pooled group, %")
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    apart = sum(c.outlier for c in charts)
    marked = f", {apart} outlier chart{'s' if apart > 1 else ''} (crosses)" if apart else ""
    axes.set_title(f"{len(charts)} charts{marked}", fontsize=10)
    return _figure(axes)


def draw_located_charts(discovery: Discovery, fields: Mapping[str, Tensor]) -> Figure | None:
    """The charts over the field that the discovery kept, or over the one that is given; nothing without places."""
    charts, frames = discovery.charts, discovery.frames
    if not charts or any(len(c.center) not in (2, 3) for c in charts):
        return None
    given = fields["input"] if "input" in fields and fields["input"].ndim == 3 else None
    ground, shape = given[0] if given is not None else None, () if given is None else tuple(given.shape[1:])
    radii = tuple(fields["radii"].tolist()) if "radii" in fields else ()
    places = None
    if frames is not None:
        radii, places = frames.radii, frames.places if len(frames.places) == len(charts) else None
        if frames.field is not None:
            ground, shape = frames.field.levels, frames.shape
    least = chosen_tolerance(discovery) or 0.0
    figure = draw_charts(charts, ground, radii, places, shape=shape, least=least)
    if "rows_up" in fields and float(fields["rows_up"]) > 0:  # north is up
        figure.axes[0].invert_yaxis()
    return figure


def draw_fields(fields: Mapping[str, Tensor]) -> Figure | None:
    """One sample: the first channel of each field, or the first vector as length and arrows, each in its own colours.

    Arguments:
        fields: `input` and `output` `(C, H, W)`; optionally pairs of channels `input_vectors` and `output_vectors`
            `(P, 2)`, along columns and along rows; `rows_up`, 1 where row numbers grow to the north, -1 where they
            fall and components along rows point north.
    """
    shown = {name: fields[name].detach().cpu() for name in ("input", "output") if name in fields}
    shown = {name: field for name, field in shown.items() if field.ndim == 3}
    if not shown:
        return None
    up = float(fields["rows_up"]) if "rows_up" in fields else 0.0
    panels = plots(len(shown), 1, (WIDTH, 3.4 * len(shown)))
    for axes, (name, field) in zip(panels, shown.items(), strict=True):
        values, what, pairs = field[0], name, fields.get(f"{name}_vectors")
        if pairs is not None and len(pairs):
            columns, rows = (field[int(c)].double() for c in pairs[0])
            values, what = columns.hypot(rows), f"{name}, length of the vector"
            step = max(1, max(values.shape) // _ARROWS)
            r, c = np.mgrid[step // 2 : values.shape[0] : step, step // 2 : values.shape[1] : step]
            # Arrows point along growing row numbers, or to the north where components say so; the longest fills a step.
            angles, scale = "xy" if up >= 0 else "uv", float(values[r, c].nan_to_num().max().clamp_min(1e-30)) / step
            way: dict[str, Any] = {"angles": angles, "scale_units": "xy", "scale": scale, "pivot": "mid"}
            axes.quiver(c, r, columns[r, c], rows[r, c], color="white", edgecolor="black", linewidth=0.3, **way)
        few = max(1, math.ceil(max(values.shape) / _MOST_PIXELS))
        extent = (-0.5, values.shape[1] - 0.5, values.shape[0] - 0.5, -0.5)
        image = axes.imshow(values[::few, ::few].numpy(), cmap="inferno", interpolation="none", extent=extent)
        axes.set_title(what + (", north is up" if up else ""), fontsize=10)
        _figure(axes).colorbar(image, ax=axes, shrink=0.8)
        if up > 0:
            axes.invert_yaxis()
    return _figure(axes)


def draw_curves(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Training curves, one panel each: their units differ."""
    columns = min(3, len(curves))
    rows = math.ceil(len(curves) / columns)
    panels = plots(rows, columns, (max(3.6 * columns, WIDTH), 2.5 * rows + 0.3))
    for axes, (name, values) in zip(panels, curves.items(), strict=False):
        axes.plot(range(1, len(values) + 1), values, color=BLUE, linewidth=1.2)
        axes.set_title(escaped(name), fontsize=10, parse_math=False)
        axes.set_xlabel("step")
        finite = [v for v in values if math.isfinite(v)]
        if finite and min(finite) > 0 and max(finite) > 20 * min(finite):
            axes.set_yscale("log")
    for axes in panels[len(curves) :]:
        axes.remove()
    return _figure(panels[0])


def draw_discovery(discovery: Discovery, fields: Mapping[str, Tensor] | None = None) -> dict[str, Figure]:
    """All figures that the discovery has evidence for, by name.

    Arguments:
        fields: One sample, `input` and `output` with shape `(C, H, W)`, and `radii` of the charts; for vectors the
            invariant `metric` with shape `(n, n)`.
    """
    fields = fields or {}
    basis, cosets, verdict = discovery.algebra.basis, discovery.cosets, discovery.verdict
    name = discovery.group.name
    generators, elements = _titles("generator", verdict.directions, basis), _titles("coset", verdict.cosets, cosets)
    heading = f"Cosets of {name}" if verdict.symmetric else f"{headline(discovery)[0]}: only the identity is certain"
    figures: dict[str, Figure | None] = {
        "generators": draw_matrices(basis, generators, f"Generators of {name}") if len(basis) else None,
        "cosets": draw_matrices(cosets, elements, heading),
        "spectrum": draw_spectrum(discovery.spectrum, chosen_tolerance(discovery)) if discovery.spectrum else None,
        "charts": draw_located_charts(discovery, fields),
        "fields": draw_fields(fields),
        "spheres": draw_spheres(fields["spheres"]) if "spheres" in fields else None,
        "actions": draw_actions(fields["actions"]) if "actions" in fields else None,
        "curves": draw_curves(discovery.curves) if discovery.curves else None,
    }
    if "metric" in fields:
        matrices = torch.cat([basis, fields["metric"].to(basis)[None], cosets.to(basis)])
        titles = [*_titles("generator", (), basis), "metric", *_titles("coset", (), cosets)]
        figures["structure"] = draw_matrices(matrices, titles, f"Generators, invariant metric and cosets of {name}", 5)
    return {key: figure for key, figure in figures.items() if figure is not None}


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as `svg` or `png`, the same bytes for the same figure."""
    buffer = io.BytesIO()
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once; doing it again for every format is half the time
    # Without a fixed salt and date, every SVG of the same run would differ.
    with matplotlib.rc_context({"svg.hashsalt": "atlasd", "svg.fonttype": "none"}):
        svg = kind == "svg"
        figure.savefig(buffer, format=kind, dpi=120, transparent=svg, metadata={"Date": None} if svg else None)
    return buffer.getvalue()


def inline_svg(figure: Figure, words: str, inside: Markup = Markup("")) -> Markup:
    """A figure as a part of the page: text is text, and colours are those of the style sheet.

    Arguments:
        words: What is read out in its place.
        inside: Further elements, in points.
    """
    text = figure_bytes(figure, "svg").decode()
    text = re.sub(r"<(metadata|style)\b.*?</\1>|<g id=\"[^\"]*\"", lambda m: "" if m[1] else "<g", text, flags=re.S)
    for colour, name in _PAGE.items():
        text = text.replace(colour, f"var({name})")
    start = text.index("<svg")
    body = Markup(text[text.index(">", start) + 1 : text.rindex("</svg>")])
    box = re.search(r'viewBox="([\d. ]+)"', text[start:])
    assert box is not None
    head = Markup("<svg viewBox='{}' role='img' aria-label='{}' class='plot'>").format(box[1], escaped(words))
    return head + body + inside + Markup("</svg>")


def write_figures(discovery: Discovery, directory: Path, fields: Mapping[str, Tensor] | None = None) -> list[Path]:
    """Writes every figure as PNG and SVG, and removes those of an earlier run that this one lacks."""
    figures = draw_discovery(discovery, fields)
    written = []
    for name in NAMES:
        for kind in ("png", "svg"):
            path = directory / f"{name}.{kind}"
            if name in figures:
                written.append(write_atomically(path, _writer(figure_bytes(figures[name], kind))))
            else:
                path.unlink(missing_ok=True)
    return written


def _writer(content: bytes) -> Callable[[Path], int]:
    return lambda path: path.write_bytes(content)


def _titles(word: str, judged: Sequence[Direction], matrices: Tensor) -> list[str]:
    """A name for each matrix, with its strength if that was measured."""
    identity = torch.eye(matrices.shape[-1], dtype=matrices.dtype)
    titles = [f"{word} {k + 1}" for k in range(len(matrices))]
    if len(judged) != len(matrices):
        return titles
    return [
        title
        if torch.equal(g, identity) or not math.isfinite(d.strength)
        else f"{title}, breaking {strength(d.strength)}"
        for title, d, g in zip(titles, judged, matrices, strict=True)
    ]


_RADIUS = 60
_SPHERES = ("a sphere of the data", "each chart rotated by itself", "the sphere rotated")
_ACTIONS = ("as it is", "rotated", "enlarged", "stretched", "sheared")
_SIDES = ("g x", "f(g x)", "g f(x)")


def draw_actions(fields: Tensor) -> Figure:
    """A column for each action on a climate map, `(actions, 3, h, w)`: a variable, then classes of the two sides."""
    figure = Figure(figsize=(1.6 * len(fields) + 0.3, 5.0), layout="constrained")
    largest = max(float(fields[:, 1:].max()), 1e-6)
    for column, views in enumerate(fields):
        for row, view in enumerate(views):
            axes = figure.add_subplot(3, len(fields), row * len(fields) + column + 1, xticks=[], yticks=[])
            kind = {"cmap": "viridis", "vmin": 0.0, "vmax": largest} if row else {"cmap": "Blues"}
            axes.imshow(view.numpy(), **kind)
            axes.set_title(_ACTIONS[column] if row == 0 else "", fontsize=9)
            axes.set_ylabel(_SIDES[row] if column == 0 else "", fontsize=9)
    return figure


def draw_spheres(fields: Tensor) -> Figure:
    """Orthographic views of fields `(3, H, W)`, from 0 to 1, on an equirectangular grid, from three sides."""
    pixel = 0.99 * math.degrees(1 / (2**0.5 * _RADIUS))
    # The corners of a square inside the disc lie at the edge of the sphere; the flanks are cut off by a third.
    figure = Figure(figsize=(5.7, 2.05 * len(fields)), layout="constrained")
    for row, field in enumerate(fields):
        for column, longitude in enumerate((60, 180, 300)):
            chart = SphereChart(0.0, longitude, _RADIUS, _RADIUS, pixel=pixel, projection="orthographic")
            view = chart.input_patch(field[None, None])[0, 0].clamp(0.0, 1.0)
            axes = figure.add_subplot(len(fields), 3, row * 3 + column + 1)
            axes.imshow(view.numpy(), cmap="gray", vmin=0.0, vmax=1.0, interpolation="bilinear")
            axes.set_axis_off()
            axes.set_title(_SPHERES[row] if column == 1 else "", fontsize=9)
    return figure
