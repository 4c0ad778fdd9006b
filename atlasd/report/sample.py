"""One sample of the data: what goes in and what comes out, in the units of the file."""

from __future__ import annotations

__all__ = ["sample_block"]

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from atlasd.discovery.frames import Picture
from atlasd.report.png import data_address, field_palette, palette_png

_ARROWS = 14
"""Arrows along the longer side of a field."""


def sample_block(fields: Mapping[str, Tensor]) -> str:
    """The first channel of input and output, or the first vector as length and arrows, each in colours of its own.

    Arguments:
        fields: `input` and `output` `(C, H, W)`; optionally pairs of channels `input_vectors` and `output_vectors`
            `(P, 2)`, along columns and along rows; `rows_up`, 1 where row numbers grow to the north, -1 where they
            fall and components along rows point north.
    """
    parts = []
    up = float(fields["rows_up"]) if "rows_up" in fields else 0.0
    for name in ("input", "output"):
        if name not in fields or fields[name].ndim != 3:
            continue
        field, pairs = fields[name].detach().cpu().double(), fields.get(f"{name}_vectors")
        arrows = ""
        shown, what = field[0], name
        if pairs is not None and len(pairs):
            columns, rows = (field[int(c)] for c in pairs[0])
            rows = -rows if up < 0 else rows
            shown, what = columns.hypot(rows), f"{name}, length of the vector"
            arrows = _arrows(columns, rows)
        step = max(1, math.ceil(max(shown.shape) / 192))
        picture = Picture.of(shown[::step, ::step])
        height, width = shown.shape
        source = data_address(palette_png(picture.levels, field_palette("inferno")))
        # A flip about the middle: arrows are turned with their field.
        flip = f" transform='matrix(1 0 0 -1 0 {height})'" if up > 0 else ""
        north = ", north is up" if up else ""
        parts.append(
            f"<figure><svg class='picture' viewBox='0 0 {width} {height}' role='img' "
            f"aria-label='{name} field of one sample'><g{flip}><image href='{source}' width='{width}' "
            f"height='{height}' preserveAspectRatio='none'/>{arrows}</g></svg>"
            f"<figcaption>{what}, {picture.low:.3g} (dark) to {picture.high:.3g} (bright){north}</figcaption></figure>"
        )
    return f"<div class='pair'>{''.join(parts)}</div>" if parts else ""


def _arrows(columns: Tensor, rows: Tensor) -> str:
    """Vectors at points of a coarse grid, the longest as long as the grid is wide."""
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
    path = "".join(lines)
    return (
        f"<path d='{path}' fill='none' stroke='#000' stroke-width='{0.3 * step:.2f}' opacity='0.35'/>"
        f"<path d='{path}' fill='none' stroke='#fff' stroke-width='{0.12 * step:.2f}'/>"
    )
