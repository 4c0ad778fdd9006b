"""A linear local stencil per chart, solved by ridge regression in closed form."""

from __future__ import annotations

__all__ = ["StencilPredictor"]

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

_CONVOLUTION = {2: functional.conv2d, 3: functional.conv3d}


@dataclass(frozen=True, kw_only=True)
class StencilPredictor:
    """Outputs as a weighted sum of the pixels around, one stencil per chart.

    Arguments:
        width: Width of the stencil in pixels, odd.
        ridges: Candidate ridge strengths, relative to the mean square of the inputs; each chart takes the
            strongest that costs at most `slack` of skill on held-out data.
        slack: Skill that a smoother stencil may cost.
        batch: Samples read together.
    """

    width: int = 13
    ridges: tuple[float, ...] = (1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
    slack: float = 0.005
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
        width = self._fitting_width(samples)
        moments = _Moments(width, samples.size)
        for part, index in enumerate(progress.track(samples.in_order(train).split(self.batch), "fit stencils")):
            moments.add(samples.inputs(index), samples.targets(index), part if len(train) >= 200 else None)
        parameters = moments.features
        if len(train) * moments.pixels < 4 * parameters:
            raise InputError(
                f"`x` must hold more samples than a {width}-pixel stencil needs: got {len(train)} to fit on, "
                f"{parameters} weights per chart; give more data or a smaller width."
            )
        function = self._choose(moments, samples, held_out)
        skill = measure_skill(function, samples, train, held_out, batch=self.batch)
        return FittedPredictor(
            function=function,
            kind=f"linear stencil, {width} wide",
            skill=skill.pooled,
            chart_skill=skill.charts,
            reach=float(width // 2),
            samples=len(train),
            seconds=time.perf_counter() - started,
            untrained=_Untrained(tuple(function.weight.shape), function.shape),
        )

    def _fitting_width(self, samples: Samples) -> int:
        radii = samples.atlas.radii
        if radii is None:
            return self.width
        room = radii[0] - radii[1]
        if room < 1:
            raise InputError(
                "`in_radius` must exceed `out_radius` for a stencil to see its neighbours, "
                f"got {radii[0]} and {radii[1]}."
            )
        return min(self.width, 2 * room + 1)

    def _choose(self, moments: _Moments, samples: Samples, held_out: Tensor) -> _Stencil:
        solutions = [moments.solve(ridge) for ridge in self.ridges]  # each (K, F + 1, C')
        errors = torch.zeros(len(solutions), len(samples.atlas), dtype=torch.float64)
        for index in samples.in_order(held_out).split(self.batch):
            x, y = samples.inputs(index), samples.targets(index)
            for i, solution in enumerate(solutions):
                function = moments.stencil(solution, tuple(y.shape[3:]))
                errors[i] += (function(x) - y).double().square().flatten(2).mean(-1).sum(0)
        allowed = errors <= errors.min(0).values + self.slack * len(held_out) * moments.pointwise_error()
        # The strongest ridge that costs nothing measurable: what the data leave open is left smooth.
        best = (allowed * torch.arange(1, len(solutions) + 1)[:, None]).argmax(0)
        chosen = torch.stack([solutions[int(i)][k] for k, i in enumerate(best)])
        return moments.stencil(chosen, moments.shape)


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
    """Normal equations of all charts, accumulated."""

    def __init__(self, width: int, dimensions: int) -> None:
        self.width, self.dimensions = width, dimensions
        self.gram: Tensor = torch.tensor(0.0)
        self.right: Tensor = torch.tensor(0.0)
        self.square: Tensor = torch.tensor(0.0)  # sum of y^2, (K, C')
        self.rows = 0
        self.shape: tuple[int, ...] = ()
        self.channels = 0

    @property
    def features(self) -> int:
        return self.channels * self.width**self.dimensions

    @property
    def pixels(self) -> int:
        return int(torch.tensor(self.shape).prod())

    def pointwise_error(self) -> Tensor:
        """Error of the best linear map of the centre pixel, per chart `(K,)`, on the samples seen."""
        middle = self.width**self.dimensions
        keep = [c * middle + middle // 2 for c in range(self.channels)] + [self.features]
        gram, right = self.gram[:, keep][:, :, keep], self.right[:, keep]
        ridge = (
            1e-12 * gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None] * torch.eye(len(keep), dtype=torch.float64)
        )
        explained = (right * torch.linalg.solve(gram + ridge, right)).sum(1)
        return ((self.square - explained) / self.rows).mean(-1).clamp_min(0.0)

    def add(self, x: Tensor, y: Tensor, part: int | None = None) -> None:
        """Adds samples; with `part`, only every second pixel along each axis, another set for every part.

        Neighbouring pixels say nearly the same: a quarter of them costs a quarter of the time.
        """
        self.shape, self.channels = tuple(y.shape[3:]), x.shape[2]
        need = tuple(s + self.width - 1 for s in self.shape)
        if any(have < want for have, want in zip(x.shape[3:], need, strict=True)):
            x = _extend(x, self.width // 2)
        x = centre_crop(x, need)
        for axis in range(self.dimensions):
            first, stride = (0, 1) if part is None else ((part >> axis) % 2, 2)
            x = x.narrow(3 + axis, first, x.shape[3 + axis] - first).unfold(3 + axis, self.width, stride)
            keep = torch.arange(first, y.shape[3 + axis], stride)
            y = y.index_select(3 + axis, keep)  # x is now (B, K, C, *shape, *width)
        d = self.dimensions
        columns = x.movedim(tuple(range(3, 3 + d)), tuple(range(-d, 0))).flatten(2, 2 + d).flatten(3)  # (B, K, F, Q)
        columns = torch.cat([columns, torch.ones_like(columns[:, :, :1])], dim=2)
        columns = columns.movedim(0, 2).flatten(2)  # (K, F + 1, B Q)
        values = y.flatten(3).movedim(0, 2).flatten(2).movedim(1, 1)  # (K, C', B Q)
        # float32 products, float64 sums: exact enough for a ridge of 1e-8, at half the cost.
        wide = columns.double()
        self.gram = self.gram + wide @ wide.mT
        self.right = self.right + wide @ values.double().mT
        self.square = self.square + values.double().square().sum(-1)
        self.rows += columns.shape[-1]

    def solve(self, ridge: float) -> Tensor:
        """Weights and constant, with shape `(K, F + 1, C')`."""
        n = self.gram.shape[-1]
        mean = self.gram[..., :-1, -1:] / self.rows
        covariance = self.gram[..., :-1, :-1] / self.rows - mean @ mean.mT
        target = self.right[..., -1:, :] / self.rows
        cross = self.right[..., :-1, :] / self.rows - mean @ target
        size = covariance.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-30)
        eye = torch.eye(n - 1, dtype=torch.float64)
        weights = torch.linalg.solve(covariance + ridge * size[:, None, None] * eye, cross)
        return torch.cat([weights, target - mean.mT @ weights], dim=1)

    def stencil(self, solution: Tensor, shape: tuple[int, ...]) -> _Stencil:
        weight = solution[:, :-1].mT.reshape(solution.shape[0], -1, self.channels, *([self.width] * self.dimensions))
        return _Stencil(weight, solution[:, -1], shape)
