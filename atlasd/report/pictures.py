"""Pictures inside the page: fields with a palette, as PNG with the same bytes every time, and one sample of data."""

from __future__ import annotations

__all__ = ["difference_palette", "field_palette", "picture_address", "strip", "sample_block"]

import base64
import io
import math
from collections.abc import Mapping
from typing import TypeAlias

import matplotlib
import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from atlasd.discovery.frames import Picture
from atlasd.report.templates import part

Palette: TypeAlias = npt.NDArray[np.uint8]
"""Colours with shape `(256, 4)`: red, green, blue, opacity. The last one is for pixels that do not count."""

_STEPS = 63
"""Different colours of a picture: fewer compress better, and nobody sees more; odd, so that zero has its own."""
_UNCOUNTED = np.array([[128, 128, 128, 70]], dtype=np.uint8)


def picture_address(levels: Tensor, palette: Palette) -> str:
    """An address that holds the picture of levels `(h, w)`, unsigned bytes that number the colours of the palette."""
    rows = levels.detach().cpu().numpy().astype(np.uint8)
    coarse = np.rint(np.rint(rows / 254 * (_STEPS - 1)) * 254 / (_STEPS - 1))
    image = Image.fromarray(np.where(rows == 255, 255, coarse).astype(np.uint8))
    image.putpalette(palette.tobytes(), "RGBA")
    buffer = io.BytesIO()
    image.save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def strip(levels: Tensor) -> Tensor:
    """Frames `(T, h, w)` side by side, `(h, T w)`."""
    t, h, w = levels.shape
    return levels.movedim(0, 1).reshape(h, t * w)


def field_palette(name: str = "viridis") -> Palette:
    """A palette of matplotlib; what does not count is grey."""
    colours = (matplotlib.colormaps[name](np.linspace(0, 1, 255)) * 255).round().astype(np.uint8)
    return np.concatenate([colours, _UNCOUNTED])


def difference_palette() -> Palette:
    """Blue below zero, red above, and clear at zero: right on light and on dark paper."""
    share = np.linspace(-1, 1, 255)[:, None]
    colour = np.where(share < 0, np.array([[38, 110, 190]]), np.array([[205, 60, 40]]))
    opacity = np.abs(share) ** 0.7 * 255
    return np.concatenate([np.concatenate([colour, opacity], axis=1).round().astype(np.uint8), _UNCOUNTED])


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
