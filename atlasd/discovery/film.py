"""Filming a discovery: the map and its data are moved in small steps, for the report to show."""

from __future__ import annotations

__all__ = ["film"]

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.group import Group
from atlasd.discovery.coverage import Coverage, Neighbours
from atlasd.discovery.criterion import halves
from atlasd.discovery.frames import Frames, Picture, Track
from atlasd.discovery.problem import Problem
from atlasd.discovery.refine import scaled
from atlasd.discovery.setup import Setup
from atlasd.geometry.charts import PlaneChart
from atlasd.runtime.executor import Shared, current_workers

STEPS = 21
"""Frames of a generator, a quarter turn to either side: it takes a grid to itself."""
_REACH = math.pi / 2
_MOST_GENERATORS = 7
_MOST_ELEMENTS = 16
_TILE = 48
_FIELD = 160
_SAMPLES = 6
_VECTORS = 256
_KNOWN = 1024
_SHOWN = 48


def film(setup: Setup, group: Group, weights: Tensor | None = None) -> Frames:
    """Moves held-out samples along every generator, through the cosets, and once where there is no symmetry.

    Arguments:
        setup: The problem and its data.
        group: What was found.
        weights: Trust in each chart, with shape `(K,)`.
    """
    problem, samples = setup.problem, setup.samples
    weights = problem.chart_weights() if weights is None else weights.double()
    shown = int(weights.argmax())
    charts = samples.atlas.charts
    shape = tuple(samples.x.shape[2:]) if samples.is_field else ()
    places = [chart.locate(shape) for chart in charts] if shape else []
    # Radii of charts of a sphere are not in pixels of the field.
    radii = samples.atlas.radii if all(isinstance(chart, PlaneChart) for chart in charts) else None
    background = _background(samples.x[int(problem.test[0])]) if samples.is_field else None
    tracks = []
    if setup.gates.refusal() is None:
        scene = Shared(_Scene.of(problem, weights, shown))
        paths = _paths(group)
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
    """What is filmed; the camera is made where it films."""

    def __init__(self, problem: Problem, weights: Tensor, chart: int) -> None:
        self.problem, self.weights, self.chart = problem, weights, chart
        self._camera: _Fields | _Vectors | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_camera": None}

    @classmethod
    def of(cls, problem: Problem, weights: Tensor, chart: int) -> _Scene:
        """Of many charts only the block of the one that is shown, so that time does not grow."""
        block = next(block for block in problem.blocks() if chart in block)
        part = replace(problem.part(block), search=problem.search[:_KNOWN], test=problem.test[:_VECTORS])
        return cls(part, weights[block.start : block.stop], chart - block.start)

    @property
    def camera(self) -> _Fields | _Vectors:
        """What films the problem."""
        if self._camera is None:
            fields = self.problem.is_field
            self._camera = _Fields(self.problem, self.weights, self.chart) if fields else _Vectors(self.problem)
        return self._camera


def _track(scene: Shared[_Scene], name: str, t: Tensor, path: Tensor) -> Track:
    return scene.value.camera.track(name, t, path)


def _paths(group: Group) -> list[tuple[str, Tensor, Tensor]]:
    """Names, sizes `(T,)` and matrices `(T, n, n)`."""
    t = torch.linspace(-_REACH, _REACH, STEPS, dtype=torch.float64)
    paths = []
    basis = group.algebra.basis.double()
    for number, a in enumerate(scaled(basis[:_MOST_GENERATORS])):
        paths.append((f"generator {number + 1}", t, torch.matrix_exp(t[:, None, None] * a)))
    if group.order > 1:
        elements = group.cosets[:_MOST_ELEMENTS].double()
        paths.append(("elements", torch.arange(1.0, len(elements) + 1, dtype=torch.float64), elements))
    paths += [(f"contrast {name}", t, torch.matrix_exp(t[:, None, None] * a)) for name, a in _contrasts(basis)]
    return paths


def _contrasts(basis: Tensor) -> list[tuple[str, Tensor]]:
    """A plain direction that lies outside the algebra, by name; two where nothing was found."""
    n = basis.shape[-1]
    known = {"scaling": torch.eye(n, dtype=torch.float64)}
    if n > 1:
        turn, boost, shear = torch.zeros(3, n, n, dtype=torch.float64)
        turn[1, 0], turn[0, 1], boost[0, 1], boost[1, 0], shear[0, 1] = 1.0, -1.0, 1.0, 1.0, 1.0
        known |= {"rotation": turn, "squeeze": boost, "shear": shear}
    frame = torch.linalg.qr(basis.flatten(1).mT)[0] if len(basis) else basis.new_zeros(n * n, 0)
    outside = []
    for name, a in known.items():
        unit = a.flatten() / a.norm()
        outside.append((float((unit - frame @ (frame.mT @ unit)).norm()), name))
    # Ties go to the first: scaling is the one that everybody can picture.
    ranked = sorted((pair for pair in outside if pair[0] > 0.7), key=lambda pair: -round(pair[0], 6))
    return [(name, scaled(known[name])) for _, name in ranked[: 1 if len(basis) else 2]]


class _Fields:
    """Moves patches; one sample of one chart is shown, a few samples of all its charts are measured."""

    def __init__(self, problem: Problem, weights: Tensor, chart: int) -> None:
        self.problem, self.weights, self.chart = problem, weights, chart
        x = problem.patches(problem.test[:16])
        size = problem.size
        # The liveliest sample: a flat one shows nothing.
        lively = (x[:, chart] - x[:, chart].flatten(-size).mean(-1)[(..., *[None] * size)]).square().flatten(1).mean(1)
        self.x, self.one = x[:_SAMPLES], x[lively.argmax()][None]
        with torch.no_grad():
            self.p, self.y = problem.psi(self.x), problem.outputs(self.one)
        self.cover = Coverage(problem, problem.patches(problem.search[:48]), weights.nonzero().flatten())
        self.inside = _telling(self.one[0, chart])
        self.outside = _telling(self.y[0, chart])

    def track(self, name: str, t: Tensor, path: Tensor) -> Track:
        problem, size = self.problem, self.problem.size
        shape, room = tuple(self.p.shape[-size:]), tuple(self.x.shape[-size:])
        variance = float((self.p - self.p.mean(0)).double().square().flatten(2).mean(-1).mean(0) @ self.weights)
        variance = max(variance / float(self.weights.sum()), 1e-300)
        share = self.weights / self.weights.sum()
        shown: dict[str, list[Tensor]] = {"input": [], "left": [], "right": [], "difference": []}
        curves: list[tuple[float, float, float]] = []
        for g in path:
            with torch.no_grad():
                sides = halves(problem, self.x, g, self.p)
                moved = problem.action.on_input(g, self.one)
                left, right = problem.outputs(moved), problem.action.on_output(g, self.y)
                near = self.cover(problem.action.on_input(g, self.x))
            apart, unrelated = (float(v.mean(0) @ share) / variance for v in (sides.miss, sides.chance))
            curves.append((apart, unrelated, near))
            window = problem.window(shape, g, room) > 0.5
            a, b = left[0, self.chart, self.outside], right[0, self.chart, self.outside]
            # Beyond the disc a motion brings in what is not known, or pushes out what is.
            a, b = (torch.where(window, side.double(), torch.nan) for side in (a, b))
            parts = (moved[0, self.chart, self.inside], a, b, a - b)
            for key, picture in zip(shown, parts, strict=True):
                shown[key].append(_small(picture, _TILE))
        stacks = {key: torch.stack(tiles) for key, tiles in shown.items()}
        both = torch.stack([stacks["left"], stacks["right"]])
        both = both[both.isfinite()]
        low, high = (float(both.min()), float(both.max())) if len(both) else (0.0, 1.0)
        # The same step of colour is the same difference in all three.
        half = max(high - low, 1e-12) / 2
        pictures = {
            "input": Picture.of(stacks["input"]),
            "left": Picture.of(stacks["left"], low, high),
            "right": Picture.of(stacks["right"], low, high),
            "difference": Picture.of(stacks["difference"], -half, half),
        }
        miss, chance, covered = torch.tensor(curves, dtype=torch.float64).unbind(1)
        return Track(name, t, path, miss, chance, covered, pictures=pictures)


class _Vectors:
    """Moves vectors; outputs of moved inputs are set against moved outputs, sample by sample."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.x = problem.patches(problem.test)
        self.near = Neighbours(problem.patches(problem.search)[:, 0])
        with torch.no_grad():
            self.p = problem.psi(self.x)
        spread = (self.p - self.p.mean(0)).double().square().flatten(1)
        self.variance = max(float(spread.sum(-1).nanmean()), 1e-300)
        self.output = int(spread.nanmean(0).argmax())

    def track(self, name: str, t: Tensor, path: Tensor) -> Track:
        problem, x = self.problem, self.x
        axes = _axes(path)
        curves: list[tuple[float, float, float]] = []
        shown: dict[str, list[Tensor]] = {"input": [], "left": [], "right": []}
        for g in path.to(x.dtype):
            with torch.no_grad():
                moved = problem.action.on_input(g, x)
                left, right = problem.psi(moved), problem.action.on_output(g, self.p)
                # Chance: each sample is moved as another one is.
                astray = problem.psi(x + (moved - x).roll(1, dims=0))
            inside = self.near(moved[:, 0])
            miss, chance = (_mean_square(side - right, inside) for side in (left, astray))
            chance = min(chance, 2 * self.variance) if chance == chance else 2 * self.variance
            curves.append((miss / self.variance, chance / self.variance, float(inside.double().mean())))
            tokens = moved[:_SHOWN, 0].reshape(-1, x.shape[-1])[:_SHOWN]
            shown["input"].append(tokens[:, list(axes)].float())
            shown["left"].append(left.flatten(1)[:_SHOWN, self.output].float())
            shown["right"].append(right.flatten(1)[:_SHOWN, self.output].float())
        points = {key: torch.stack(rows) for key, rows in shown.items()}
        misses, chances, covered = torch.tensor(curves, dtype=torch.float64).unbind(1)
        return Track(name, t, path, misses, chances, covered, points=points, axes=axes)


def _mean_square(difference: Tensor, inside: Tensor) -> float:
    """Mean over the samples that count, NaN where none does."""
    squares = difference.double().square().flatten(1).sum(-1)[inside]
    return float(squares[squares.isfinite()].mean())


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


def _telling(field: Tensor) -> int:
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
    return Picture.of(_small(x[_telling(x)].float(), _FIELD))
