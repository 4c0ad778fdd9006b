"""Small pictures with a palette, as PNG; nothing but the standard library, and the same bytes every time."""

from __future__ import annotations

__all__ = ["data_address", "difference_palette", "field_palette", "palette_png", "strip"]

import base64
import struct
import zlib
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from torch import Tensor

Palette: TypeAlias = npt.NDArray[np.uint8]
"""Colours with shape `(256, 4)`: red, green, blue, opacity. The last one is for pixels that do not count."""

_STEPS = 63
"""Different colours of a picture: fewer compress better, and nobody sees more; odd, so that zero has its own."""


def palette_png(levels: Tensor, palette: Palette) -> bytes:
    """A PNG of levels `(h, w)`, unsigned bytes that number the colours of the palette."""
    rows = levels.detach().cpu().numpy().astype(np.uint8)
    coarse = np.rint(np.rint(rows / 254 * (_STEPS - 1)) * 254 / (_STEPS - 1))
    rows = np.where(rows == 255, 255, coarse).astype(np.uint8)
    height, width = rows.shape
    lines = np.concatenate([np.zeros((height, 1), dtype=np.uint8), rows], axis=1).tobytes()
    parts = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
        (b"PLTE", palette[:, :3].tobytes()),
        (b"tRNS", palette[:, 3].tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in parts
    )


def strip(levels: Tensor) -> Tensor:
    """Frames `(T, h, w)` side by side, `(h, T w)`."""
    t, h, w = levels.shape
    return levels.movedim(0, 1).reshape(h, t * w)


def field_palette(name: str = "viridis") -> Palette:
    """A palette of matplotlib; what does not count is grey."""
    import matplotlib

    colours = (matplotlib.colormaps[name](np.linspace(0, 1, 255)) * 255).round().astype(np.uint8)
    return np.concatenate([colours, np.array([[128, 128, 128, 70]], dtype=np.uint8)])


def difference_palette() -> Palette:
    """Blue below zero, red above, and clear at zero: right on light and on dark paper."""
    share = np.linspace(-1, 1, 255)[:, None]
    colour = np.where(share < 0, np.array([[38, 110, 190]]), np.array([[205, 60, 40]]))
    opacity = np.abs(share) ** 0.7 * 255
    colours = np.concatenate([colour, opacity], axis=1).round().astype(np.uint8)
    return np.concatenate([colours, np.array([[128, 128, 128, 70]], dtype=np.uint8)])


def data_address(png: bytes) -> str:
    """The picture as an address that needs no file."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
