"""Where charts may lie: how far the map reaches, and on which tiles of a field it can be learned at all."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.discovery.result import ChartFinding
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

_RIDGES = (1e-9, 1e-6, 1e-4, 1e-2)
_COMPONENTS = 12


def one_hot(y: Tensor, classes: int) -> Tensor:
    """Classes `(N, 1, *S)` as `(N, classes, *S)`; values as they are."""
    return functional.one_hot(y.squeeze(1), classes).movedim(-1, 1).float() if classes else y


class TileModel:
    """Held-out errors of regressions on the pixels within a reach, fitted to pixels drawn from one tile.

    Arguments:
        x: Fields `(N, C, *S)`.
        y: Targets `(N, C', *S)`.
        samples: The most samples to draw from.
    """

    def __init__(self, x: Tensor, y: Tensor, *, generator: torch.Generator, samples: int = 400) -> None:
        pick = torch.randperm(len(x), generator=generator)[:samples]
        self._fit, self._held = pick[: int(0.67 * len(pick))], pick[int(0.67 * len(pick)) :]
        self._x, self._y, self._generator = x, y, generator
        self._shape = torch.tensor(x.shape[2:])

    def errors(
        self, centre: Sequence[int], radius: int, reaches: Sequence[int], *, far: bool
    ) -> tuple[dict[int, float], float]:
        """Mean squared errors by reach, and that of the best trivial model; 0 where a trivial model is exact.

        Arguments:
            reaches: Distances in pixels up to which input is seen.
            far: Also measure, under key -1, with pixels far away added to the largest reach.
        """
        offsets = self._offsets(reaches[-1])
        columns = len(offsets) * self._x.shape[1] + _COMPONENTS * (_COMPONENTS + 3) // 2
        fit = self._draw(centre, radius, self._fit, max(1000, 3 * columns), offsets, far)
        held = self._draw(centre, radius, self._held, max(500, columns), offsets, far)
        variance = float((held[2] - fit[2].mean(0)).square().mean())
        base = min(variance, _error(_cubic(fit[1]), fit[2], _cubic(held[1]), held[2]))
        if variance <= 1e-24 or base <= 1e-9 * variance:
            return dict.fromkeys((*reaches, *((-1,) if far else ())), 0.0), 0.0
        found = {}
        for reach in reaches:
            seen = offsets.abs().amax(-1) <= reach
            rows = [torch.cat([d[0][:, seen].flatten(1), _cubic(d[1])], 1) for d in (fit, held)]
            found[reach] = self._both_orders(rows, fit, held, seen, base)
        if far:
            seen = torch.ones(len(offsets), dtype=torch.bool)
            rows = [torch.cat([d[0].flatten(1), _cubic(d[1]), d[3]], 1) for d in (fit, held)]
            found[-1] = self._both_orders(rows, fit, held, seen, base)
        return found, base

    def _both_orders(
        self, rows: list[Tensor], fit: tuple[Tensor, ...], held: tuple[Tensor, ...], seen: Tensor, base: float
    ) -> float:
        """The lower error of a linear and, where that leaves something, a quadratic model."""
        first = _error(rows[0], fit[2], rows[1], held[2])
        if first <= 0.05 * base:
            return first
        near = [d[0][:, seen].flatten(1) for d in (fit, held)]
        mean = near[0].mean(0)
        _, v = torch.linalg.eigh((near[0] - mean).mT @ (near[0] - mean))
        parts = [(n - mean) @ v[:, -_COMPONENTS:] for n in near]
        i, j = torch.triu_indices(parts[0].shape[1], parts[0].shape[1])
        wide = [torch.cat([r, p[:, i] * p[:, j]], 1) for r, p in zip(rows, parts, strict=True)]
        return min(first, _error(wide[0], fit[2], wide[1], held[2]))

    def _offsets(self, reach: int) -> Tensor:
        line = range(-reach, reach + 1)
        return torch.tensor(list(itertools.product(line, repeat=len(self._shape))))

    def _draw(
        self, centre: Sequence[int], radius: int, pick: Tensor, rows: int, offsets: Tensor, far: bool
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Pixels around `(R, Q, C)`, the pixel itself `(R, C)`, targets `(R, C')` and pixels far away `(R, F)`."""
        d = len(self._shape)
        index = pick[torch.randint(len(pick), (rows,), generator=self._generator)]
        place = torch.tensor(centre) + torch.randint(-radius, radius + 1, (rows, d), generator=self._generator)
        around = self._read(self._x, index, place[:, None] + offsets)
        here = self._read(self._x, index, place[:, None])[:, 0]
        target = self._read(self._y, index, place[:, None])[:, 0]
        away = self._read(self._x, index, place[:, None] + _ring(d, int(offsets.max()))).flatten(1) if far else here
        return around, here, target, away

    def _read(self, field: Tensor, index: Tensor, place: Tensor) -> Tensor:
        """Values `(R, Q, C)` at positions `(R, Q, d)`, the nearest pixel where they lie outside."""
        where = torch.minimum(place.clamp_min(0), self._shape - 1).to(field.device)
        sample = index.to(field.device)[:, None].expand(where.shape[:2])
        return field.movedim(1, -1)[(sample, *where.unbind(-1))].double().cpu()


def _ring(d: int, reach: int) -> Tensor:
    """Offsets in all directions of the axes and diagonals, up to three times the reach."""
    ways = torch.tensor([w for w in itertools.product((-1, 0, 1), repeat=d) if any(w)])
    return torch.cat([ways * max(1, math.ceil(reach * f)) for f in (1.4, 2.0, 3.0)])


def _cubic(x: Tensor) -> Tensor:
    """1, u, u^2, u^3 of every channel `(R, C)`, scaled."""
    u = (x - x.mean(0)) / x.std(0).clamp_min(1e-30)
    return torch.cat([torch.ones_like(u[:, :1]), u, u * u, u * u * u], 1)


def _error(a: Tensor, b: Tensor, held_a: Tensor, held_b: Tensor) -> float:
    """Held-out mean squared error of ridge regression, with the ridge that suits it best."""
    scale = a.square().mean(0).sqrt().clamp_min(1e-30)
    a, held_a = a / scale, held_a / scale
    gram, right = a.mT @ a / len(a), a.mT @ b / len(a)
    best = float("inf")
    for ridge in _RIDGES:
        solved = torch.linalg.solve(gram + ridge * torch.eye(len(gram), dtype=gram.dtype), right)
        best = min(best, float((held_a @ solved - held_b).square().mean()))
    return best


_REACHES = (1, 2, 3, 4, 6, 8)
_SLACK, _FAR = 0.02, 0.1
"""Share of the error of the best trivial model that input outside the chart may explain, and from which on a map is not
called local at any of the reaches tried."""
MINIMUM_SKILL = 0.3
"""Skill below which a tile is left out."""
MOST = {2: 16, 3: 8}
"""The most charts of a plane and of space: time grows with their number, what they say together hardly does."""
_LEAST = 3
"""Pixels by which input patches reach beyond output patches, at least."""


@dataclass(frozen=True, eq=False)
class ChartSurvey:
    """Charts for a field, and what was measured to choose them.

    Arguments:
        atlas: The charts that can be used.
        dropped: The charts that cannot, each with its reason.
        reach: Distance in pixels from which input no longer matters.
        outside: For every reach tried, the share of the error that input further away would remove.
        local: Whether the map is local at any reach tried.
        skills: Skill on the charts of the atlas.
    """

    atlas: Atlas
    dropped: tuple[ChartFinding, ...]
    reach: int
    outside: dict[int, float]
    local: bool
    skills: tuple[float, ...]

    def describe(self) -> str:
        """The survey in one line."""
        radii = self.atlas.radii
        assert radii is not None
        words = f"{len(self.atlas)} charts, in-radius {radii[0]}, out-radius {radii[1]}"
        pixels = "1 pixel" if self.reach == 1 else f"{self.reach} pixels"
        words += f"; input further than {pixels} away explains {self.outside[self.reach]:.1%} of the output"
        if not self.local:
            words += ", so the map is not local at any radius tried"
        return words + (f"; {len(self.dropped)} more charts dropped" if self.dropped else "")


def survey_charts(
    x: Any,
    y: Any,
    *,
    in_radius: int | None = None,
    out_radius: int | None = None,
    masked: Tensor | None = None,
    most: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ChartSurvey:
    """Tiles a field with charts of a radius at which the map is local, and drops those that cannot be learned.

    A tile's model is linear and quadratic in the pixels around, the same for all pixels of the tile. Outputs depend
    on input at a distance if a model that sees it is better on samples it was not fitted to.

    Arguments:
        x: Fields `(N, C, *S)`.
        y: Fields on the same grid, or classes.
        in_radius: Given in place of a measured one.
        out_radius: Given in place of a twelfth of the field.
        masked: Pixels that no chart may touch, with the spatial shape.
        most: The most charts; 16 of a plane and 8 of space by default.
        seed: Seed of every random stream.
        progress: Progress display.

    Example:
        >>> x = torch.randn(60, 1, 40, 40, generator=torch.Generator().manual_seed(0))
        >>> y = x + 0.5 * (x.roll(2, -1) + x.roll(-2, -1))
        >>> survey_charts(x, y).reach
        2
    """
    samples = Samples.check(x, y, minimum=20)
    if not samples.is_field or samples.y is None:
        raise InputError(
            f"`x` must hold fields (N, C, H, W), got shape {tuple(samples.x.shape)}; vectors need no charts."
        )
    shown = progress or Silent()
    shape = tuple(samples.x.shape[2:])
    most = MOST[len(shape)] if most is None else most
    room = (min(shape) - 1) // 2
    out = out_radius or _out_radius(shape)
    if in_radius is None:
        out = min(out, max(room - 2, 1))
    if room < 3 or out >= (in_radius or room + 1):
        raise InputError(
            f"charts must fit into the field of shape {shape}, with out_radius below in_radius, got "
            f"{'' if in_radius is None else f'in_radius={in_radius} and '}out_radius={out}; choose smaller ones."
        )
    inputs, given = samples.loaded()
    assert given is not None
    targets = one_hot(given, samples.classes)
    channels = samples.x.shape[1]
    allowed = [r for r in _REACHES if out + r <= room and channels * (2 * r + 1) ** len(shape) <= 300] or [1]
    model = TileModel(inputs, targets, generator=stream(seed, "survey"))
    tiles = _tiles(shape, out + max(min(allowed[-1], 4), 1), out, most=9, masked=None)
    profile, local = _reach_profile(model, tiles, out, allowed, shown)
    if in_radius is None:
        reach = next((r for r in allowed if profile[r] <= _SLACK), allowed[-1])
        inner = out + max(reach, min(_LEAST, room - out))
    else:
        reach = min(allowed, key=lambda r: abs(r - (in_radius - out)))
        inner = in_radius
    return _select(model, shape, inner, out, reach, profile, local, most, masked, shown)


def charts_by_default(x: Any, y: Any, *, seed: int, progress: Progress) -> Atlas | None:
    """Charts for data that came without: `None` for vectors, classes, and fields no larger than a chart."""
    samples = Samples.check(x, y, minimum=20)
    shape = tuple(samples.x.shape[2:])
    if not samples.is_field or samples.classes or (min(shape) - 1) // 2 < _out_radius(shape) + _LEAST:
        return None
    survey = survey_charts(x, y, seed=seed, progress=progress)
    progress.say(f"charts: {survey.describe()}")
    return survey.atlas


def _out_radius(shape: Sequence[int]) -> int:
    """A twelfth of the field, as far as such a chart has enough pixels and is still local."""
    return max(4, min(12, min(shape) // 12))


def _tiles(shape: tuple[int, ...], inner: int, out: int, most: int, masked: Tensor | None) -> list[tuple[int, ...]]:
    """Centres of an even tiling with at most `most` charts."""
    stride = 2 * out + 1
    while True:
        atlas = Atlas.grid(shape, inner, out, stride)
        if len(atlas) <= most or stride > 2 * max(shape):
            return [tuple(int(c) for c in chart.center) for chart in atlas.charts]
        stride += max(1, out // 2)


def _reach_profile(
    model: TileModel, tiles: Sequence[tuple[int, ...]], out: int, allowed: Sequence[int], progress: Progress
) -> tuple[dict[int, float], bool]:
    """For each reach the share that input further away explains, in the median over tiles that can be learned."""
    rows = []
    for centre in progress.track(tiles, "measure locality"):
        errors, base = model.errors(centre, out, allowed, far=True)
        if base > 0 and min(errors.values()) <= (1 - MINIMUM_SKILL) * base:
            rows.append([errors[r] / base for r in (*allowed, -1)])
    if not rows:
        return dict.fromkeys(allowed, 0.0), True
    left = torch.tensor(rows, dtype=torch.float64)  # (tiles, reaches and far)
    # A tile over an obstacle is poorly learned at any reach, and says nothing about it.
    best = left.amin(1)
    left = left[1 - best >= 0.8 * (1 - best).max()].median(0).values
    # Who sees more may look away: that a wide model is worse is a matter of its many weights, and says nothing.
    shares = (left.cummin(0).values - left.min())[:-1].tolist()
    return dict(zip(allowed, shares, strict=True)), min(shares) <= _FAR


def _select(
    model: TileModel,
    shape: tuple[int, ...],
    inner: int,
    out: int,
    reach: int,
    profile: dict[int, float],
    local: bool,
    most: int,
    masked: Tensor | None,
    progress: Progress,
) -> ChartSurvey:
    """Charts that can be learned, and the others with their reasons."""
    keep: list[tuple[int, ...]] = []
    skills: list[float] = []
    dropped: list[ChartFinding] = []
    for centre in progress.track(_tiles(shape, inner, out, most, masked), "survey charts"):
        missing = 0
        if masked is not None:
            window = tuple(slice(c - inner, c + inner + 1) for c in centre)
            missing = int(masked[window].sum())
        place = tuple(float(c) for c in centre)
        if missing:
            dropped.append(ChartFinding(place, math.nan, True, math.nan, f"dropped: {missing} pixels are missing"))
            continue
        errors, base = model.errors(centre, out, [r for r in profile if r <= reach], far=False)
        skill = 1 - min(errors.values()) / base if base > 0 else 0.0
        if skill >= MINIMUM_SKILL:
            keep.append(centre)
            skills.append(skill)
        else:
            reason = f"no skill ({skill:.2f})" if base > 0 else "outputs are constant or a map of the same pixel"
            dropped.append(ChartFinding(place, math.nan, True, skill, f"dropped: {reason}"))
    if not keep:
        usable = [d for d in dropped if not math.isnan(d.skill)]
        if not usable:
            raise InputError("charts must not touch missing pixels, got no room for any; choose a smaller --in-radius.")
        # The verdict will say that nothing can be told; it needs charts to say it of.
        best = sorted(usable, key=lambda d: -d.skill)[:4]
        keep, skills = [tuple(int(c) for c in d.center) for d in best], [d.skill for d in best]
        dropped = [d for d in dropped if d not in best]
    return ChartSurvey(Atlas.at(keep, inner, out), tuple(dropped), reach, profile, local, tuple(skills))
