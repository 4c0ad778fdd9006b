"""Digits of MNIST, three on the equator of each sphere, each rotated by itself: the symmetry is local, not global."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from atlasd.data.fetch import data_directory, fetch, find_data
from atlasd.data.file_limits import reading
from atlasd.errors import DataError, InputError
from atlasd.geometry.resample import pixel_grid, resample

HEIGHT, WIDTH = 60, 120
"""Rows from north to south and columns once around of the equirectangular grid."""
RADIUS = 14
"""Digits are drawn inside windows of 29 x 29 pixels."""
CENTRES = ((30, 20), (30, 60), (30, 100))
"""Pixels (row, column) about which the digits are rotated: 1/6, 1/2 and 5/6 of the way around."""
BACKGROUND, CLASSES = 10, 11
"""The class of pixels that are fully black, and the number of classes; 0 to 9 are the digits."""
_CHUNK = 1500


@dataclass(frozen=True, eq=False)
class SphereDigits:
    """Spheres as equirectangular fields, and the class of every pixel.

    Arguments:
        x: Brightness from 0 to 1, with shape `(N, 1, 60, 120)`, float32.
        y: Classes, with shape `(N, 60, 120)`, bytes: the digit where there is ink, 10 for the background.
        digits: Which three digits, `(N, 3)`.
        angles: By how much each was rotated, in radians, `(N, 3)`; positive takes rows towards columns.
        sizes: By which factor each was enlarged, `(N, 3)`.
    """

    x: Tensor
    y: Tensor
    digits: Tensor
    angles: Tensor
    sizes: Tensor


def sphere_mnist(
    samples: int,
    *,
    generator: torch.Generator,
    rotate: float = 60.0,
    scale: float = 1.0,
    split: Literal["train", "test"] = "train",
    images: tuple[Tensor, Tensor] | None = None,
) -> SphereDigits:
    """Draws three digits on the equator of each sphere, as in the paper.

    Each digit is rotated by 90 degrees and by a random angle of its own, and drawn on a cylinder of 60 rows and 120
    columns, which is the equirectangular grid of the sphere. It is rotated about the exact centre of its window, so
    that a chart at `CENTRES` sees rotations about its own centre.

    Arguments:
        rotate: The largest random angle in degrees; 0 leaves all digits alike, 180 is every angle.
        scale: The largest random enlargement; sizes lie between `1 / scale` and `scale`, evenly in the logarithm.
        split: Which images of MNIST are drawn from.
        images: Images `(M, 28, 28)` of bytes and labels `(M,)` in place of MNIST.

    References:
        The paper, section 5.3 and appendix C.3.
    """
    if samples < 1:
        raise InputError(f"`samples` must be positive, got {samples}.")
    if not 0 <= rotate <= 180:
        raise InputError(f"`rotate` must lie between 0 and 180 degrees, got {rotate}.")
    if not 1 <= scale <= 4:
        raise InputError(f"`scale` must lie between 1 and 4, got {scale}.")
    ink, labels = load_mnist(split) if images is None else images
    chosen = torch.randint(len(ink), (samples, 3), generator=generator)
    angles = math.radians(rotate) * (2 * torch.rand(samples, 3, generator=generator) - 1)
    sizes = torch.exp(math.log(scale) * (2 * torch.rand(samples, 3, generator=generator) - 1))
    width = 2 * RADIUS + 1
    bright = torch.zeros(samples, HEIGHT, WIDTH, dtype=torch.uint8)
    y = torch.full((samples, HEIGHT, WIDTH), BACKGROUND, dtype=torch.uint8)
    digits = labels[chosen].long()
    for part in torch.arange(samples).split(_CHUNK):
        patches = _draw(ink[chosen[part].flatten()], angles[part].flatten(), sizes[part].flatten())
        patches = patches.reshape(-1, 3, width, width)
        classes = torch.where(patches > 0, digits[part][..., None, None], BACKGROUND).to(torch.uint8)
        for k, (row, column) in enumerate(CENTRES):
            window = (slice(row - RADIUS, row + RADIUS + 1), slice(column - RADIUS, column + RADIUS + 1))
            bright[part[0] : part[-1] + 1, *window] = patches[:, k]
            y[part[0] : part[-1] + 1, *window] = classes[:, k]
    return SphereDigits(bright[:, None].float() / 255, y, digits, angles, sizes)


def _draw(images: Tensor, angles: Tensor, sizes: Tensor) -> Tensor:
    """Images `(M, 28, 28)` of bytes, rotated and enlarged about their centre, with shape `(M, 29, 29)`."""
    p = pixel_grid((2 * RADIUS + 1, 2 * RADIUS + 1))
    angles = math.pi / 2 + angles
    c, s = angles.cos() / sizes, angles.sin() / sizes
    back = torch.stack([torch.stack([c, s], -1), torch.stack([-s, c], -1)], -2)  # the inverse of the transformation
    points = p @ back.mT + (images.shape[-1] - 1) / 2
    drawn = resample(images[:, None].float(), points, interpolation="bilinear", fill="zeros")
    # Bytes again, as in an image: "fully black" then has one meaning.
    return drawn.round().to(torch.uint8).reshape(-1, 2 * RADIUS + 1, 2 * RADIUS + 1)


_MOST = 256 << 20
FILES = {
    "train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
    "test": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"),
}


def load_mnist(split: Literal["train", "test"] = "train") -> tuple[Tensor, Tensor]:
    """Images `(N, 28, 28)` and labels `(N,)`, both bytes: 60,000 to train on, 10,000 to test on."""
    if split not in FILES:
        raise InputError(f"`split` must be 'train' or 'test', got {split!r}.")
    images, labels = (read_idx(_path(name)) for name in FILES[split])
    if images.ndim != 3 or images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise DataError(
            f"the digits must be images (N, 28, 28) with labels (N,), got {tuple(images.shape)} and "
            f"{tuple(labels.shape)}; fetch the files again."
        )
    return images, labels


def read_idx(path: Path) -> Tensor:
    """The array of bytes in a gzipped idx file."""
    with reading(path, "gzipped idx file"):
        return _unpacked_idx(path)


def _unpacked_idx(path: Path) -> Tensor:
    with gzip.open(path) as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise DataError(f"`{path}` must unpack to at most {_MOST >> 20} MB, got more; fetch it again.")
    if len(data) < 4 or data[:3] != b"\x00\x00\x08" or len(data) < 4 + 4 * data[3]:
        raise DataError(f"`{path}` must be an idx file of bytes, got something else; fetch it again.")
    shape = np.frombuffer(data, ">u4", count=data[3], offset=4).astype(int)
    if len(data) != 4 + 4 * data[3] + shape.prod():
        raise DataError(f"`{path}` must hold {shape.prod()} bytes, got {len(data) - 4 - 4 * data[3]}; fetch it again.")
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape).copy())


def _path(name: str) -> Path:
    """The path of a file below ATLASD_DATA or in the user's cache; fetches it if it is missing."""
    path = data_directory("mnist") / name
    return path if path.is_file() else fetch(find_data("mnist"), only=(name,))[0]
