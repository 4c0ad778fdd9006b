"""The data of a discovery, checked at the door and read chart by chart as they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.masked import MaskedTensor

from atlasd.data.cleaning import find_copies, refuse_copies, unmasked
from atlasd.data.sources import gather
from atlasd.data.stored import Stored, spill, stored
from atlasd.data.units import Units, spreads
from atlasd.errors import AtlasdError, InputError
from atlasd.geometry.atlas import Atlas

Plant: TypeAlias = Callable[[Tensor, Tensor, int], Tensor]
"""Inputs `(B, K, *in)`, targets and the number of classes to targets with something added."""

BLOCK = 10
"""The most charts in a block. Fixed, so that sums do not depend on the number of workers."""
ONE_LABEL = "give a value for every pixel, such as a mask, or features of the image as vectors (N, n)"
"""What helps where a whole image has one label."""
LARGEST = 16
"""Components of vectors of a set, or channels of a field; where all axes are longer, they are axes of space."""


def is_solid(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Whether inputs with four axes are fields in space without an axis of channels, by the shape of their targets."""
    grid, rest = tuple(shape[1:]), tuple(other[1:])
    return len(grid) == 3 and ((rest == grid and min(grid) > LARGEST) or (len(rest) == 4 and rest[1:] == grid))


def chart_blocks(charts: int, size: int = BLOCK) -> list[range]:
    """Charts in blocks of nearly equal size; more than half a block becomes two, so that two can work on them.

    Example:
        >>> [len(block) for block in chart_blocks(19)]
        [10, 9]
    """
    count = max(-(-charts // size), min(-(-2 * charts // size), 2))
    edges = [-(-charts * i // count) for i in range(count + 1)]
    return [range(a, b) for a, b in pairwise(edges)]


_REMEDIES = {
    "O": "; .astype(float) makes numbers of objects that stand for numbers",
    "U": "; np.unique(y, return_inverse=True)[1] gives numbers to classes",
}


@dataclass(frozen=True, eq=False)
class Samples:
    """Inputs and targets, with the atlas through which they are seen.

    Arguments:
        x: Fields `(N, C, *S)`, vectors `(N, n)` or sets of vectors `(N, P, n)`.
        y: Targets: fields, `(N,)`, `(N, outputs)` or integer classes; `None` with an oracle. Both may be
            references to files, and are then read as they are needed.
        atlas: Where the charts lie; the whole by default.
        units: Standard units in which inputs and targets are read; raw by default.
        plant: A known function that is added to the targets, `None` for none.
    """

    x: Tensor | Stored
    y: Tensor | Stored | None
    atlas: Atlas
    is_field: bool
    classes: int = 0
    units: Units | None = None
    plant: Plant | None = None

    @classmethod
    def check(cls, x: Any, y: Any = None, atlas: Atlas | None = None, *, minimum: int = 8) -> Samples:
        """Accepts what `gather` does, and raises one clear error for what cannot be used.

        Arguments:
            x: Inputs; fields have at least 4 axes. A torch dataset or loader gives the targets, too.
            atlas: Charts; required for local discovery on fields.
            minimum: The smallest usable number of samples.
        """
        x, y = gather(x, y)
        x = _tensor(x, "x")
        if x.dtype.is_complex:
            raise InputError(f"`x` must hold real numbers, got {x.dtype}; give real and imaginary parts as channels.")
        if isinstance(x, Tensor) and not x.dtype.is_floating_point:
            x = x.double() if x.dtype in (torch.int32, torch.int64) else x.float()
        if not x.dtype.is_floating_point:
            raise InputError(f"`x` must hold floating-point numbers, got {x.dtype}; convert it with x.float().")
        if x.ndim in (3, 4) and isinstance(x, Tensor):
            x, y = _one_channel(x, y, atlas)
        if x.ndim == 3 and y is not None and min(x.shape[1:]) > LARGEST:
            raise InputError(
                f"`y` must have a value for every pixel of x of shape {tuple(x.shape)}, got one for each image; "
                f"{ONE_LABEL}. Sets of vectors may have at most {LARGEST} components."
            )
        if x.ndim < 2 or x.ndim > 5:
            raise InputError(
                f"`x` must have shape (N, n), (N, P, n), (N, C, H, W) or (N, C, D, H, W), got {tuple(x.shape)}."
            )
        if 0 in x.shape[1:] and len(x):
            raise InputError(f"`x` must not be empty, got shape {tuple(x.shape)}.")
        if len(x) < minimum:
            raise InputError(f"`x` must hold at least {minimum} samples, got {len(x)}; give more data.")
        if isinstance(x, Tensor):  # what is read from files is checked then
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
            if isinstance(x, Tensor) and isinstance(y, Tensor):
                refuse_copies(*find_copies(_array(x), _array(y)), "drop them")
        if not is_field and isinstance(x, Tensor) and not bool(x.any()):
            raise InputError("`x` must vary, got zeros only; give the inputs of the map.")
        return cls(x, y, atlas, is_field, classes)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def blocks(self) -> list[range]:
        """Charts as they are worked on together; one block where inputs are no fields."""
        return chart_blocks(len(self.atlas))

    def part(self, charts: Iterable[int]) -> Samples:
        """The same samples seen through some of the charts."""
        return replace(self, atlas=self.atlas.select(charts))

    @property
    def size(self) -> int:
        """Size n of the matrices that act."""
        return self.x.ndim - 2 if self.is_field else self.x.shape[-1]

    @property
    def outputs(self) -> int:
        """Channels or numbers of the targets."""
        assert self.y is not None
        return self.y.shape[1] if self.y.ndim > 1 else 1

    def in_files(self, directory: Callable[[], Path]) -> Samples:
        """The same samples with their arrays in files, which are written if needed: a task is sent a reference."""
        x, y = self.x, self.y
        with ThreadPoolExecutor(2) as both:
            first = None if isinstance(x, Stored) else both.submit(spill, x, directory() / "x.bin")
            second = None if y is None or isinstance(y, Stored) else both.submit(spill, y, directory() / "y.bin")
        return replace(self, x=first.result() if first else x, y=second.result() if second else y)

    def loaded(self, most: int = 1024) -> tuple[Tensor, Tensor | None]:
        """Inputs and targets in memory; from files, at most this number of evenly spread samples."""
        if isinstance(self.x, Tensor) and not isinstance(self.y, Stored):
            return self.x, self.y
        index = torch.arange(0, len(self), -(-len(self) // most))
        return self.x[index], None if self.y is None else self.y[index]

    def in_order(self, index: Tensor) -> Tensor:
        """The indices as they are read best: sorted where the data lie in chunks."""
        return index.sort().values if self._rows else index

    def shuffled(self, index: Tensor, generator: torch.Generator) -> Tensor:
        """Positions in `index` in random order; where the data lie in chunks, shard by shard."""
        order = torch.randperm(len(index), generator=generator)
        if not self._rows:
            return order
        shards = torch.randperm(len(self) // self._rows + 1, generator=generator)
        return order[shards[index[order] // self._rows].argsort(stable=True)]

    @property
    def _rows(self) -> int:
        return self.x.rows if isinstance(self.x, Stored) else 0

    def standard(self, most: int = 4096, *, centred: bool = False, velocities: bool = False) -> Samples:
        """The same samples in standard units, which are taken from at most so many samples, evenly spread.

        Arguments:
            most: The most samples that are looked at.
            centred: Whether vectors are measured from their mean.
            velocities: Whether outputs transform as vectors do, and so are measured in their units.
        """
        index = torch.arange(0, len(self), max(1, -(-len(self) // most)))
        if self.is_field:
            # Pixels of one field are many: a few hundred fields tell the spread.
            index = index[:: max(1, len(index) // 256)]
            units = Units.of_fields(self.x[index])
        else:
            units = Units.of_vectors(self.x[index], centred=centred)
        if self.y is not None and not self.classes and velocities:
            units = units.with_velocities(self.y[index])
        elif self.y is not None and not self.classes:
            y = self.y[index]
            units = replace(units, outputs=spreads(y.movedim(1, -1).flatten(0, -2) if y.ndim > 1 else y[:, None]))
        return replace(self, units=units)

    def plain(self) -> Samples:
        """The same samples, with units that change nothing."""
        one = torch.ones(0, dtype=torch.float64)
        return replace(self, units=Units(torch.eye(self.size, dtype=torch.float64), one, one))

    def inputs(self, index: Tensor) -> Tensor:
        """Inputs of some samples, with shape `(B, K, *in)`, as floats of one kind."""
        x, atlas = self._seen(self.x, index)
        x = x if x.dtype in (torch.float32, torch.float64) else x.float()
        x = x if self.units is None else self.units.inputs(x)
        return atlas.input_patches(x) if self.is_field else x.unsqueeze(1)

    def _seen(self, data: Tensor | Stored, index: Tensor) -> tuple[Tensor, Atlas]:
        """Data of some samples, and the atlas that fits them: of files in chunks only the box around the charts."""
        if isinstance(data, Tensor) or not data.rows or not self.is_field:
            # Data may be elsewhere than what is worked on.
            here = index.to(data.device) if isinstance(data, Tensor) else index.cpu()
            return data[here].to(index.device), self.atlas
        box, atlas = self.atlas.cropped(data.shape[2:])
        return data.read(index.cpu(), box).to(index.device), atlas

    def targets(self, index: Tensor) -> Tensor:
        """Targets of some samples: `(B, K, *out)`, or class numbers `(B, K, *pixels)`.

        Where something is planted in classes, these are probabilities `(B, K, classes, *pixels)`.
        """
        assert self.y is not None
        y, atlas = self._seen(self.y, index)
        if self.is_field:
            y = y if y.ndim == self.x.ndim else y.unsqueeze(1)
            y = y if self.units is None or self.classes else self.units.targets(y)
            y = atlas.output_patches(y)
            y = y.long().squeeze(2) if self.classes else y
        elif self.classes:
            y = y.long().unsqueeze(1)
        else:
            y = y if y.ndim > 1 else y.unsqueeze(-1)
            y = (y if self.units is None else self.units.targets(y)).unsqueeze(1)
        return y if self.plant is None else self.plant(self.inputs(index), y, self.classes)


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


def _one_channel(x: Tensor, y: Any, atlas: Atlas | None) -> tuple[Tensor, Any]:
    """Fields `(N, H, W)` and `(N, D, H, W)` with an axis of one channel: told by an atlas, or by their targets."""
    grid = () if y is None else tuple(getattr(y, "shape", ()))
    axes = len(atlas.charts[0].center) if atlas is not None and atlas.radii is not None else 0
    if (is_solid(x.shape, grid) and axes != 2) or (x.ndim == 3 and (axes or grid[-2:] == tuple(x.shape[1:]))):
        x = x.unsqueeze(1)
        if len(grid) == x.ndim - 1:
            y = _tensor(y, "y")
            y = y.unsqueeze(1) if isinstance(y, Tensor) and y.is_floating_point() else y
    return x, y


def _tensor(value: Any, name: str) -> Tensor | Stored:
    if isinstance(value, Tensor) and not isinstance(value, MaskedTensor):
        return value.detach()
    given = type(value).__name__
    try:
        if isinstance(value, MaskedTensor | np.ma.MaskedArray | list | tuple):
            value = unmasked(value, name)
        if (reference := stored(value)) is not None:
            return reference
        array = np.asarray(value)
        if array.dtype.kind not in "fiubc":
            raise TypeError(f"dtype {array.dtype}{_REMEDIES.get(array.dtype.kind, '')}")
        # Of what torch does not know, long doubles, the first 53 bits are kept.
        kind = np.dtype("f8") if array.dtype.kind == "f" and array.itemsize > 8 else array.dtype.newbyteorder("=")
        array = np.ascontiguousarray(array, dtype=kind)
        # A copy of what may not be written: torch would warn, and writing would be undefined.
        return torch.from_numpy(array if array.flags.writeable else array.copy())
    except AtlasdError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"`{name}` must be an array of numbers, got {given} ({error}).") from error


def _extremes(y: Tensor | Stored) -> tuple[int, int]:
    """Smallest and largest class, read in parts."""
    step = max(y.rows if isinstance(y, Stored) else 0, 4096)
    parts = [y[slice(start, start + step)] for start in range(0, len(y), step)]
    return min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)


def _array(value: Tensor) -> np.ndarray:
    value = value.detach().cpu()
    return (value.float() if value.dtype == torch.bfloat16 else value).numpy()


def _check_finite(value: Tensor, name: str) -> None:
    if bool(value.sum().isfinite()):  # no sum hides what is not finite, and sums are quick
        return
    # In parts: a mask as large as the data would double the memory.
    bad, first = 0, None
    for start in range(0, len(value), 4096):
        wrong = ~torch.isfinite(value[start : start + 4096, None]).flatten(1).all(1)
        if bool(wrong.any()):
            bad += int(wrong.sum())
            first = start + int(wrong.nonzero()[0]) if first is None else first
    if bad:
        raise InputError(
            f"`{name}` must be finite, got NaN or infinity in {bad} of {len(value)} samples (first: sample {first}); "
            "drop or fill them."
        )


def _targets(x: Tensor | Stored, y: Tensor | Stored, is_field: bool) -> tuple[Tensor | Stored, int]:
    if y.ndim == 0 or len(y) != len(x):
        raise InputError(
            f"`y` must have as many samples as `x` ({len(x)}), got {len(y) if y.ndim else 'a single number'}."
        )
    if y.dtype.is_complex:
        raise InputError(f"`y` must hold real numbers, got {y.dtype}; give real and imaginary parts as outputs.")
    if y.dtype.is_floating_point:
        if isinstance(y, Tensor):
            _check_finite(y, "y")
        if is_field:
            if y.ndim != x.ndim or y.shape[2:] != x.shape[2:]:
                raise InputError(
                    f"`y` must be a field on the grid of `x`, (N, C, {', '.join(map(str, x.shape[2:]))}), "
                    f"got {tuple(y.shape)}{'; ' + ONE_LABEL if y.ndim < 3 else ''}."
                )
            return y, 0
        if y.ndim > 2:
            raise InputError(f"`y` must have shape (N,) or (N, outputs), got {tuple(y.shape)}.")
        return (y.unsqueeze(-1) if isinstance(y, Tensor) and y.ndim == 1 else y), 0
    if isinstance(y, Tensor):
        # Bytes stay bytes: classes of large fields are most of the memory.
        y = y.long() if y.dtype == torch.bool else y
        if is_field and y.ndim == x.ndim - 1:
            y = y.unsqueeze(1)
    grid = (1, *x.shape[2:])
    if is_field and tuple(y.shape[1:]) != grid and (isinstance(y, Tensor) or tuple(y.shape[1:]) != grid[1:]):
        raise InputError(
            f"`y` must hold one class per pixel of `x` {tuple(x.shape)}, got {tuple(y.shape)}"
            f"{'; ' + ONE_LABEL if y.ndim < 3 else ''}."
        )
    if not is_field and y.ndim != 1:
        raise InputError(f"`y` must hold one class per sample, (N,), got {tuple(y.shape)}.")
    low, high = _extremes(y)
    if low < 0 or high > 1000:
        raise InputError(f"`y` of integers must hold classes from 0 to at most 1000, got {low} to {high}; use floats.")
    return y, high + 1
