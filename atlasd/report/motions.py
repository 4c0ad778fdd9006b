"""One chart under several linear actions: the transformed input, and both sides of the map."""

from __future__ import annotations

__all__ = ["draw_actions"]

from collections.abc import Sequence

from matplotlib.figure import Figure
from torch import Tensor

_TITLES = ("as it is", "rotated", "enlarged", "stretched", "sheared")
_ROWS = ("g x", "f(g x)", "g f(x)")


def draw_actions(fields: Tensor, titles: Sequence[str] = _TITLES) -> Figure:
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
