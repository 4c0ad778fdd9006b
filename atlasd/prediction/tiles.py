"""A quick model of one tile of a field: which pixels around help to predict, and how well."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

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
        generator: The source of randomness.
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
            centre: Centre of the tile.
            radius: Half its width.
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
