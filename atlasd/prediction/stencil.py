"""A linear local stencil per chart, solved by ridge regression in closed form."""

from __future__ import annotations

__all__ = ["StencilPredictor", "disc"]

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.limits import MOST, TOLERANCE
from atlasd.prediction.places import place_length, with_places
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.skill import InFolds, with_skill
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

FEATURES = 180
"""The most weights of a stencil that is wider than it need be."""

WORTH = 0.5
"""Share of the square norm of a smaller stencil below which a larger one is taken."""

_CONVOLUTION = {2: functional.conv2d, 3: functional.conv3d}


@dataclass(frozen=True, kw_only=True)
class StencilPredictor(InFolds):
    """Outputs as a weighted sum of the pixels around, one round stencil per chart.

    A stencil may be wider than the margin between the input and the output patch: outputs then count only where it
    fits. Each chart takes the stencil of least norm that costs no skill, a wider one only where that is much less.

    Arguments:
        width: The largest width of the stencil in pixels, odd.
        ridges: Candidate ridge strengths, relative to the mean square of the inputs.
        slack: Skill on held-out data that a smaller and smoother stencil may cost: smooth ones say more about inputs
            that are not like the data, and half of the square of the tolerance is nothing that a verdict notices.
        batch: Samples read together.
        placed: Whether weights may change over a chart, linearly in the place.
    """

    width: int = 21
    ridges: tuple[float, ...] = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    slack: float = MOST * TOLERANCE**2
    batch: int = 64
    placed: bool = False

    linear: ClassVar[bool] = True
    """Linear in the inputs: what is not has to be looked for in what is left."""

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % 2 == 0:
            raise InputError(f"`width` must be odd and positive, got {self.width}.")

    def fit_folds(
        self,
        samples: Samples,
        fold: Tensor,
        plants: Sequence[Callable[[Tensor], Tensor]],
        *,
        progress: Progress,
        only: int | None = None,
    ) -> list[list[FittedPredictor]]:
        """Stencils for every fold, as `InFolds` says."""
        if not samples.is_field or samples.classes:
            raise InputError(
                "`predictor` must not be a StencilPredictor for vectors or classes; use MLPPredictor or ConvPredictor."
            )
        started = time.perf_counter()
        count = int(fold.max()) + 1
        wanted = list(range(count)) if only is None else [only]
        used = (fold >= 0).nonzero().flatten()
        smallest = min(int(((fold >= 0) & (fold != k)).sum()) for k in wanted)
        halves = self._halves(samples, smallest)
        room = _room(samples, halves[-1])
        moments = _Moments(halves[-1], samples.size, count, place_length(samples) if self.placed else None)
        order = samples.in_order(used)
        for part, index in enumerate(progress.track(order.split(self.batch), "fit stencils")):
            x, y = samples.inputs(index), samples.targets(index)
            both = torch.cat([y, *(plant(x).to(y.dtype) for plant in plants)], dim=2)
            moments.add(
                x, both if room is None else centre_crop(both, room), fold[index], part if smallest >= 200 else None
            )
        outputs = samples.outputs
        shape = tuple(samples.targets(used[:1]).shape[3:])
        rows, half = self._choose(moments, outputs, halves, wanted[0])
        fitted = []
        for k in wanted:
            solution = moments.chosen(rows, k)  # (K, F + 1, C' (1 + plants))
            functions = [moments.stencil(part, half, shape) for part in solution.split(outputs, dim=-1)]
            held = (fold == k).nonzero().flatten()
            rest = ((fold >= 0) & (fold != k)).nonzero().flatten()
            fitted.append(
                with_skill(
                    functions, samples, rest, held, kind=f"linear stencil, {2 * half + 1} wide", reach=half + 0.5,
                    seconds=time.perf_counter() - started, inner=_room(samples, half),
                )
            )  # fmt: skip
        return fitted

    def _halves(self, samples: Samples, count: int) -> list[int]:
        """Half widths to try, smallest first: those that the charts, the data and the time have room for."""
        most = self.width // 2
        radii = samples.atlas.radii
        least = min(most, 2)
        if radii is None:
            most = min(most, 6)
        else:
            room = radii[0] - radii[1]
            if room < 1:
                raise InputError(
                    "`in_radius` must exceed `out_radius` for a stencil to see its neighbours, "
                    f"got {radii[0]} and {radii[1]}."
                )
            least, most = min(most, room), min(most, max(room, 3 * radii[0] // 7))
        halves = sorted({least, (least + most) // 2, most})
        channels, small = samples.x.shape[1] * (1 + samples.size if self.placed else 1), count >= 200
        enough: list[int] = []
        for half in halves:
            features = channels * int(disc(half, samples.size).sum())
            shape = _room(samples, half) or tuple(samples.x.shape[2:])
            pixels = math.prod(shape) / (2**samples.size if small else 1)
            if count * pixels >= 4 * features and (half == least or features <= FEATURES):
                enough.append(half)
            elif half == least:
                raise InputError(
                    f"`x` must hold more samples than a {2 * half + 1}-pixel stencil needs: got {count} to fit on, "
                    f"{features} weights per chart; give more data or a smaller width."
                )
        return enough

    def _choose(
        self, moments: _Moments, outputs: int, halves: list[int], fold: int
    ) -> tuple[list[tuple[int, float]], int]:
        """For every chart the half width and ridge of the smoothest stencil within the slack of the best on a fold.

        A larger one must be much smoother. The second answer is the largest half width that was chosen.
        """
        recipes = [(half, ridge) for half in halves for ridge in self.ridges]
        solutions = [moments.solve(half, ridge, fold)[..., :outputs] for half, ridge in recipes]
        errors = torch.stack([moments.error(solution, fold) for solution in solutions])
        slack = self.slack * moments.pointwise_error(outputs)
        norms = torch.stack([solution[:, :-1].square().sum((1, 2)) for solution in solutions])
        errors, norms = (values.unflatten(0, (len(halves), -1)) for values in (errors, norms))  # (H, R, K)
        allowed = torch.where(errors <= errors.amin((0, 1)) + slack, norms, math.inf)
        # (H, K): what the data leave open is left smooth
        least, ridge = allowed.min(1)
        taken = torch.zeros(errors.shape[-1], dtype=torch.long)
        for row in range(1, len(halves)):
            current = least.gather(0, taken[None])[0]
            taken = torch.where(least[row] < WORTH * current, row, taken)
        ridges = ridge.gather(0, taken[None])[0].tolist()
        chosen = [(halves[w], self.ridges[r]) for w, r in zip(taken.tolist(), ridges, strict=True)]
        return chosen, max(half for half, _ in chosen)


def _room(samples: Samples, half: int) -> tuple[int, ...] | None:
    """Shape of the outputs where a stencil fits into the input patch, or `None` for whole fields."""
    radii = samples.atlas.radii
    return None if radii is None else (2 * min(radii[1], radii[0] - half) + 1,) * samples.size


def disc(half: int, dimensions: int, within: int | None = None) -> Tensor:
    """Which pixels of a box of half width `within` belong to a round stencil, with shape `(width,) * dimensions`."""
    line = torch.arange(2 * (half if within is None else within) + 1) - (half if within is None else within)
    grid = torch.stack(torch.meshgrid(*[line] * dimensions, indexing="ij"))
    return grid.square().sum(0) <= (half + 0.5) ** 2


@storable("weight", "bias", "shape", "places")
class _Stencil:
    """Grouped convolution: one stencil per chart, inputs `(B, K, C, *in)` to `(B, K, C', *shape)`.

    With `places`, the unit of length of places, weights are linear in the place.
    """

    def __init__(self, weight: Tensor, bias: Tensor, shape: tuple[int, ...], places: float | None = None) -> None:
        self.weight, self.bias, self.shape = weight, bias, shape  # (K, C', C, *width), (K, C')
        self.places = places

    @property
    def need(self) -> tuple[int, ...]:
        """Spatial shape of the inputs that it looks at."""
        return tuple(s + self.weight.shape[-1] - 1 for s in self.shape)

    def __call__(self, x: Tensor) -> Tensor:
        charts, outputs = self.weight.shape[:2]
        width, need = self.weight.shape[-1], self.need
        if any(have < want for have, want in zip(x.shape[3:], need, strict=True)):  # the whole field is one chart
            x = _extend(x, width // 2)
        x = centre_crop(x, need)
        flat = (x if self.places is None else with_places(x, self.places)).flatten(1, 2)
        y = _CONVOLUTION[len(self.shape)](
            flat, self.weight.flatten(0, 1).to(x.dtype), self.bias.flatten().to(x.dtype), groups=charts
        )
        return y.unflatten(1, (charts, outputs))

    def narrowed(self, width: int) -> _Stencil:
        """The same for the middle of the outputs, at most so many pixels wide, or one more to keep the centre."""
        shape = tuple(min(s, width + (s - width) % 2) for s in self.shape)
        return _Stencil(self.weight, self.bias, shape, self.places)


def _extend(x: Tensor, reach: int) -> Tensor:
    """Repeats the border `reach` pixels outwards."""
    d = x.ndim - 3
    return functional.pad(x.flatten(0, 1), (reach, reach) * d, mode="replicate").unflatten(0, x.shape[:2])


class _Moments:
    """Normal equations of all charts and folds, accumulated for the largest stencil; smaller ones are parts of it."""

    def __init__(self, half: int, dimensions: int, folds: int, places: float | None = None) -> None:
        self.half, self.dimensions, self.folds, self.places = half, dimensions, folds, places
        self.disc = disc(half, dimensions).flatten()
        self.gram: Tensor = torch.tensor(0.0)  # (folds, K, F + 1, F + 1)
        self.right: Tensor = torch.tensor(0.0)  # (folds, K, F + 1, C')
        self.square: Tensor = torch.tensor(0.0)  # sum of y^2, (folds, K, C')
        self.rows = torch.zeros(folds, dtype=torch.float64)
        self.channels = 0

    def pointwise_error(self, outputs: int) -> Tensor:
        """Error of the best linear map of the centre pixel, per chart `(K,)`, on the samples seen."""
        keep = self._features(0)
        gram, right = self.gram.sum(0)[:, keep][:, :, keep], self.right.sum(0)[:, keep][..., :outputs]
        ridge = (
            1e-12 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(len(keep), dtype=torch.float64)
        )
        explained = (right * torch.linalg.solve(gram + ridge, right)).sum(1)
        return ((self.square.sum(0)[..., :outputs] - explained) / self.rows.sum()).mean(-1).clamp_min(0.0)

    def _features(self, half: int) -> Tensor:
        """Rows of the normal equations that a stencil of this half width uses, the constant last."""
        small = disc(half, self.dimensions, self.half).flatten()[self.disc].repeat(self.channels)
        return torch.cat([small.nonzero().flatten(), torch.tensor([len(small)])])

    def add(self, x: Tensor, y: Tensor, fold: Tensor, part: int | None = None) -> None:
        """Adds samples; with `part`, only every second pixel along each axis, another set for every part.

        Neighbouring pixels say nearly the same: a quarter of them costs a quarter of the time.
        """
        width = 2 * self.half + 1
        need = tuple(s + width - 1 for s in y.shape[3:])
        if any(have < want for have, want in zip(x.shape[3:], need, strict=True)):
            x = _extend(x, self.half)
        x = centre_crop(x, need)
        x = x if self.places is None else with_places(x, self.places)
        self.channels = x.shape[2]
        for axis in range(self.dimensions):
            first, stride = (0, 1) if part is None else ((part >> axis) % 2, 2)
            x = x.narrow(3 + axis, first, x.shape[3 + axis] - first).unfold(3 + axis, width, stride)
            keep = torch.arange(first, y.shape[3 + axis], stride)
            y = y.index_select(3 + axis, keep)  # x is now (B, K, C, *shape, *width)
        d = self.dimensions
        columns = x.flatten(3 + d)[..., self.disc].flatten(3, 2 + d)  # (B, K, C, Q, F)
        columns = columns.permute(0, 1, 2, 4, 3).flatten(2, 3)  # (B, K, C F, Q)
        values = y.flatten(3).double()  # (B, K, C', Q)
        sums: list[list[Tensor]] = []
        for k in range(self.folds):
            mine = (fold == k).nonzero().flatten()
            wide = columns[mine].permute(1, 2, 0, 3).flatten(2).double()
            wide = torch.cat([wide, wide.new_ones(len(wide), 1, wide.shape[-1])], dim=1)
            right = values[mine].permute(1, 2, 0, 3).flatten(2)
            sums.append([wide @ wide.mT, wide @ right.mT, right.square().sum(-1)])
            self.rows[k] += wide.shape[-1]
        gram, cross, square = (torch.stack(parts) for parts in zip(*sums, strict=True))
        self.gram, self.right, self.square = self.gram + gram, self.right + cross, self.square + square

    def solve(self, half: int, ridge: float, fold: int) -> Tensor:
        """Weights from all folds but one, zero beyond `half`, and constant, with shape `(K, F + 1, C')`."""
        keep = self._features(half)
        others = [k for k in range(self.folds) if k != fold]
        rows = self.rows[others].sum()
        whole = self.right[others].sum(0)
        gram, right = self.gram[others].sum(0)[:, keep][:, :, keep], whole[:, keep]
        mean = gram[..., :-1, -1:] / rows
        covariance = gram[..., :-1, :-1] / rows - mean @ mean.mT
        target = right[..., -1:, :] / rows
        cross = right[..., :-1, :] / rows - mean @ target
        size = covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-30)
        eye = torch.eye(len(keep) - 1, dtype=torch.float64)
        weights = torch.linalg.solve(covariance + ridge * size[:, None, None] * eye, cross)
        solution = torch.zeros_like(whole)
        solution[:, keep] = torch.cat([weights, target - mean.mT @ weights], dim=1)
        return solution

    def error(self, solution: Tensor, fold: int) -> Tensor:
        """Mean squared error of weights `(K, F + 1, C')` on one fold, per chart `(K,)`."""
        outputs = solution.shape[-1]
        right, square = self.right[fold][..., :outputs], self.square[fold][..., :outputs]
        missed = square + (solution * (self.gram[fold] @ solution - 2 * right)).sum(1)
        return missed.mean(-1) / self.rows[fold]

    def chosen(self, recipes: list[tuple[int, float]], fold: int) -> Tensor:
        """Solutions from all folds but one, for every chart that of its own recipe, `(K, F + 1, C')`."""
        made = {recipe: self.solve(*recipe, fold) for recipe in set(recipes)}
        return torch.stack([made[recipe][k] for k, recipe in enumerate(recipes)])

    def stencil(self, solution: Tensor, half: int, shape: tuple[int, ...]) -> _Stencil:
        """The stencil of a solution that is zero beyond `half`."""
        charts, outputs, d = solution.shape[0], solution.shape[2], self.dimensions
        weight = solution.new_zeros(charts, outputs, self.channels, len(self.disc))
        weight[..., self.disc] = solution[:, :-1].mT.unflatten(2, (self.channels, -1))
        weight = weight.unflatten(3, (2 * self.half + 1,) * d)
        return _Stencil(centre_crop(weight, (2 * half + 1,) * d).contiguous(), solution[:, -1], shape, self.places)
