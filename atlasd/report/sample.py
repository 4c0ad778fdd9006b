"""One sample of the data: what goes in and what comes out, in the units of the file."""

from __future__ import annotations

__all__ = ["sample_block"]

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from atlasd.discovery.frames import Picture
from atlasd.report.pictures import field_palette, picture_address
from atlasd.report.templates import part

_ARROWS = 14
"""Arrows along the longer side of a field."""


def sample_block(fields: Mapping[str, Tensor]) -> str:
    """The first channel of input and output, or the first vector as length and arrows, each in colours of its own.

    Arguments:
        fields: `input` and `output` `(C, H, W)`; optionally pairs of channels `input_vectors` and `output_vectors`
            `(P, 2)`, along columns and along rows; `rows_up`, 1 where row numbers grow to the north, -1 where they
            fall and components along rows point north.
    """
    shown = []
    up = float(fields["rows_up"]) if "rows_up" in fields else 0.0
    for name in ("input", "output"):
        if name not in fields or fields[name].ndim != 3:
            continue
        field, pairs = fields[name].detach().cpu().double(), fields.get(f"{name}_vectors")
        values, what, arrows, stroke = field[0], name, "", 0
        if pairs is not None and len(pairs):
            columns, rows = (field[int(c)] for c in pairs[0])
            rows = -rows if up < 0 else rows
            values, what = columns.hypot(rows), f"{name}, length of the vector"
            arrows, stroke = _arrows(columns, rows)
        step = max(1, math.ceil(max(values.shape) / 192))
        picture = Picture.of(values[::step, ::step])
        shown.append(
            {
                "name": name,
                "source": picture_address(picture.levels, field_palette("inferno")),
                "size": tuple(values.shape),
                "flipped": up > 0,  # arrows with their field
                "arrows": arrows,
                "stroke": stroke,
                "caption": f"{what}, {picture.low:.3g} (dark) to {picture.high:.3g} (bright)"
                + (", north is up" if up else ""),
            }
        )
    return part("parts.html", "pictures", shown) if shown else ""


def _arrows(columns: Tensor, rows: Tensor) -> tuple[str, int]:
    """A path of arrows at points of a coarse grid, the longest as long as its step, and that step."""
    height, width = columns.shape
    step = max(1, max(height, width) // _ARROWS)
    r, c = torch.meshgrid(torch.arange(step // 2, height, step), torch.arange(step // 2, width, step), indexing="ij")
    dr, dc = rows[r, c], columns[r, c]
    size = step / float(dr.hypot(dc).nan_to_num().max().clamp_min(1e-300))
    lines = []
    for y, x, v, u in zip(r.flatten(), c.flatten(), (dr * size).flatten(), (dc * size).flatten(), strict=True):
        if not math.isfinite(float(u + v)):
            continue
        x0, y0, x1, y1 = float(x - u / 2) + 0.5, float(y - v / 2) + 0.5, float(x + u / 2) + 0.5, float(y + v / 2) + 0.5
        # The barbs lie 30 degrees off the shaft, a third as long.
        barbs = "".join(
            f"M{x1:.2f} {y1:.2f}L{x1 - (0.29 * float(u) - s * 0.17 * float(v)):.2f} "
            f"{y1 - (0.29 * float(v) + s * 0.17 * float(u)):.2f}"
            for s in (1, -1)
        )
        lines.append(f"M{x0:.2f} {y0:.2f}L{x1:.2f} {y1:.2f}{barbs}")
    return "".join(lines), step
