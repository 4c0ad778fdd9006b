"""Upright digits: a negative made of real data. Digits that were never rotated tell nothing about rotations."""

from __future__ import annotations

__all__ = ["digits_reason", "upright_digits"]

import os
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.known import trivial
from atlasd.geometry.atlas import Atlas
from atlasd.studies.digits.data import read_idx
from atlasd.studies.zoo.system import System

_IMAGES, _LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def _folder() -> Path | None:
    root = os.environ.get("ATLASD_DATA")
    return Path(root) / "mnist" if root else None


def digits_reason() -> str | None:
    """Why the digits cannot be had, or `None` where they can."""
    folder = _folder()
    if folder is None:
        return "Skipped: the digits need ATLASD_DATA, which is not set."
    missing = [name for name in (_IMAGES, _LABELS) if not (folder / name).is_file()]
    return f"Skipped: {folder / missing[0]} is not there." if missing else None


def _read(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Some images `(N, 1, 28, 28)` between 0 and 1, slightly blurred, and their labels `(N,)`."""
    folder = _folder()
    assert folder is not None
    images, labels = read_idx(folder / _IMAGES), read_idx(folder / _LABELS)
    chosen = torch.randperm(len(images), generator=generator)[:samples]
    x = images[chosen, None].float() / 255
    # Ink has sharp edges; a slight blur leaves a field whose slopes mean something.
    kernel = torch.tensor([0.25, 0.5, 0.25])
    x = functional.conv2d(x, kernel.reshape(1, 1, 3, 1), padding=(1, 0))
    return functional.conv2d(x, kernel.reshape(1, 1, 1, 3), padding=(0, 1)), labels[chosen].long()


class _Digits:
    """Samples images and remembers their labels until they are asked for."""

    def __init__(self) -> None:
        self._labels = torch.zeros(0, dtype=torch.long)

    def sample(self, samples: int, generator: torch.Generator) -> Tensor:
        x, self._labels = _read(samples, generator)
        return x

    def classes(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The digit where there is ink and class 10 elsewhere, `(N, 28, 28)`."""
        return torch.where(x[:, 0] > 0.25, self._labels[:, None, None], 10)


def upright_digits() -> System:
    """Which digit every pixel belongs to, learned from digits that all stand upright."""
    digits = _Digits()
    return System(
        name="upright_digits",
        truth=trivial(2),
        sample=digits.sample,
        function=None,
        labels=digits.classes,
        atlas=Atlas.at([(14, 14)], in_radius=13, out_radius=8),
        oracle=False,
        note="pixel classes of digits that were never rotated",
    )
