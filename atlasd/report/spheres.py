"""Spheres as seen from outside: one row for each field, one column for each side it is seen from."""

from __future__ import annotations

__all__ = ["draw_spheres"]

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from atlasd.geometry.sphere import SphereChart

_RADIUS = 60
_TITLES = ("a sphere of the data", "each chart rotated by itself", "the whole rotated")


def draw_spheres(fields: Tensor, titles: Sequence[str] = _TITLES, sides: Sequence[float] = (60, 180, 300)) -> Figure:
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
