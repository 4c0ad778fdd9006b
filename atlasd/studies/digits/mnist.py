"""Handwritten digits: the four idx files of MNIST, read from `ATLASD_DATA/mnist`, or fetched."""

from __future__ import annotations

__all__ = ["FILES", "load_mnist", "read_idx"]

import gzip
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from atlasd.data.damaged import reading
from atlasd.data.fetch import data_directory, fetch, find_data
from atlasd.errors import DataError, InputError

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
    with reading(path, "gzipped idx file"), gzip.open(path) as file:
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
    """Where the file is, below ATLASD_DATA or in the user's cache; it is fetched where it is not."""
    path = data_directory("mnist") / name
    return path if path.is_file() else fetch(find_data("mnist"), only=(name,))[0]
