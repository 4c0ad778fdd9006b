"""Views of fields: one chart under several linear actions, and spheres as seen from outside."""

from __future__ import annotations

__all__ = ["draw_actions", "draw_spheres"]

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from atlasd.geometry.sphere import SphereChart

_RADIUS = 60
_SPHERES = ("a sphere of the data", "each chart rotated by itself", "the whole rotated")
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
