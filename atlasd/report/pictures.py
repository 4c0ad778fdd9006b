"""Small pictures with a palette, as PNG: the same bytes every time."""

from __future__ import annotations

__all__ = ["difference_palette", "field_palette", "picture_address", "strip"]

import base64
import io
from typing import TypeAlias

import matplotlib
import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

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
