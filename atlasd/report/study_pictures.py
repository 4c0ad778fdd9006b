"""The paper's pictures that two studies keep: digits on spheres, and linear actions on a climate map."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from torch import Tensor

from atlasd.geometry.sphere import SphereChart

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
