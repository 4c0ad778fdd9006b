"""Charts for a field of one's own: as asked for, on a grid, or where the data allow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from atlasd.data.arrays import OwnData
from atlasd.discovery.locality import MOST, ChartSurvey, survey_charts
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.progress import Progress

NOT_LINEAR = 3
"""How many times longer a map takes that is not linear."""


@dataclass(frozen=True)
class Placement:
    """How charts will be placed, checked but not yet done.

    Arguments:
        kind: `auto`, `grid`, `whole`, `centres`, `sphere` or `none`.
        atlas: The charts, where they are known beforehand.
        seconds: How long the whole discovery may take, for a linear map on a free machine.
    """

    kind: str
    atlas: Atlas | None
    in_radius: int | None
    out_radius: int | None
    seconds: float
    most: int = 1

    def describe(self) -> str:
        """One line for people."""
        if self.kind == "none":
            return "none, the inputs are vectors"
        if self.kind == "whole":
            return "one, the whole field"
        if self.atlas is None:
            few = f", at most {self.most}" if self.most < min(MOST.values()) else ""
            return f"auto: tiles of the field{few}, at a radius at which the map is measured to be local"
        radii = self.atlas.radii
        sizes = f", in-radius {radii[0]}, out-radius {radii[1]}" if radii else ""
        return f"{self.kind}, {len(self.atlas)} of them{sizes}"


def plan_charts(
    data: OwnData,
    asked: str,
    in_radius: int | None,
    out_radius: int | None,
    vectors: Sequence[tuple[int, int]] = (),
    budget: float | None = None,
) -> Placement:
    """Checks what was asked for against the data; nothing is measured yet.

    Arguments:
        asked: `auto`, `grid`, `whole`, `sphere:K`, or centres `row,column;row,column`.
        in_radius: Half the width of input patches; suits the field by default.
        out_radius: Half the width of output patches.
        vectors: Pairs of channels that are components of a vector; charts of the sphere rotate them.
        budget: Seconds of a free machine in which an answer is wanted; `auto` takes fewer charts where it is short.
    """
    if not data.is_field:
        if asked != "auto" or in_radius or out_radius:
            raise InputError(
                f"--charts and radii must be left out for vectors, got inputs of shape {tuple(data.x.shape)}."
            )
        return Placement("none", None, None, None, _vector_seconds(data))
    shape = tuple(data.x.shape[2:])
    if in_radius is not None and out_radius is not None and out_radius >= in_radius:
        raise InputError(
            f"--out-radius must be smaller than --in-radius, got {out_radius} and {in_radius}; "
            "the difference is how far the map may reach."
        )
    room = (min(shape) - 1) // 2
    if (in_radius or 1) > room or room < 3:
        raise InputError(
            f"--in-radius must fit into the field of shape {shape}, got {in_radius or 'the default'}; "
            f"use at most {room}."
            if room >= 3
            else f"fields must be at least 7 pixels wide to hold a chart, got shape {shape}; use --charts whole."
        )
    if asked == "auto":
        most = MOST[len(shape)]
        if budget is not None:
            least = 2 ** len(shape)  # a tiling has charts at both ends of every axis
            fits = [k for k in range(least, most) if NOT_LINEAR * (_field_seconds(data, k) + 5) <= budget]
            most = max(fits, default=least)
        return Placement("auto", None, in_radius, out_radius, _field_seconds(data, most) + 5, most)
    if asked == "whole":
        return Placement("whole", Atlas.whole(), None, None, _field_seconds(data, 1))
    out = out_radius or max(2, min(12, min(shape) // 12, room - 3))
    inner = in_radius or min(out + 4, room)
    if out >= inner:
        out = max(1, inner - min(4, inner // 2))
    if asked == "grid":
        atlas = _limited_grid(shape, inner, out)
    elif asked.startswith("sphere"):
        atlas = _sphere(asked, shape, inner, out, vectors)
    else:
        atlas = Atlas.at(_centres(asked, len(shape)), inner, out)
    atlas.check(shape)
    kind = asked if asked == "grid" else "sphere" if asked.startswith("sphere") else "centres"
    return Placement(kind, atlas, inner, out, _field_seconds(data, len(atlas)))


def place_charts(
    data: OwnData, placement: Placement, seed: int, progress: Progress
) -> tuple[Atlas | None, ChartSurvey | None]:
    """The charts; where that was asked for, they are measured, and the survey tells how."""
    if placement.kind != "auto":
        return placement.atlas, None
    survey = survey_charts(
        data.x,
        data.y,
        in_radius=placement.in_radius,
        out_radius=placement.out_radius,
        masked=None if data.masked is None else torch.from_numpy(data.masked),
        most=placement.most,
        seed=seed,
        progress=progress,
    )
    progress.say(f"survey: {survey.describe()}")
    return survey.atlas, survey


def _limited_grid(shape: tuple[int, ...], inner: int, out: int) -> Atlas:
    """A tiling, with wider gaps where it would have too many charts."""
    stride = 2 * out + 1
    atlas = Atlas.grid(shape, inner, out, stride)
    while len(atlas) > MOST[len(shape)]:
        stride += max(1, out // 2)
        atlas = Atlas.grid(shape, inner, out, stride)
    return atlas


def _sphere(asked: str, shape: tuple[int, ...], inner: int, out: int, vectors: Sequence[tuple[int, int]]) -> Atlas:
    """Charts of the sphere with pixels as large as those of the grid."""
    count = asked.removeprefix("sphere").removeprefix(":") or "12"
    if not count.isdigit() or not 1 <= int(count) <= 200:
        raise InputError(f"--charts sphere:K needs a number of charts from 1 to 200, got {asked!r}; write sphere:12.")
    if len(shape) != 2 or not 1.9 <= shape[1] / shape[0] <= 2.2 or shape[1] % 2:
        raise InputError(
            f"--charts sphere needs a grid of the whole sphere, latitude by twice as many longitudes, got {shape}; "
            "use --charts auto for a part of it."
        )
    return Atlas.sphere(int(count), inner, out, pixel=180 / shape[0], vectors=vectors)


def _centres(text: str, dimensions: int) -> list[tuple[float, ...]]:
    centres = []
    for part in text.split(";"):
        try:
            centre = tuple(float(c) for c in part.split(","))
        except ValueError:
            centre = ()
        if len(centre) != dimensions:
            example = "64,19;86,19" if dimensions == 2 else "8,64,19;8,86,19"
            raise InputError(
                f"--charts must be auto, grid, whole, sphere:K or centres such as '{example}', got {text!r}."
            )
        centres.append(centre)
    return centres


def slowness(seconds: float = 0.2) -> float:
    """How many times longer than its own time work takes at present: 1 on a free machine, more on a shared one.

    Measured on a moment of work of the kind that is to be done.
    """
    field = torch.randn(8, 1, 32, 32, generator=torch.Generator().manual_seed(0))
    kernel = torch.ones(4, 1, 7, 7)
    wall, own = time.perf_counter(), time.thread_time()
    while time.thread_time() - own < seconds:
        torch.nn.functional.conv2d(field, kernel)
    spent = time.thread_time() - own
    return max((time.perf_counter() - wall) / max(spent, 1e-9), 1.0)


def _field_seconds(data: OwnData, charts: int) -> float:
    """Measured on two cores, for a linear map: fitting grows with charts and samples, every search with charts."""
    dimensions, channels = data.x.ndim - 2, data.x.shape[1]
    fit = 0.0005 * charts * len(data.x) * channels**2
    # Channels without names may be components of vectors in three conventions, or scalars.
    questions = 4 if dimensions == 2 and channels % 2 == 0 and not data.inputs else 1
    return (fit + questions * (0.5 * charts + 4)) * (7 if dimensions == 3 else 1) * (5 if data.classes else 1)


def _vector_seconds(data: OwnData) -> float:
    """Measured on one thread: a search for every question, one for cosets and translations, for sets the pairs, too."""
    if data.classes:
        return 20 + 0.004 * len(data.x) + 0.02 * data.x[0].numel()
    tokens, outputs = data.x.shape[1] if data.x.ndim == 3 else 0, data.y[0].numel()
    questions = 3 if outputs % data.x.shape[-1] == 0 else 1  # vectors, covectors, invariants
    return (questions + 1) * (2 + 0.0035 * len(data.x)) + 0.004 * len(data.x) * tokens
