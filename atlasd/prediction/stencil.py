"""A linear local stencil per chart, solved by ridge regression in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.geometry.resample import convolve, frame_of
from atlasd.limits import MOST, TOLERANCE
from atlasd.prediction.plants import place_kinds, place_length, with_places
from atlasd.prediction.predictor import ClosedForm, FittedPredictor, Folds
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

FEATURES = 180
"""The most weights of a stencil that is wider than it need be."""

WORTH = 0.5
"""Share of the square norm of a smaller stencil below which a larger one is taken."""

_NUMBERS = 1 << 23
"""Numbers of fields, or of neighbourhoods, that are in memory at a time."""


@dataclass(frozen=True, kw_only=True)
class StencilPredictor(ClosedForm):
    """Outputs as a weighted sum of the pixels around, one round stencil per chart.

    A stencil may be wider than the margin between the input and the output patch: outputs then count only where it
    fits. Each chart takes the stencil of least norm that costs no skill, a wider one only where that is much less.

    Arguments:
        width: The largest width of the stencil in pixels, odd.
        ridges: Candidate ridge strengths, relative to the mean square of the inputs.
        slack: Skill on held-out data that a smaller and smoother stencil may cost: smooth ones say more about inputs
            that are not like the data, and half of the square of the tolerance is nothing that a verdict notices.
        batch: Samples read together; as many as fit well into memory by default.
        placed: Whether weights may change over a chart, with the place and its square.
    """

    width: int = 21
    ridges: tuple[float, ...] = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    slack: float = MOST * TOLERANCE**2
    batch: int | None = None
    placed: bool = False

    linear: ClassVar[bool] = True
    """Linear in the inputs: breakings of second order have to be looked for in the errors."""

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % 2 == 0:
            raise InputError(f"`width` must be odd and positive, got {self.width}.")

    def fit_folds(self, folds: Folds, *, progress: Progress) -> list[list[FittedPredictor]]:
        """Stencils for every fold, as `ClosedForm` says."""
        samples = folds.samples
        if not samples.is_field or samples.classes:
            raise InputError(
                "`predictor` must not be a StencilPredictor for vectors or classes; use MLPPredictor or ConvPredictor."
            )
        halves = self._halves(samples, folds.fewest)
        room = _room(samples, halves[-1])
        moments = _Moments(halves[-1], samples.size, folds.count, place_length(samples) if self.placed else None)
        order = samples.in_order(folds.used)
        batch = self.batch or min(max(_NUMBERS // math.prod(samples.x.shape[1:]), 64), 512)
        for index in progress.track(order.split(batch), "fit stencils"):
            x, y = folds.read(index)
            moments.add(x, y if room is None else centre_crop(y, room), folds.fold[index], thin=folds.fewest >= 200)
        shape = tuple(samples.targets(order[:1]).shape[3:])
        rows, sharp, half = self._choose(moments, samples.outputs, halves, folds.wanted[0])

        def stencils(k: int) -> list[_Stencil]:
            solution = moments.chosen(rows, k)  # (K, F + 1, C' (1 + plants))
            parts = (*solution.split(samples.outputs, dim=-1), moments.chosen(sharp, k)[..., : samples.outputs])
            return [moments.stencil(part, half, shape) for part in parts]

        kind = f"linear stencil, {2 * half + 1} wide"
        return folds.fitted(
            [stencils(k) for k in folds.wanted], kind=kind, reach=half + 0.5, inner=_room(samples, half)
        )

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
        channels, small = samples.x.shape[1] * (place_kinds(samples.size) if self.placed else 1), count >= 200
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
    ) -> tuple[list[tuple[int, float]], list[tuple[int, float]], int]:
        """For every chart the half width and ridge of the smoothest stencil within the slack of the best on a fold.

        A larger one must be much smoother. Then those of the best one of the same width, and the largest half width.
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
        chosen, sharp = (
            [(halves[w], self.ridges[r]) for w, r in zip(taken.tolist(), of.gather(0, taken[None])[0], strict=True)]
            for of in (ridge, errors.argmin(1))
        )
        return chosen, sharp, max(half for half, _ in chosen)


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

    With `places`, the unit of length of places, weights are quadratic in the place.
    """

    def __init__(self, weight: Tensor, bias: Tensor, shape: tuple[int, ...], places: float | None = None) -> None:
        self.weight, self.bias, self.shape = weight, bias, shape  # (K, C', C, *width), (K, C')
        self.places = places

    @property
    def need(self) -> tuple[int, ...]:
        """Spatial shape of the inputs that it looks at."""
        return tuple(s + self.weight.shape[-1] - 1 for s in self.shape)

    def __call__(self, x: Tensor) -> Tensor:
        return convolve(self._seen(x), self.weight, self.bias)

    def _seen(self, x: Tensor) -> Tensor:
        """What the stencil looks at of fields `(B, K, C, *in)`, beside its places if they count."""
        if any(have < want for have, want in zip(x.shape[3:], self.need, strict=True)):  # the whole field is one chart
            x = _extend(x, self.weight.shape[-1] // 2)
        x = centre_crop(x, self.need)
        return x if self.places is None else with_places(x, self.places)

    def responses(self, fields: Tensor) -> Tensor:
        """Answers without the constant to fields `(N, *S)`, each as any channel, `(N, K, C', C, *shape)`."""
        kinds = 1 if self.places is None else place_kinds(len(self.shape))
        weight = self.weight.unflatten(2, (kinds, -1)).transpose(2, 3)  # (K, C', C, kinds, *width)
        y = convolve(self._seen(fields[:, None, None]), weight.flatten(0, 2)[None])
        return y[:, 0].unflatten(1, weight.shape[:3])

    def select(self, charts: Sequence[int]) -> _Stencil:
        """The stencils of some of the charts."""
        return _Stencil(self.weight[charts], self.bias[charts], self.shape, self.places)

    def plus(self, other: _Stencil, size: float) -> _Stencil:
        """The sum with `size` times another one of the same width."""
        weight, bias = self.weight + size * other.weight, self.bias + size * other.bias
        return _Stencil(weight, bias, self.shape, self.places)

    @classmethod
    def mean(cls, stencils: Sequence[_Stencil]) -> _Stencil:
        """The mean of stencils of one width, such as those of all folds."""
        weight, bias = (
            torch.stack(parts).mean(0) for parts in zip(*((s.weight, s.bias) for s in stencils), strict=True)
        )
        return cls(weight, bias, stencils[0].shape, stencils[0].places)

    def without_centre(self, weight: Tensor) -> _Stencil:
        """The same less a map of one pixel with weights `(K, C', C)`."""
        width, d = self.weight.shape[-1], len(self.shape)
        centre = torch.zeros_like(self.weight).flatten(3)
        centre[:, :, : weight.shape[2], width**d // 2] = weight
        return _Stencil(self.weight - centre.reshape(self.weight.shape), self.bias, self.shape, self.places)

    def narrowed(self, width: int) -> _Stencil:
        """The same for the middle of the outputs, at most so many pixels wide, or one more to keep the centre."""
        shape = tuple(min(s, width + (s - width) % 2) for s in self.shape)
        return _Stencil(self.weight, self.bias, shape, self.places)


def _extend(x: Tensor, reach: int) -> Tensor:
    """Repeats the border `reach` pixels outwards."""
    d = x.ndim - 3
    return functional.pad(x.flatten(0, 1), (reach, reach) * d, mode="replicate").unflatten(0, x.shape[:2])


def _rotated(x: Tensor, y: Tensor, frame: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Samples rotated among each other, so that few are left: inputs `(m, K, C, *S)`, constants, targets.

    Arguments:
        x: Inputs `(B, K, C, *S)`.
        y: Targets `(B, K, C', *S')`.
        frame: Fields `(prod(S), R)` that all inputs are mixtures of; `None` leaves the samples as they are.
    """
    one = x.new_ones(x.shape[:2])
    if frame is None:
        return x, one, y
    mixture = x.flatten(3).double() @ frame  # (B, K, C, R)
    both = torch.cat([mixture.flatten(2), one.double().unsqueeze(-1)], dim=-1)
    q, r = torch.linalg.qr(both.transpose(0, 1))  # (K, B, m), (K, m, C R + 1)
    fields = r[..., :-1].unflatten(-1, mixture.shape[2:]) @ frame.mT
    targets = q.mT @ y.double().transpose(0, 1).flatten(2)
    return (
        fields.transpose(0, 1).unflatten(-1, x.shape[3:]),
        r[..., -1].mT,
        targets.transpose(0, 1).unflatten(-1, y.shape[2:]),
    )


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

    def add(self, x: Tensor, y: Tensor, fold: Tensor, *, thin: bool) -> None:
        """Adds samples; `thin` leaves out three of four pixels that say nearly the same.

        Sums of products stay as they are when samples of a fold are rotated among each other. Where inputs are mixtures
        of a few fields, nearly all rotated ones are zero, and all pixels of the others are taken. Where not, only every
        second pixel along each axis is, another set for every part of the samples.
        """
        need = tuple(s + 2 * self.half for s in y.shape[3:])
        if any(have < want for have, want in zip(x.shape[3:], need, strict=True)):
            x = _extend(x, self.half)
        x = centre_crop(x, need)
        x = x if self.places is None else with_places(x, self.places)
        if not self.channels:
            charts, self.channels = x.shape[1:3]
            size, outputs = self.channels * int(self.disc.sum()) + 1, y.shape[2]
            self.gram = torch.zeros(self.folds, charts, size, size, dtype=torch.float64)
            self.right = torch.zeros(self.folds, charts, size, outputs, dtype=torch.float64)
            self.square = torch.zeros(self.folds, charts, outputs, dtype=torch.float64)
        frame = frame_of(x.flatten(0, 2).flatten(1).double(), len(fold) // (2 * self.folds * self.channels))
        step = max(1, _NUMBERS // (x.shape[1:3].numel() * len(self.disc) * math.prod(y.shape[3:])))
        for k in range(self.folds):
            mine = (fold == k).nonzero().flatten()
            rotated = _rotated(x[mine], y[mine], frame)
            for n, (u, one, v) in enumerate(zip(*(z.split(step) for z in rotated), strict=True)):
                columns, right = self._columns(u, one, v, n if thin and frame is None else None)
                self.gram[k] += columns @ columns.mT
                self.right[k] += columns @ right.mT
                if frame is None:
                    self.square[k] += right.square().sum(-1)
                    self.rows[k] += right.shape[-1]
            if frame is not None:
                self.square[k] += y[mine].double().square().flatten(3).sum((0, 3))
                self.rows[k] += len(mine) * math.prod(y.shape[3:])

    def _columns(self, x: Tensor, one: Tensor, y: Tensor, part: int | None) -> tuple[Tensor, Tensor]:
        """Neighbourhoods of pixels with the constant last, `(K, F + 1, B Q)`, and the targets there, `(K, C', B Q)`.

        Arguments:
            x: Fields `(B, K, C, *need)`.
            one: What the constant is for each, `(B, K)`.
            y: Targets `(B, K, C', *shape)`.
            part: Which pixels are taken; `None` for all.
        """
        d, width = self.dimensions, 2 * self.half + 1
        for axis in range(3, 3 + d):
            first, stride = (0, 1) if part is None else ((part >> (axis - 3)) % 2, 2)
            x = x.narrow(axis, first, x.shape[axis] - first).unfold(axis, width, stride)
            y = y.index_select(axis, torch.arange(first, y.shape[axis], stride))
        # (B, K, C, *shape, *width) to neighbours first, each with a row of its own.
        x = x.permute(1, 2, *range(3 + d, 3 + 2 * d), 0, *range(3, 3 + d)).flatten(2, 1 + d)
        wide = x[:, :, self.disc].double().flatten(1, 2).flatten(2)
        constant = one.mT.double().repeat_interleave(math.prod(y.shape[3:]), dim=1)[:, None]
        return torch.cat([wide, constant], dim=1), y.double().movedim(0, 2).flatten(2)

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
