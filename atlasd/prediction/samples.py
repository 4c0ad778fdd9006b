"""The data of a discovery, checked at the door and read chart by chart as they are needed."""

from __future__ import annotations

__all__ = ["BLOCK", "Inputs", "Samples", "chart_blocks", "split_indices"]

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.sources import gather

BLOCK = 5
"""The most charts in a block. Fixed, so that sums do not depend on the number of workers."""


def chart_blocks(charts: int, size: int = BLOCK) -> list[range]:
    """Charts in blocks of nearly equal size.

    Example:
        >>> [len(block) for block in chart_blocks(19)]
        [5, 5, 5, 4]
    """
    count = -(-charts // size)
    edges = [-(-charts * i // count) for i in range(count + 1)]
    return [range(a, b) for a, b in pairwise(edges)]


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and targets, with the atlas through which they are seen.

    Arguments:
        x: Fields `(N, C, *S)`, vectors `(N, n)` or sets of vectors `(N, P, n)`.
        y: Targets: fields, `(N,)`, `(N, outputs)` or integer classes; `None` with an oracle.
        atlas: Where the charts lie; the whole by default.
        is_field: Whether `x` holds fields.
        classes: Number of classes, 0 for regression.
    """

    x: Tensor
    y: Tensor | None
    atlas: Atlas
    is_field: bool
    classes: int = 0

    @classmethod
    def check(cls, x: Any, y: Any = None, atlas: Atlas | None = None, *, minimum: int = 8) -> Samples:
        """Accepts what `gather` does, and raises one clear error for what cannot be used.

        Arguments:
            x: Inputs; fields have at least 4 axes. A torch dataset or loader gives the targets, too.
            y: Targets.
            atlas: Charts; required for local discovery on fields.
            minimum: The smallest usable number of samples.
        """
        x, y = gather(x, y)
        x = _tensor(x, "x")
        if not x.is_floating_point():
            raise InputError(f"`x` must hold floating-point numbers, got {x.dtype}; convert it with x.float().")
        if x.ndim < 2 or x.ndim > 5:
            raise InputError(
                f"`x` must have shape (N, n), (N, P, n), (N, C, H, W) or (N, C, D, H, W), got {tuple(x.shape)}."
            )
        if x[:1].numel() == 0 and len(x):
            raise InputError(f"`x` must not be empty, got shape {tuple(x.shape)}.")
        if len(x) < minimum:
            raise InputError(f"`x` must hold at least {minimum} samples, got {len(x)}; give more data.")
        _check_finite(x, "x")
        is_field = x.ndim >= 4
        if atlas is not None and not is_field and atlas.radii is not None:
            raise InputError(
                f"`atlas` must be left out for vectors, got {len(atlas)} charts on x of shape {tuple(x.shape)}."
            )
        atlas = Atlas.whole() if atlas is None else atlas
        if is_field:
            atlas.check(x.shape[2:])
        classes = 0
        if y is not None:
            y = _tensor(y, "y")
            y, classes = _targets(x, y, is_field)
        return cls(x, y, atlas, is_field, classes)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def blocks(self) -> list[range]:
        """Charts as they are worked on together; one block where inputs are no fields."""
        return chart_blocks(len(self.atlas))

    def part(self, charts: range) -> Samples:
        """The same samples seen through some of the charts."""
        return replace(self, atlas=self.atlas.select(charts))

    @property
    def size(self) -> int:
        """Size n of the matrices that act."""
        return self.x.ndim - 2 if self.is_field else self.x.shape[-1]

    def inputs(self, index: Tensor) -> Tensor:
        """Inputs of some samples, with shape `(B, K, *in)`, as floats of one kind."""
        x = self.x[index].to(index.device)  # data may be elsewhere; what is worked on is where the index is
        x = x if x.dtype in (torch.float32, torch.float64) else x.float()
        return self.atlas.input_patches(x) if self.is_field else x.unsqueeze(1)

    def targets(self, index: Tensor) -> Tensor:
        """Targets of some samples: `(B, K, *out)`, or class numbers `(B, K, *pixels)`."""
        assert self.y is not None
        y = self.y[index].to(index.device)
        if self.is_field:
            y = self.atlas.output_patches(y)
            return y.long().squeeze(2) if self.classes else y
        return y.long().unsqueeze(1) if self.classes else y.unsqueeze(1)


@dataclass(frozen=True, eq=False)
class Inputs:
    """Reads inputs of given samples through the charts: indices `(B,)` to `(B, K, *in)`."""

    samples: Samples

    def __call__(self, index: Tensor) -> Tensor:
        return self.samples.inputs(index)

    def part(self, charts: range) -> Inputs:
        """The same through some of the charts, and without targets."""
        return Inputs(replace(self.samples.part(charts), y=None))


def split_indices(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Shuffled indices to fit on (60 %), to search and stop early on (20 %), and to judge on (20 %)."""
    order = torch.randperm(samples, generator=generator)
    a, b = int(0.6 * samples), int(0.8 * samples)
    return order[:a], order[a:b], order[b:]


def _tensor(value: Any, name: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach()
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"dtype {array.dtype}")
        return torch.from_numpy(np.ascontiguousarray(array))
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must be an array of numbers, got {type(value).__name__} ({error}).") from error


def _check_finite(value: Tensor, name: str) -> None:
    # In parts: a mask as large as the data would double the memory.
    bad, first = 0, None
    for start in range(0, len(value), 4096):
        wrong = (
            ~torch.isfinite(value[start : start + 4096]).flatten(1).all(1)
            if value.ndim > 1
            else ~torch.isfinite(value[start : start + 4096])
        )
        if bool(wrong.any()):
            bad += int(wrong.sum())
            first = start + int(wrong.nonzero()[0]) if first is None else first
    if bad:
        raise InputError(
            f"`{name}` must be finite, got NaN or infinity in {bad} of {len(value)} samples (first: sample {first}); "
            "drop or fill them."
        )


def _targets(x: Tensor, y: Tensor, is_field: bool) -> tuple[Tensor, int]:
    if y.ndim == 0 or len(y) != len(x):
        raise InputError(
            f"`y` must have as many samples as `x` ({len(x)}), got {len(y) if y.ndim else 'a single number'}."
        )
    if y.is_complex():
        raise InputError(f"`y` must hold real numbers, got {y.dtype}; give real and imaginary parts as outputs.")
    if y.is_floating_point():
        _check_finite(y, "y")
        if is_field:
            if y.ndim != x.ndim or y.shape[2:] != x.shape[2:]:
                raise InputError(
                    f"`y` must be a field on the grid of `x`, (N, C, {', '.join(map(str, x.shape[2:]))}), "
                    f"got {tuple(y.shape)}."
                )
            return y, 0
        if y.ndim > 2:
            raise InputError(f"`y` must have shape (N,) or (N, outputs), got {tuple(y.shape)}.")
        return (y.unsqueeze(-1) if y.ndim == 1 else y), 0
    y = y.long()
    if is_field and y.ndim == x.ndim - 1:
        y = y.unsqueeze(1)
    if is_field and (y.shape[1] != 1 or y.shape[2:] != x.shape[2:]):
        raise InputError(f"`y` must hold one class per pixel of `x` {tuple(x.shape)}, got {tuple(y.shape)}.")
    if not is_field and y.ndim != 1:
        raise InputError(f"`y` must hold one class per sample, (N,), got {tuple(y.shape)}.")
    low, high = int(y.min()), int(y.max())
    if low < 0 or high > 1000:
        raise InputError(f"`y` of integers must hold classes from 0 to at most 1000, got {low} to {high}; use floats.")
    return y, high + 1
