"""A linear local stencil per chart, solved by ridge regression in closed form."""

from __future__ import annotations

__all__ = ["StencilPredictor"]

import math
import time
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.samples import Samples
from atlasd.prediction.skill import measure_skill
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

FEATURES = 600
"""The most weights of a stencil that is wider than it need be."""

WORTH = 0.5
"""Share of the square norm of a smaller stencil below which a larger one is taken."""

SHARP = 0.03
"""Share of the slack that the sharp twin of a stencil may use."""

_CONVOLUTION = {2: functional.conv2d, 3: functional.conv3d}


@dataclass(frozen=True, kw_only=True)
class StencilPredictor:
    """Outputs as a weighted sum of the pixels around, one round stencil per chart.

    A stencil may be wider than the margin between the input and the output patch: outputs then count only where it
    fits. Each chart takes the stencil of least norm that costs no skill, a wider one only where that is much less.

    Arguments:
        width: The largest width of the stencil in pixels, odd.
        ridges: Candidate ridge strengths, relative to the mean square of the inputs.
        slack: Skill on held-out data that a smaller and smoother stencil may cost.
        batch: Samples read together.
    """

    width: int = 21
    ridges: tuple[float, ...] = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    slack: float = 0.01
    batch: int = 64

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % 2 == 0:
            raise InputError(f"`width` must be odd and positive, got {self.width}.")

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Solves the normal equations of every chart, accumulated sample by sample in float64."""
        if not samples.is_field or samples.classes:
            raise InputError(
                "`predictor` must not be a StencilPredictor for vectors or classes; use MLPPredictor or ConvPredictor."
            )
        started = time.perf_counter()
        halves, smooth = self._halves(samples, len(train))
        room = _room(samples, halves[-1])
        moments = _Moments(halves[-1], samples.size)
        for part, index in enumerate(progress.track(samples.in_order(train).split(self.batch), "fit stencils")):
            y = samples.targets(index)
            inner = y if room is None else centre_crop(y, room)
            moments.add(samples.inputs(index), inner, part if len(train) >= 200 else None)
        shape = tuple(samples.targets(held_out[:1]).shape[3:])
        (function, half), (sharp, wide) = self._choose(moments, samples, held_out, halves, smooth, shape)
        skill = measure_skill(function, samples, train, held_out, batch=self.batch, inner=_room(samples, half))
        return FittedPredictor(
            function=function,
            kind=f"linear stencil, {2 * half + 1} wide",
            skill=skill.pooled,
            chart_skill=skill.charts,
            reach=half + 0.5,
            samples=len(train),
            seconds=time.perf_counter() - started,
            untrained=_Untrained(tuple(function.weight.shape), function.shape),
            sharp=sharp,
            sharp_reach=wide + 0.5,
        )

    def _halves(self, samples: Samples, count: int) -> tuple[list[int], int]:
        """Half widths to try, smallest first: those that the charts, the data and the time have room for.

        The second number says how many of them leave room enough for a verdict; the rest is for the sharp twin.
        """
        widest = most = self.width // 2
        radii = samples.atlas.radii
        least = min(most, 2)
        if radii is None:
            widest = most = min(most, 6)
        else:
            room = radii[0] - radii[1]
            if room < 1:
                raise InputError(
                    "`in_radius` must exceed `out_radius` for a stencil to see its neighbours, "
                    f"got {radii[0]} and {radii[1]}."
                )
            least, most = min(most, room), min(most, max(room, 3 * radii[0] // 7))
            widest = min(widest, max(room, 4 * radii[0] // 7))
        halves = sorted({least, (least + most) // 2, most, widest})
        channels, small = samples.x.shape[1], count >= 200
        enough: list[int] = []
        for half in halves:
            features = channels * int(_disc(half, samples.size).sum())
            shape = _room(samples, half) or tuple(samples.x.shape[2:])
            pixels = math.prod(shape) / (2**samples.size if small else 1)
            if count * pixels >= 4 * features and (half == least or features <= FEATURES):
                enough.append(half)
            elif half == least:
                raise InputError(
                    f"`x` must hold more samples than a {2 * half + 1}-pixel stencil needs: got {count} to fit on, "
                    f"{features} weights per chart; give more data or a smaller width."
                )
        return enough, sum(half <= most for half in enough)

    def _choose(
        self,
        moments: _Moments,
        samples: Samples,
        held_out: Tensor,
        halves: list[int],
        smooth: int,
        shape: tuple[int, ...],
    ) -> tuple[tuple[_Stencil, int], tuple[_Stencil, int]]:
        """For every chart the smoothest stencil within the slack of the best; a larger one must be much smoother.

        Its sharp twin has hardly any slack: a ridge shrinks what the data hold little of, and where that differs
        from axis to axis it bends directions. It is as wide, or wider where only the twin may be: then outputs count
        on a smaller disc, which is enough for a direction, and too little for a verdict. Both with their half width.
        """
        recipes = [(half, ridge) for half in halves for ridge in self.ridges]
        solutions = [moments.solve(half, ridge) for half, ridge in recipes]  # each (K, F + 1, C')
        errors = torch.zeros(len(recipes), len(samples.atlas), dtype=torch.float64)
        inner = _room(samples, halves[-1])
        for index in held_out.split(self.batch):
            x, y = samples.inputs(index), samples.targets(index)
            y = y if inner is None else centre_crop(y, inner)
            for i, solution in enumerate(solutions):
                function = moments.stencil(solution, halves[-1], tuple(y.shape[3:]))
                errors[i] += (function(x) - y).double().square().flatten(2).mean(-1).sum(0)
        slack = self.slack * len(held_out) * moments.pointwise_error()
        norms = torch.stack([solution[:, :-1].square().sum((1, 2)) for solution in solutions])

        errors, norms = (values.unflatten(0, (len(halves), -1)) for values in (errors, norms))  # (H, R, K)
        allowed = torch.where(errors <= errors[:smooth].amin((0, 1)) + slack, norms, math.inf)
        # (H, K): what the data leave open is left smooth
        least, ridge = allowed.min(1)
        taken = torch.zeros(len(samples.atlas), dtype=torch.long)
        for row in range(1, smooth):
            current = least.gather(0, taken[None])[0]
            taken = torch.where(least[row] < WORTH * current, row, taken)
        close = errors <= errors.min(1, keepdim=True).values + SHARP * slack
        sharpest = torch.where(close, norms, math.inf).argmin(1)

        def stencil(widths: Tensor, ridges: Tensor) -> tuple[_Stencil, int]:
            rows = widths * len(self.ridges) + ridges.gather(0, widths[None])[0]
            chosen = torch.stack([solutions[int(i)][k] for k, i in enumerate(rows)])
            half = max(halves[int(row)] for row in widths)
            return moments.stencil(chosen, half, shape), half

        wide = taken if smooth == len(halves) else torch.full_like(taken, len(halves) - 1)
        return stencil(taken, ridge), stencil(wide, sharpest)


def _room(samples: Samples, half: int) -> tuple[int, ...] | None:
    """Shape of the outputs where a stencil fits into the input patch, or `None` for whole fields."""
    radii = samples.atlas.radii
    return None if radii is None else (2 * min(radii[1], radii[0] - half) + 1,) * samples.size


def _disc(half: int, dimensions: int, within: int | None = None) -> Tensor:
    """Which pixels of a box of half width `within` belong to a round stencil, with shape `(width,) * dimensions`."""
    line = torch.arange(2 * (half if within is None else within) + 1) - (half if within is None else within)
    grid = torch.stack(torch.meshgrid(*[line] * dimensions, indexing="ij"))
    return grid.square().sum(0) <= (half + 0.5) ** 2


@storable("weight", "bias", "shape")
class _Stencil:
    """Grouped convolution: one stencil per chart, inputs `(B, K, C, *in)` to `(B, K, C', *shape)`."""

    def __init__(self, weight: Tensor, bias: Tensor, shape: tuple[int, ...]) -> None:
        self.weight, self.bias, self.shape = weight, bias, shape  # (K, C', C, *width), (K, C')

    def __call__(self, x: Tensor) -> Tensor:
        charts, outputs = self.weight.shape[:2]
        width = self.weight.shape[-1]
        need = tuple(s + width - 1 for s in self.shape)
        if any(have < want for have, want in zip(x.shape[3:], need, strict=True)):  # the whole field is one chart
            x = _extend(x, width // 2)
        flat = centre_crop(x, need).flatten(1, 2)
        y = _CONVOLUTION[len(self.shape)](
            flat, self.weight.flatten(0, 1).to(x.dtype), self.bias.flatten().to(x.dtype), groups=charts
        )
        return y.unflatten(1, (charts, outputs))

    def narrowed(self, width: int) -> _Stencil:
        """The same for the middle of the outputs, at most so many pixels wide, or one more to keep the centre."""
        return _Stencil(self.weight, self.bias, tuple(min(s, width + (s - width) % 2) for s in self.shape))


@storable()
@dataclass(frozen=True)
class _Untrained:
    """Draws stencils of the same shape."""

    weights: tuple[int, ...]
    shape: tuple[int, ...]

    def __call__(self, generator: torch.Generator) -> _Stencil:
        weight = torch.randn(self.weights, generator=generator, dtype=torch.float64)
        return _Stencil(weight, weight.new_zeros(self.weights[:2]), self.shape)


def _extend(x: Tensor, reach: int) -> Tensor:
    """Repeats the border `reach` pixels outwards."""
    d = x.ndim - 3
    return functional.pad(x.flatten(0, 1), (reach, reach) * d, mode="replicate").unflatten(0, x.shape[:2])


class _Moments:
    """Normal equations of all charts, accumulated for the largest stencil; smaller ones are parts of it."""

    def __init__(self, half: int, dimensions: int) -> None:
        self.half, self.dimensions = half, dimensions
        self.disc = _disc(half, dimensions).flatten()
        self.gram: Tensor = torch.tensor(0.0)
        self.right: Tensor = torch.tensor(0.0)
        self.square: Tensor = torch.tensor(0.0)  # sum of y^2, (K, C')
        self.rows = 0
        self.channels = 0

    def pointwise_error(self) -> Tensor:
        """Error of the best linear map of the centre pixel, per chart `(K,)`, on the samples seen."""
        keep = self._features(0)
        gram, right = self.gram[:, keep][:, :, keep], self.right[:, keep]
        ridge = (
            1e-12 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(len(keep), dtype=torch.float64)
        )
        explained = (right * torch.linalg.solve(gram + ridge, right)).sum(1)
        return ((self.square - explained) / self.rows).mean(-1).clamp_min(0.0)

    def _features(self, half: int) -> Tensor:
        """Rows of the normal equations that a stencil of this half width uses, the constant last."""
        small = _disc(half, self.dimensions, self.half).flatten()[self.disc].repeat(self.channels)
        return torch.cat([small.nonzero().flatten(), torch.tensor([len(small)])])

    def add(self, x: Tensor, y: Tensor, part: int | None = None) -> None:
        """Adds samples; with `part`, only every second pixel along each axis, another set for every part.

        Neighbouring pixels say nearly the same: a quarter of them costs a quarter of the time.
        """
        self.channels = x.shape[2]
        width = 2 * self.half + 1
        need = tuple(s + width - 1 for s in y.shape[3:])
        if any(have < want for have, want in zip(x.shape[3:], need, strict=True)):
            x = _extend(x, self.half)
        x = centre_crop(x, need)
        for axis in range(self.dimensions):
            first, stride = (0, 1) if part is None else ((part >> axis) % 2, 2)
            x = x.narrow(3 + axis, first, x.shape[3 + axis] - first).unfold(3 + axis, width, stride)
            keep = torch.arange(first, y.shape[3 + axis], stride)
            y = y.index_select(3 + axis, keep)  # x is now (B, K, C, *shape, *width)
        d = self.dimensions
        columns = x.flatten(3 + d)[..., self.disc].flatten(3, 2 + d)  # (B, K, C, Q, F)
        columns = columns.permute(1, 2, 4, 0, 3).flatten(3).flatten(1, 2)  # (K, C F, B Q)
        values = y.flatten(3).movedim(0, 2).flatten(2).double()  # (K, C', B Q)
        wide = torch.cat([columns.double(), values.new_ones(len(columns), 1, columns.shape[-1])], dim=1)
        self.gram = self.gram + wide @ wide.mT
        self.right = self.right + wide @ values.mT
        self.square = self.square + values.square().sum(-1)
        self.rows += columns.shape[-1]

    def solve(self, half: int, ridge: float) -> Tensor:
        """Weights, zero beyond `half`, and constant, with shape `(K, F + 1, C')`."""
        keep = self._features(half)
        gram, right = self.gram[:, keep][:, :, keep], self.right[:, keep]
        mean = gram[..., :-1, -1:] / self.rows
        covariance = gram[..., :-1, :-1] / self.rows - mean @ mean.mT
        target = right[..., -1:, :] / self.rows
        cross = right[..., :-1, :] / self.rows - mean @ target
        size = covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-30)
        eye = torch.eye(len(keep) - 1, dtype=torch.float64)
        weights = torch.linalg.solve(covariance + ridge * size[:, None, None] * eye, cross)
        solution = torch.zeros_like(self.right)
        solution[:, keep] = torch.cat([weights, target - mean.mT @ weights], dim=1)
        return solution

    def stencil(self, solution: Tensor, half: int, shape: tuple[int, ...]) -> _Stencil:
        """The stencil of a solution that is zero beyond `half`."""
        charts, outputs, d = solution.shape[0], solution.shape[2], self.dimensions
        weight = solution.new_zeros(charts, outputs, self.channels, len(self.disc))
        weight[..., self.disc] = solution[:, :-1].mT.unflatten(2, (self.channels, -1))
        weight = weight.unflatten(3, (2 * self.half + 1,) * d)
        return _Stencil(centre_crop(weight, (2 * half + 1,) * d).contiguous(), solution[:, -1], shape)
