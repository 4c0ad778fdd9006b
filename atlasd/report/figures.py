"""Figures of a discovery, drawn without a display and without global state."""

from __future__ import annotations

__all__ = [
    "draw_charts",
    "draw_curves",
    "draw_discovery",
    "draw_fields",
    "draw_matrices",
    "draw_spectrum",
    "draw_structure",
    "figure_bytes",
    "write_figures",
    "draw_actions",
    "draw_spheres",
]

import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import matplotlib
import numpy as np
import torch
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor
from torch.nn import functional

from atlasd.discovery.result import ChartFinding, Direction, Discovery
from atlasd.geometry.sphere import SphereChart
from atlasd.report.judged import chosen_tolerance
from atlasd.report.sentences import headline, strength
from atlasd.runtime.files import write_atomically

NAMES = ("generators", "cosets", "structure", "spectrum", "charts", "fields", "spheres", "actions", "curves")
_MOST_MATRICES = 32
_BLUE, _RED, _GREY = "#2166ac", "#b2182b", "#666666"


def draw_matrices(matrices: Tensor, titles: Sequence[str], heading: str = "", columns: int = 6) -> Figure:
    """Matrices as heat maps, blue below zero and red above, with the numbers in the cells.

    Arguments:
        matrices: With shape `(m, n, n)`; only the first 32 are drawn.
        titles: One per matrix.
        heading: A line above all of them.
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
        axes = figure.add_subplot(rows, columns, index + 1)
        axes.imshow(matrix.numpy(), cmap="RdBu_r", vmin=-largest, vmax=largest)
        axes.set_title(titles[index], fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        for i in range(n):
            for j in range(n):
                value = float(matrix[i, j])
                ink = "white" if abs(value) > 0.65 * largest else "black"
                # Adding zero turns -0.00 into 0.00.
                axes.text(j, i, f"{round(value, 2) + 0.0:.2f}", ha="center", va="center", color=ink, fontsize=9)
    return figure


def draw_structure(discovery: Discovery, metric: Tensor) -> Figure:
    """Generators, the metric that they leave as it is, and the cosets, side by side.

    Arguments:
        discovery: What was found.
        metric: The invariant form, with shape `(n, n)`.
    """
    basis, cosets = discovery.algebra.basis, discovery.cosets
    titles = [f"generator {k + 1}" for k in range(len(basis))] + ["metric"]
    titles += [f"coset {k + 1}" for k in range(len(cosets))]
    matrices = torch.cat([basis, metric.to(basis)[None], cosets.to(basis)])
    return draw_matrices(matrices, titles, f"Generators, invariant metric and cosets of {discovery.group.name}", 5)


def draw_spectrum(spectrum: Sequence[float], tolerance: float | None = None) -> Figure:
    """First-order strengths of all directions on a logarithmic scale, with the null level and the tolerance.

    Arguments:
        spectrum: Squares of strengths, ascending.
        tolerance: The largest strength that counts as a symmetry.
    """
    figure = Figure(figsize=(6.2, 3.4), layout="constrained")
    axes = figure.add_subplot()
    strengths = [100 * math.sqrt(v) if v >= 0 else math.nan for v in spectrum]
    finite = [v for v in strengths if math.isfinite(v)]
    # An exact symmetry of a function has no logarithm: it is drawn on the floor.
    floor = min([v for v in finite if v > 0] + [1.0]) / 3
    places = range(1, len(spectrum) + 1)
    heights = [max(v, floor) if math.isfinite(v) else math.nan for v in strengths]
    limit = 100 * tolerance if tolerance is not None and math.isfinite(tolerance) and tolerance > 0 else None
    colours = [_BLUE if limit is not None and v <= limit else _GREY for v in strengths]
    axes.vlines(places, floor, heights, colors=colours, linewidth=1)
    axes.scatter(places, heights, c=colours, s=36, zorder=3)
    axes.axhline(100.0, color=_RED, linewidth=1, linestyle="--", label="null level")
    if limit is not None:
        axes.axhline(limit, color=_BLUE, linewidth=1, linestyle=":", label=f"tolerance {limit:.3g} %")
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor * 0.8, top=max([*finite, 100.0]) * 2)
    axes.set_xticks(list(places) if len(spectrum) <= 16 else [1, len(spectrum)])
    axes.set_xlabel("direction")
    axes.set_ylabel("breaking at first order, %")
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, fontsize=8, frameon=False)
    return figure


def draw_charts(
    charts: Sequence[ChartFinding],
    field: Tensor | None = None,
    radii: Sequence[float] | None = None,
    places: Sequence[Sequence[float]] | None = None,
) -> Figure:
    """The charts over one input field, coloured by their breaking; outlier charts are marked.

    Arguments:
        charts: Findings with two coordinates each.
        field: One field to draw them over, with shape `(C, H, W)`; its first channel is shown.
        radii: In- and out-radius in pixels.
        places: Where the charts lie in pixels, if their centres say something else.
    """
    where = [c.center for c in charts] if places is None else places
    figure = Figure(figsize=(6.0, 5.0), layout="constrained")
    axes = figure.add_subplot()
    if field is not None:
        axes.imshow(field[0].detach().cpu().numpy(), cmap="gray", alpha=0.55, interpolation="none")
    else:
        margin = 1.5 * (radii[0] if radii else 1.0)
        axes.set_xlim(min(c[1] for c in where) - margin, max(c[1] for c in where) + margin)
        axes.set_ylim(max(c[0] for c in where) + margin, min(c[0] for c in where) - margin)
        axes.set_aspect("equal")
    strengths = [100 * c.error if math.isfinite(c.error) else None for c in charts]
    scale = Normalize(0.0, max([*(v for v in strengths if v is not None), 1e-3]))
    colours = ScalarMappable(scale, "viridis")
    for number, chart in enumerate(charts):
        row, column = where[number]
        value = strengths[number]
        colour = matplotlib.colormaps["viridis"](scale(value)) if value is not None else _GREY
        edge, style, width = (_RED, "--", 2.5) if chart.outlier else (colour, "-", 1.5)
        for radius, alpha in zip(radii or (), (0.0, 0.45), strict=False):
            corner, side = (column - radius - 0.5, row - radius - 0.5), 2 * radius + 1
            face = (*colour[:3], alpha) if isinstance(colour, tuple) else "none"
            axes.add_patch(
                Rectangle(corner, side, side, facecolor=face, edgecolor=edge, linewidth=width, linestyle=style)
            )
        axes.plot(column, row, "x" if chart.outlier else "o", color=edge, markersize=7 if chart.outlier else 3)
        axes.annotate(str(number), (column, row), textcoords="offset points", xytext=(4, 3), fontsize=8)
    figure.colorbar(colours, ax=axes, shrink=0.8, label="breaking under the pooled group, %")
    axes.set_xlabel("column")
    axes.set_ylabel("row")
    apart = sum(c.outlier for c in charts)
    axes.set_title(
        f"{len(charts)} charts" + (f", {apart} outlier chart{'s' if apart > 1 else ''} (crosses)" if apart else ""),
        fontsize=10,
    )
    return figure


def draw_fields(fields: Mapping[str, Tensor]) -> Figure:
    """One sample: each field with shape `(C, H, W)`, its first channel, on a common scale."""
    shown = {name: fields[name][0].detach().cpu() for name in ("input", "output") if name in fields}
    figure = Figure(figsize=(3.6 * len(shown) + 0.8, 3.6), layout="constrained")
    low = min(float(f.min()) for f in shown.values())
    high = max(float(f.max()) for f in shown.values())
    axes = [figure.add_subplot(1, len(shown), k + 1) for k in range(len(shown))]
    for place, (name, field) in zip(axes, shown.items(), strict=True):
        image = place.imshow(field.numpy(), cmap="inferno", vmin=low, vmax=high, interpolation="none")
        place.set_title(name, fontsize=10)
    figure.colorbar(image, ax=axes, shrink=0.8)
    return figure


def draw_curves(curves: Mapping[str, Sequence[float]]) -> Figure:
    """Training curves, one panel each: their units differ."""
    columns = min(3, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure = Figure(figsize=(3.6 * columns + 0.4, 2.5 * rows + 0.3), layout="constrained")
    for index, (name, values) in enumerate(curves.items()):
        axes = figure.add_subplot(rows, columns, index + 1)
        axes.plot(range(1, len(values) + 1), values, color=_BLUE, linewidth=1.2)
        axes.set_title(name, fontsize=10)
        axes.set_xlabel("step", fontsize=8)
        finite = [v for v in values if math.isfinite(v)]
        if finite and min(finite) > 0 and max(finite) > 20 * min(finite):
            axes.set_yscale("log")
    return figure


def draw_discovery(discovery: Discovery, fields: Mapping[str, Tensor] | None = None) -> dict[str, Figure]:
    """All figures that the discovery has evidence for, by name.

    Arguments:
        discovery: What was found.
        fields: One sample, `input` and `output` with shape `(C, H, W)`, and `radii` of the charts; for vectors the
            invariant `metric` with shape `(n, n)`.
    """
    fields = fields or {}
    figures: dict[str, Figure] = {}
    basis, cosets, verdict = discovery.algebra.basis, discovery.cosets, discovery.verdict
    name = discovery.group.name
    if len(basis):
        figures["generators"] = draw_matrices(
            basis, _titles("generator", verdict.directions, basis), f"Generators of {name}"
        )
    heading = f"Cosets of {name}" if verdict.symmetric else f"{headline(discovery)[0]}: only the identity is certain"
    figures["cosets"] = draw_matrices(cosets, _titles("coset", verdict.cosets, cosets), heading)
    if "metric" in fields:
        figures["structure"] = draw_structure(discovery, fields["metric"])
    if discovery.spectrum:
        figures["spectrum"] = draw_spectrum(discovery.spectrum, chosen_tolerance(discovery))
    if len(discovery.charts) and all(len(c.center) == 2 for c in discovery.charts):
        figures["charts"] = _chart_figure(discovery, fields)
    if "input" in fields:
        figures["fields"] = draw_fields(fields)
    if "spheres" in fields:
        figures["spheres"] = draw_spheres(fields["spheres"])
    if "actions" in fields:
        figures["actions"] = draw_actions(fields["actions"])
    if discovery.curves:
        figures["curves"] = draw_curves(discovery.curves)
    return figures


def _chart_figure(discovery: Discovery, fields: Mapping[str, Tensor]) -> Figure:
    """The charts over the field that the discovery kept, or over the one that is given."""
    frames = discovery.frames
    if frames is None or len(frames.places) != len(discovery.charts):
        radii = fields["radii"].tolist() if "radii" in fields else None
        return draw_charts(discovery.charts, fields.get("input"), radii)
    ground = fields.get("input")
    if ground is None and frames.field is not None:
        ground = functional.interpolate(frames.field.levels[None, None].float(), frames.shape[-2:], mode="nearest")[0]
    return draw_charts(discovery.charts, ground, frames.radii, frames.places)


def figure_bytes(figure: Figure, kind: str) -> bytes:
    """A figure as `svg` or `png`, the same bytes for the same figure."""
    buffer = io.BytesIO()
    if figure.get_layout_engine() is not None:
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # laid out once; doing it again for every format is half the time
    # Without a fixed salt and date, every SVG of the same run would differ.
    with matplotlib.rc_context({"svg.hashsalt": "atlasd"}):
        figure.savefig(buffer, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def write_figures(discovery: Discovery, directory: Path, fields: Mapping[str, Tensor] | None = None) -> list[Path]:
    """Writes every figure as PNG and SVG, and removes those of an earlier run that this one lacks."""
    figures = draw_discovery(discovery, fields)
    written = []
    for name in NAMES:
        for kind in ("png", "svg"):
            path = directory / f"{name}.{kind}"
            if name in figures:
                content = figure_bytes(figures[name], kind)
                written.append(write_atomically(path, _writer(content)))
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
_ROWS = ("g x", "f(g x)", "g f(x)")


def draw_actions(fields: Tensor, titles: Sequence[str] = _ACTIONS) -> Figure:
    """Draws a column for each action.

    Arguments:
        fields: With shape `(actions, 3, h, w)`: a variable, then expected classes of the two sides.
        titles: One for each action.
    """
    figure = Figure(figsize=(1.6 * len(fields) + 0.3, 5.0), layout="constrained")
    largest = max(float(fields[:, 1:].max()), 1e-6)
    for column, views in enumerate(fields):
        for row, view in enumerate(views):
            axes = figure.add_subplot(3, len(fields), row * len(fields) + column + 1)
            if row:
                axes.imshow(view.numpy(), cmap="viridis", vmin=0.0, vmax=largest)
            else:
                axes.imshow(view.numpy(), cmap="Blues")
                axes.set_title(titles[column] if column < len(titles) else "", fontsize=9)
            axes.set_xticks([])
            axes.set_yticks([])
            if column == 0:
                axes.set_ylabel(_ROWS[row], fontsize=9)
    return figure


def draw_spheres(fields: Tensor, titles: Sequence[str] = _SPHERES, sides: Sequence[float] = (60, 180, 300)) -> Figure:
    """Orthographic views of fields on an equirectangular grid.

    Arguments:
        fields: With shape `(rows, H, W)`, from 0 to 1.
        titles: One for each row.
        sides: Longitudes that are seen in the middle, in degrees.
    """
    pixel = 0.99 * float(np.degrees(1 / (2**0.5 * _RADIUS)))
    # The corners of a square inside the disc lie at the edge of the sphere; the flanks are cut off by a third.
    figure = Figure(figsize=(1.9 * len(sides), 2.05 * len(fields)), layout="constrained")
    for row, field in enumerate(fields):
        for column, longitude in enumerate(sides):
            chart = SphereChart(0.0, longitude, _RADIUS, _RADIUS, pixel=pixel, projection="orthographic")
            view = chart.input_patch(field[None, None])[0, 0].clamp(0.0, 1.0)
            axes = figure.add_subplot(len(fields), len(sides), row * len(sides) + column + 1)
            axes.imshow(view.numpy(), cmap="gray", vmin=0.0, vmax=1.0, interpolation="bilinear")
            axes.set_axis_off()
            if column == len(sides) // 2:
                axes.set_title(titles[row] if row < len(titles) else "", fontsize=9)
    return figure
