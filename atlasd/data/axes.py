"""What the names of axes mean: samples, channels, space, or neither."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from atlasd.errors import InputError

_SAMPLE = (
    "time t sample samples sample_id member members realization realisation ensemble number event events "
    "batch case cases run record date valid_time n obs observation index simulation sim image images img "
    "trial year month day hour step frame snapshot row_id entry"
)
_CHANNEL = "channel channels c ch chan variable variables band bands feature features level lev plev species rgb"
_DEPTH = "z depth altitude alt k zc"
_ROW = "lat latitude y row rows height h rlat nlat j south_north north yc lats"
_COLUMN = "lon longitude long x column columns col cols width w rlon nlon i west_east east xc lons"
_ROLES = {
    **dict.fromkeys(_SAMPLE.split(), "N"), **dict.fromkeys(_CHANNEL.split(), "C"), **dict.fromkeys(_DEPTH.split(), "D"),
    **dict.fromkeys(_ROW.split(), "H"), **dict.fromkeys(_COLUMN.split(), "W"),
}  # fmt: skip


@dataclass(frozen=True)
class Arrangement:
    """Which axes of an array are samples, channels and space.

    Arguments:
        samples: Axes that count samples; several are merged.
        channels: Axes that count channels; several are merged.
        space: Axes of space in the order depth, row, column; empty for vectors.

    Example:
        >>> arrange(("lat", "lon", "time"), (5, 6, 40))(np.zeros((5, 6, 40))).shape
        (40, 1, 5, 6)
    """

    samples: tuple[int, ...]
    channels: tuple[int, ...]
    space: tuple[int, ...]

    def __call__(self, array: np.ndarray) -> np.ndarray:
        """The array as `(N, C, *S)`; vectors keep the order of their axes after the first."""
        moved = array.transpose(*self.samples, *self.channels, *self.space)
        sizes = [array.shape[a] for a in self.samples]
        channels = [array.shape[a] for a in self.channels]
        space = [array.shape[a] for a in self.space]
        if not space:
            return moved.reshape(math.prod(sizes), *channels)
        return moved.reshape(math.prod(sizes), math.prod(channels), *space)


def arrange(dims: tuple[str, ...], shape: tuple[int, ...]) -> Arrangement | None:
    """The meaning of named axes, or `None` where the names say nothing about space or samples."""
    # "lat_2", "x0" and "Time" are what their stems are.
    roles = [_ROLES.get(re.sub(r"[_\-]?\d+$", "", d.lower()), "?") for d in dims]
    if "H" in roles and "W" in roles:
        return _field(dims, shape, roles)
    samples = [k for k, r in enumerate(roles) if r == "N"]
    if not samples or len(samples) == len(dims) == 1:
        return None if not samples else Arrangement((0,), (), ())
    return Arrangement(tuple(samples), tuple(k for k in range(len(dims)) if k not in samples), ())


def _field(dims: tuple[str, ...], shape: tuple[int, ...], roles: list[str]) -> Arrangement:
    for role, meaning in (("H", "rows"), ("W", "columns"), ("D", "depth")):
        if roles.count(role) > 1:
            raise InputError(
                f"dimensions must name {meaning} once, got {dims}; choose one variable or rename a dimension."
            )
    samples = [k for k, r in enumerate(roles) if r == "N"]
    unknown = [k for k, r in enumerate(roles) if r == "?"]
    if not samples and unknown:
        samples, unknown = unknown[:1], unknown[1:]
    if not samples:
        raise InputError(
            f"one dimension must count samples, such as time, got {dims} of shape {shape}; one field is not enough."
        )
    channels = [k for k, r in enumerate(roles) if r == "C"] + unknown
    space = [roles.index(r) for r in "DHW" if r in roles]
    return Arrangement(tuple(samples), tuple(channels), tuple(space))
