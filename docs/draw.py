"""Draws the pictures of the page on ideas: a chart, the two ways around, and the verdict.

Run: python docs/draw.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle

from atlasd.geometry.actions import GridAction
from atlasd.geometry.atlas import PlaneChart
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_fields, simulate_heat

IMAGES = Path(__file__).parent / "images"
CHART = PlaneChart((84, 76), in_radius=20, out_radius=14)


def main():
    x = heat_fields(3, initial="isotropic", generator=stream(3, "docs"))[2:]
    y = simulate_heat(x)
    draw_chart(x, y).savefig(IMAGES / "chart.png", dpi=110)
    draw_square(x).savefig(IMAGES / "equivariance.png", dpi=110)
    draw_verdict().savefig(IMAGES / "verdict.png", dpi=110)
    draw_actions().savefig(IMAGES / "actions.png", dpi=110)
    draw_field_actions(x).savefig(IMAGES / "actions-fields.png", dpi=110)


def show(axes, field, title, cmap="viridis"):
    axes.imshow(field, cmap=cmap, interpolation="none")
    axes.set_title(title, fontsize=10)
    axes.set_xticks([])
    axes.set_yticks([])


def draw_chart(x, y):
    """The field, one chart on it, and the two patches that it sees."""
    figure = Figure(figsize=(9.6, 3.3), layout="constrained")
    places = figure.subplots(1, 3, width_ratios=(1.25, 1, 0.75))
    show(places[0], x[0, 0], "the field, and one chart")
    row, column = CHART.center
    for radius, colour, style in ((CHART.in_radius, "white", "-"), (CHART.out_radius, "#ff5c4d", "--")):
        corner, side = (column - radius - 0.5, row - radius - 0.5), 2 * radius + 1
        places[0].add_patch(Rectangle(corner, side, side, fill=False, edgecolor=colour, linewidth=2, linestyle=style))
    show(places[1], CHART.input_patch(x)[0, 0], "input patch x, seen from its centre")
    show(places[2], CHART.output_patch(y)[0, 0], "output patch y")
    half = CHART.out_radius
    places[2].add_patch(Circle((half, half), half - 1, fill=False, edgecolor="#ff5c4d", linewidth=2, linestyle="--"))
    return figure


def draw_actions():
    """Level lines of four functions, and the field along which each does not change."""
    figure = Figure(figsize=(11.2, 3.0), layout="constrained")
    line = torch.linspace(-2, 2, 201)
    y, x = torch.meshgrid(line, line, indexing="ij")
    v, u = torch.meshgrid(line[10::18], line[10::18], indexing="ij")
    ring = u * u + v * v
    panels = (
        ("linear: VectorAction", x**2 + 4 * y**2, (-4 * v, u)),
        ("affine: AffineAction", (x - 0.8) ** 2 + 4 * (y - 0.5) ** 2, (-4 * (v - 0.5), u - 0.8)),
        ("polynomial: PolynomialAction", x**3 - y**2, (2 * v, 3 * u**2)),
        ("a flow, and what commutes with it", None, (u - v - u * ring, u + v - v * ring)),
    )
    for axes, (title, level, (a, b)) in zip(figure.subplots(1, 4), panels, strict=True):
        if level is not None:
            axes.contour(x, y, level, levels=9, colors="#9aa5b1", linewidths=0.8)
        else:
            for radius in (0.5, 1.0, 1.5):
                axes.add_patch(Circle((0, 0), radius, fill=False, edgecolor="#ff5c4d", linestyle="--"))
        size = (a * a + b * b).sqrt().clamp_min(1e-9)
        axes.quiver(u, v, a / size.sqrt(), b / size.sqrt(), color="#1f5fa8", width=0.006)
        axes.set_title(title, fontsize=10)
        axes.set_aspect("equal")
        axes.set_xticks([])
        axes.set_yticks([])
    return figure


def draw_field_actions(x):
    """A chart turned about its centre, a chart shifted, and a wind whose arrows turn with their places."""
    figure = Figure(figsize=(8.4, 3.0), layout="constrained")
    turned, shifted, mixed = figure.subplots(1, 3)
    row, column = CHART.center
    corner, side = (column - CHART.in_radius, row - CHART.in_radius), 2 * CHART.in_radius + 1
    kind = {"fill": False, "edgecolor": "white", "linewidth": 1.5}
    for axes, title in ((turned, "a chart, turned: GridAction"), (shifted, "GridAction(translations=True)")):
        show(axes, x[0, 0], title)
        axes.add_patch(Rectangle(corner, side, side, **kind))
    dashed = kind | {"edgecolor": "#ff5c4d", "linestyle": "--"}
    turned.add_patch(Rectangle(corner, side, side, angle=35, rotation_point="center", **dashed))
    shifted.add_patch(Rectangle((corner[0] + 9, corner[1] - 6), side, side, **dashed))
    v, u = torch.meshgrid(torch.linspace(-2, 2, 9), torch.linspace(-2, 2, 9), indexing="ij")
    inside = u * u + v * v <= 4
    u, v = u[inside], v[inside]
    a, b = torch.sin(1.5 * v) + 0.6, torch.cos(1.2 * u)
    c, d = torch.cos(torch.tensor(0.6)), torch.sin(torch.tensor(0.6))
    for angle, colour in (((1.0, 0.0), "#9aa5b1"), ((c, d), "#1f5fa8")):
        p, q = angle
        mixed.quiver(p * u - q * v, q * u + p * v, p * a - q * b, q * a + p * b, color=colour, width=0.008)
    show(mixed, torch.full((1, 1), torch.nan), "channels that turn with places")
    mixed.set_xlim(-2.4, 2.4)
    mixed.set_ylim(-2.4, 2.4)
    return figure


def draw_square(x):
    """Move and map, map and move: the same picture if g is a symmetry."""
    action, window = GridAction(), CHART.out_radius
    angle = torch.tensor(0.7)
    rotation = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
    squeeze = torch.tensor([[1.6, 0.0], [0.0, 1 / 1.6]])
    patch = CHART.input_patch(x)

    def flow(u):
        for _ in range(60):
            v = torch.nn.functional.pad(u, (1, 1, 1, 1), mode="replicate")
            u = u + 0.2 * (v[..., 2:, 1:-1] + v[..., :-2, 1:-1] + v[..., 1:-1, 2:] + v[..., 1:-1, :-2] - 4 * u)
        return u

    grid = torch.arange(patch.shape[-1]) - CHART.in_radius
    disc = grid[:, None].square() + grid[None].square() <= (window - 0.4) ** 2
    figure = Figure(figsize=(9.6, 4.7), layout="constrained")
    places = figure.subplots(2, 4)
    for line, (g, name) in zip(places, ((rotation, "a rotation"), (squeeze, "a squeeze")), strict=True):
        left, right = flow(action.on_input(g, patch)), action.on_output(g, flow(patch))
        shown = [action.on_input(g, patch), left, right, left - right]
        limit = float(flow(patch)[0, 0][disc].abs().max())
        titles = (f"g·x, g is {name}", "Φ(g·x): move, then map", "g·Φ(x): map, then move", "difference, four times")
        for axes, field, title in zip(line, shown, titles, strict=True):
            picture = torch.where(disc, field[0, 0], torch.nan) if title != titles[0] else field[0, 0]
            show(axes, picture, title, "RdBu_r" if title == titles[3] else "viridis")
            if title == titles[3]:
                axes.images[0].set_clim(-limit / 4, limit / 4)
    return figure


def draw_verdict():
    """Confidence intervals on the scale from exact to the null level, and what follows from them."""
    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    axes = figure.add_subplot()
    cases = (
        (0.02, 0.08, "symmetry: even the upper end is below the tolerance", "o", "#17693a"),
        (0.12, 0.33, "cannot tell: the interval straddles the tolerance", "D", "#7a5200"),
        (0.45, 0.7, "broken: even the lower end is above it", "X", "#a8261d"),
    )
    for place, (low, high, words, mark, colour) in enumerate(reversed(cases)):
        axes.plot([low, high], [place, place], color=colour, linewidth=3, solid_capstyle="butt")
        axes.plot((low * high) ** 0.5, place, mark, color=colour, markersize=8)
        axes.text(low, place + 0.28, words, va="center", fontsize=9, backgroundcolor="white")
    axes.axvline(0.2, color="#7a5200", linestyle=":", label="tolerance, 20 %")
    axes.axvline(1.0, color="#a8261d", linestyle="--", label="null level")
    axes.set_xscale("log")
    axes.set_xlim(0.008, 3)
    axes.set_ylim(-0.5, 2.7)
    axes.set_yticks([])
    axes.set_xlabel("strength of the breaking on held-out data (0 is exact, 1 is the null level)", fontsize=9)
    axes.legend(loc="lower left", fontsize=8, frameon=False)
    return figure


if __name__ == "__main__":
    main()
