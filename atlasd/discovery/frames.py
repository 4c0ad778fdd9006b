"""Frames: small pictures of what a transformation does to both sides of a map, for the report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.group import Group
from atlasd.discovery.problem import Problem
from atlasd.discovery.residual import Residual, known_inputs, scaled, sides
from atlasd.geometry.atlas import PlaneChart
from atlasd.runtime.executor import current_workers
from atlasd.runtime.packing import Shared

OUTSIDE = 255
"""The level of pixels that do not count."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Numbers as levels: 0 is `low`, 254 is `high`, and `OUTSIDE` does not count.

    Arguments:
        levels: With shape `(*, h, w)`, unsigned bytes.

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
            tracks=tuple(_read_track(head, named) for head in heads),
            field=_unpack("field", named) if "field" in named else None,
            shape=tuple(named["shape"].tolist()),
            radii=tuple(named["radii"].tolist()),
            chart=int(named["chart"]),
            places=tuple(tuple(place) for place in named["places"].tolist()),
        )


def _read_track(head: str, named: Mapping[str, Tensor]) -> Track:
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


STEPS = 21
"""Frames of a generator, a quarter turn to either side: it takes a grid to itself."""
_REACH = math.pi / 2
_MOST_GENERATORS = 7
_MOST_ELEMENTS = 16
_TILE = 48
_FIELD = 160
_SAMPLES = 16
_VECTORS = 256
_SHOWN = 48


def make_frames(problem: Problem, group: Group, weights: Tensor, *, testable: bool = True) -> Frames:
    """Transforms samples along every generator, through the cosets, and once where there is no symmetry.

    Arguments:
        group: What was found, in raw units.
        weights: Weights of the charts, with shape `(K,)`.
        testable: Whether there is anything to show; otherwise only the background is kept.
    """
    samples = problem.samples
    shown = int(weights.argmax())
    charts = samples.atlas.charts
    shape = tuple(samples.x.shape[2:]) if samples.is_field else ()
    places = [chart.locate(shape) for chart in charts] if shape else []
    # Radii of charts of a sphere are not in pixels of the field.
    radii = samples.atlas.radii if all(isinstance(chart, PlaneChart) for chart in charts) else None
    background = _background(samples.x[0]) if samples.is_field else None
    scene = Shared(_Scene.of(problem, shown))
    paths = _paths(group) if testable else []
    tracks = current_workers().map(_track, [(scene, *path) for path in paths], [p[0] for p in paths], quick=True)
    return Frames(
        tracks=tuple(tracks),
        field=background,
        shape=shape,
        radii=() if radii is None else tuple(float(r) for r in radii),
        chart=shown,
        places=tuple(tuple(float(v) for v in place) for place in places if place),
    )


class _Scene:
    """The samples that frames show; data are read in the process that makes the frames.

    Arguments:
        chart: The chart that is shown.
    """

    def __init__(self, problem: Problem, chart: int) -> None:
        self.problem, self.chart = problem, chart
        self._residual: Residual | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_residual": None}

    @classmethod
    def of(cls, problem: Problem, chart: int) -> _Scene:
        """Of many charts only the block of the one that is shown, so that time does not grow."""
        block = next(block for block in problem.blocks() if chart in block)
        return cls(replace(problem.part(block), fits=None), chart - block.start)

    @property
    def residual(self) -> Residual:
        """The residual on a few samples."""
        if self._residual is None:
            index = self.problem.pick(_SAMPLES if self.problem.is_field else _VECTORS)
            self._residual = Residual(self.problem, index, known_inputs(self.problem))
        return self._residual

    def track(self, name: str, t: Tensor, path: Tensor) -> Track:
        """One path through matrices of raw vectors."""
        standard = self.problem.units.to_standard(path)
        losses = self.residual.losses(standard)
        chart = slice(self.chart, self.chart + 1)
        scale = losses.scale[..., chart].sum((1, 2))
        excess = torch.where(scale > 0, losses.excess[..., chart].sum((1, 2)) / scale.clamp_min(1e-300), torch.nan)
        covered = losses.covered[..., chart].mean((1, 2))
        shown = self._pictures(standard) if self.problem.is_field else self._points(standard)
        return Track(name, t, path, excess.clamp(0.0, 1.0), torch.ones_like(excess), covered, **shown)

    def _pictures(self, path: Tensor) -> dict[str, Any]:
        problem, d = self.problem, self.problem.samples.size
        x = problem.inputs(self.residual.index)
        # The liveliest sample: a flat one shows nothing.
        lively = (x[:, self.chart] - x[:, self.chart].flatten(-d).mean(-1)[(..., *[None] * d)]).square()
        one = x[lively.flatten(1).mean(1).argmax()][None]
        with torch.no_grad():
            y = problem.outputs(one)
        inside, outside = _most_varied(one[0, self.chart]), _most_varied(y[0, self.chart])
        shape, room = tuple(y.shape[-d:]), tuple(one.shape[-d:])
        tiles: dict[str, list[Tensor]] = {"input": [], "left": [], "right": [], "difference": []}
        for g in path:
            with torch.no_grad():
                left, right = sides(problem.outputs, problem.action, one, y, g)
                moved = problem.action.on_input(g, one)
            window = problem.window(shape, g, room) > 0.5
            a, b = left[0, self.chart, outside], right[0, self.chart, outside]
            # Beyond the disc a transformation brings in what is not known, or pushes out what is.
            a, b = (torch.where(window, side.double(), torch.nan) for side in (a, b))
            for key, picture in zip(tiles, (moved[0, self.chart, inside], a, b, a - b), strict=True):
                tiles[key].append(_small(picture, _TILE))
        stacks = {key: torch.stack(parts) for key, parts in tiles.items()}
        both = torch.stack([stacks["left"], stacks["right"]])
        both = both[both.isfinite()]
        low, high = (float(both.min()), float(both.max())) if len(both) else (0.0, 1.0)
        # The same step of colour is the same difference in all three.
        half = max(high - low, 1e-12) / 2
        return {
            "pictures": {
                "input": Picture.of(stacks["input"]),
                "left": Picture.of(stacks["left"], low, high),
                "right": Picture.of(stacks["right"], low, high),
                "difference": Picture.of(stacks["difference"], -half, half),
            }
        }

    def _points(self, path: Tensor) -> dict[str, Any]:
        problem = self.problem
        x = problem.inputs(self.residual.index)
        with torch.no_grad():
            y = problem.outputs(x)
        output = int((y - y.mean(0)).double().square().flatten(1).nanmean(0).argmax())
        axes = _axes(path[:, : x.shape[-1], : x.shape[-1]])
        shown: dict[str, list[Tensor]] = {"input": [], "left": [], "right": []}
        for g in path.to(x.dtype):
            with torch.no_grad():
                left, right = sides(problem.outputs, problem.action, x, y, g)
                moved = problem.action.on_input(g, x)
            raw = problem.units.raw_inputs(moved[:_SHOWN, 0]).reshape(-1, x.shape[-1])[:_SHOWN]
            shown["input"].append(raw[:, list(axes)].float())
            shown["left"].append(left.flatten(1)[:_SHOWN, output].float())
            shown["right"].append(right.flatten(1)[:_SHOWN, output].float())
        return {"points": {key: torch.stack(rows) for key, rows in shown.items()}, "axes": axes}


def _track(scene: Shared[_Scene], name: str, t: Tensor, path: Tensor) -> Track:
    return scene.value.track(name, t, path)


def _paths(group: Group) -> list[tuple[str, Tensor, Tensor]]:
    """Names, sizes `(T,)` and matrices `(T, n, n)`."""
    t = torch.linspace(-_REACH, _REACH, STEPS, dtype=torch.float64)
    paths = []
    basis = group.algebra.basis.double()
    for number, a in enumerate(scaled(basis[:_MOST_GENERATORS])):
        paths.append((f"generator {number + 1}", t, torch.matrix_exp(t[:, None, None] * a)))
    if len(group.cosets) > 1:
        elements = group.cosets[:_MOST_ELEMENTS].double()
        paths.append(("elements", torch.arange(1.0, len(elements) + 1, dtype=torch.float64), elements))
    paths += [(f"contrast {name}", t, torch.matrix_exp(t[:, None, None] * a)) for name, a in _contrasts(basis)]
    return paths


def _contrasts(basis: Tensor) -> list[tuple[str, Tensor]]:
    """A plain direction that lies outside the algebra, by name; two where nothing was found."""
    n = basis.shape[-1]
    known = {"scaling": torch.eye(n, dtype=torch.float64)}
    if n > 1:
        rotation, boost, shear = torch.zeros(3, n, n, dtype=torch.float64)
        rotation[1, 0], rotation[0, 1], boost[0, 1], boost[1, 0], shear[0, 1] = 1.0, -1.0, 1.0, 1.0, 1.0
        known |= {"rotation": rotation, "squeeze": boost, "shear": shear}
    frame = torch.linalg.qr(basis.flatten(1).mT)[0] if len(basis) else basis.new_zeros(n * n, 0)
    outside = []
    for name, a in known.items():
        unit = a.flatten() / a.norm()
        outside.append((float((unit - frame @ (frame.mT @ unit)).norm()), name))
    # Ties go to the first: scaling is the one that everybody can picture.
    ranked = sorted((pair for pair in outside if pair[0] > 0.7), key=lambda pair: -round(pair[0], 6))
    return [(name, scaled(known[name])) for _, name in ranked[: 1 if len(basis) else 2]]


def _axes(path: Tensor) -> tuple[int, int]:
    """The two components that the path mixes most, or moves most."""
    n = path.shape[-1]
    if n == 1:
        return 0, 0
    moved = (path - torch.eye(n, dtype=path.dtype)).abs().amax(0)
    mixed = (moved + moved.mT).fill_diagonal_(0.0)
    if float(mixed.max()) < 1e-6:
        mixed = (moved.diagonal()[:, None] + moved.diagonal()[None]).fill_diagonal_(-1.0)
    first, second = divmod(int(mixed.argmax()), n)
    return min(first, second), max(first, second)


def _most_varied(field: Tensor) -> int:
    """The channel of `(C, *S)` that varies most."""
    rows = field.double().flatten(1)
    return int((rows - rows.mean(1, keepdim=True)).square().mean(1).argmax())


def _small(picture: Tensor, most: int) -> Tensor:
    """A picture `(h, w)`, or the middle of a volume, with at most `most` pixels a side; NaN stays NaN."""
    picture = picture[picture.shape[0] // 2] if picture.ndim == 3 else picture
    height, width = picture.shape
    if max(height, width) <= most:
        return picture.double().cpu()
    ratio = most / max(height, width)
    shape = (max(round(height * ratio), 1), max(round(width * ratio), 1))
    return functional.adaptive_avg_pool2d(picture.double().cpu()[None], shape)[0]


def _background(x: Tensor) -> Picture:
    """The liveliest channel of a field `(C, *S)`."""
    return Picture.of(_small(x[_most_varied(x)].float(), _FIELD))
