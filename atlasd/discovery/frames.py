"""Frames: small pictures of what a transformation does to both sides of a map, kept for the report."""

from __future__ import annotations

__all__ = ["OUTSIDE", "Frames", "Picture", "Track"]

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

OUTSIDE = 255
"""The level of pixels that do not count."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Numbers as levels: 0 is `low`, 254 is `high`, and `OUTSIDE` does not count.

    Arguments:
        levels: With shape `(*, h, w)`, unsigned bytes.
        low: The smallest number.
        high: The largest.

    Example:
        >>> Picture.of(torch.tensor([[0.0, 1.0, float("nan")]])).levels.tolist()
        [[0, 254, 255]]
    """

    levels: Tensor
    low: float
    high: float

    @classmethod
    def of(cls, values: Tensor, low: float | None = None, high: float | None = None) -> Picture:
        """Rounds values `(*, h, w)` to levels; numbers beyond the ends are drawn as the ends, NaN as outside."""
        finite = values[values.isfinite()]
        if low is None:
            low = float(finite.min()) if len(finite) else 0.0
        if high is None:
            high = float(finite.max()) if len(finite) else 1.0
        share = (values.double() - low) / max(high - low, 1e-300)
        levels = (share.clamp(0.0, 1.0) * 254).round().nan_to_num(OUTSIDE)
        return cls(levels.to(torch.uint8), low, high)


@dataclass(frozen=True, eq=False)
class Track:
    """One path through matrices, and what each step does.

    Arguments:
        name: What changes: `generator 1`, `elements`, or `contrast scaling`.
        t: Size of every step, with shape `(T,)`; the number of the element for `elements`.
        matrices: With shape `(T, n, n)`.
        residual: Mean squared difference of the two sides over held-out samples, in units of the outputs' variance.
        null: Null level: what unrelated transformations would give, in the same units.
        covered: How far transformed inputs are still like those fitted to, from 0 to 1.
        pictures: For fields: `input`, `left` (the map of the transformed input), `right` (the transformed
            output of the map) and `difference`, each with levels `(T, h, w)`.
        points: For vectors: `input` with shape `(T, B, 2)`, `left` and `right` with shape `(T, B)`.
        axes: The two components of the vectors that `points` shows.
    """

    name: str
    t: Tensor
    matrices: Tensor
    residual: Tensor
    null: Tensor
    covered: Tensor
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    points: Mapping[str, Tensor] = field(default_factory=dict)
    axes: tuple[int, int] = (0, 1)


_CURVES = {"t": "t", "matrices": "matrices", "residual": "miss", "null": "chance", "covered": "covered"}
"""Names in files, which stay as they were."""


@dataclass(frozen=True, eq=False)
class Frames:
    """What the slider of the report shows, and the field under its map.

    Arguments:
        tracks: The paths.
        field: One input field, levels `(h, w)`, possibly made smaller; `None` for vectors.
        shape: Spatial shape of the data's fields, in pixels; empty for vectors.
        radii: In- and out-radius of the charts in pixels; empty where the chart is everything.
        chart: Number of the chart that is shown.
        places: Where the charts lie on the field, in pixels; empty where the chart is everything.
    """

    tracks: tuple[Track, ...] = ()
    field: Picture | None = None
    shape: tuple[int, ...] = ()
    radii: tuple[float, ...] = ()
    chart: int = 0
    places: tuple[tuple[float, ...], ...] = ()

    def tensors(self) -> dict[str, Tensor]:
        """Everything by name, for a file."""
        named = {
            "shape": torch.tensor(self.shape, dtype=torch.int64),
            "radii": torch.tensor(self.radii, dtype=torch.float64),
            "chart": torch.tensor(self.chart),
            "places": torch.tensor(self.places, dtype=torch.float64),
        }
        if self.field is not None:
            named |= _pack("field", self.field)
        for number, track in enumerate(self.tracks):
            head = f"{number:02d}/{track.name}"
            named |= {f"{head}/{stored}": getattr(track, key) for key, stored in _CURVES.items()}
            named[f"{head}/axes"] = torch.tensor(track.axes)
            named |= {f"{head}/points/{key}": value for key, value in track.points.items()}
            for key, picture in track.pictures.items():
                named |= _pack(f"{head}/pictures/{key}", picture)
        return {key: value.detach().clone().contiguous() for key, value in named.items()}

    @classmethod
    def from_tensors(cls, named: Mapping[str, Tensor]) -> Frames:
        """The opposite of `tensors`."""
        heads = sorted({"/".join(key.split("/")[:2]) for key in named if key[:2].isdigit()})
        return cls(
            tracks=tuple(_track(head, named) for head in heads),
            field=_unpack("field", named) if "field" in named else None,
            shape=tuple(named["shape"].tolist()),
            radii=tuple(named["radii"].tolist()),
            chart=int(named["chart"]),
            places=tuple(tuple(place) for place in named["places"].tolist()),
        )


def _track(head: str, named: Mapping[str, Tensor]) -> Track:
    inside = {key[len(head) + 1 :]: value for key, value in named.items() if key.startswith(f"{head}/")}
    pictures = [k.split("/")[1] for k in inside if k.startswith("pictures/") and not k.endswith(".range")]
    first, second = inside["axes"].tolist()
    return Track(
        name=head.split("/")[1],
        **{key: inside[stored] for key, stored in _CURVES.items()},
        pictures={key: _unpack(f"pictures/{key}", inside) for key in pictures},
        points={k.split("/")[1]: v for k, v in inside.items() if k.startswith("points/")},
        axes=(first, second),
    )


def _pack(name: str, picture: Picture) -> dict[str, Tensor]:
    return {name: picture.levels, f"{name}.range": torch.tensor([picture.low, picture.high], dtype=torch.float64)}


def _unpack(name: str, named: Mapping[str, Tensor]) -> Picture:
    low, high = named[f"{name}.range"].tolist()
    return Picture(named[name], low, high)
