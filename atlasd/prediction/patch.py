"""A perceptron on the pixels around each pixel: nonlinear local maps, learned from a sample of pixels."""

from __future__ import annotations

__all__ = ["PatchPredictor"]

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.prediction.networks import gate, uniform
from atlasd.prediction.optimise import Adam, one_cycle
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.skill import measure_skill
from atlasd.prediction.train import Ensemble, polish
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_CONVOLUTION = {2: functional.conv2d, 3: functional.conv3d}


@dataclass(frozen=True, kw_only=True)
class PatchPredictor:
    """A stencil of first and second order, a cube of the pixel, and a perceptron for the rest, for all pixels alike.

    Second order is solved in closed form with the first: squared gradients and curvatures are of that kind, and a
    polynomial goes on outside the data where a perceptron saturates. The whole is a convolution
    followed by layers that look at one pixel. That is why it can be fitted to a few thousand
    pixels drawn at random in place of whole patches, in seconds.

    Arguments:
        width: Width of the neighbourhood in pixels, odd.
        components: The most principal components of neighbourhoods that the perceptron is given.
        hidden: Widths of the hidden layers.
        pixels: Pixels drawn for each chart.
        steps: Batches of Adam.
        batch: Pixels in a batch.
        learning_rate: Peak of a one-cycle schedule.
        iterations: The most L-BFGS iterations afterwards.
    """

    width: int = 9
    components: int = 24
    hidden: tuple[int, ...] = (32, 32)
    pixels: int = 4096
    steps: int = 600
    batch: int = 256
    learning_rate: float = 1e-2
    iterations: int = 300

    def __post_init__(self) -> None:
        if self.width < 1 or self.width % 2 == 0:
            raise InputError(f"`width` must be odd and positive, got {self.width}.")

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits all charts together."""
        radii = samples.atlas.radii
        if not samples.is_field or samples.classes or radii is None:
            raise InputError(
                "`predictor` must not be a PatchPredictor for vectors, classes or whole fields; "
                "use MLPPredictor, ConvPredictor or an atlas."
            )
        started = time.perf_counter()
        width = min(self.width, 2 * (radii[0] - radii[1]) + 1)
        generator = stream(seed, "fit", "pixels")
        x, y = _draw(samples, train, width, self.pixels, generator)
        shape = tuple(samples.targets(train[:1]).shape[3:])
        network = _Patch(x, y, width, shape, self.components, self.hidden, stream(seed, "fit", "weights"))
        # What is left after that is rounding where the map is of second order.
        if network.fit_base(x, y) > 1e-5:
            held = _draw(samples, held_out, width, max(self.pixels // 3, 500), generator)
            self._train(network, x, y, *held, generator, progress)
        network.requires_grad_(False)
        skill = measure_skill(network, samples, train, held_out)

        return FittedPredictor(
            function=network,
            kind=f"perceptron on {width}-pixel patches",
            skill=skill.pooled,
            chart_skill=skill.charts,
            reach=math.sqrt(samples.size) * (width // 2),
            samples=len(train),
            seconds=time.perf_counter() - started,
        )

    def _train(
        self,
        network: _Patch,
        x: Tensor,
        y: Tensor,
        held_x: Tensor,
        held_y: Tensor,
        generator: torch.Generator,
        progress: Progress,
    ) -> None:
        """Adam on mini-batches of pixels, then L-BFGS on all of them."""
        unit = network.scale.square().mean(-1)[:, None, None]  # (K, 1, 1)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            return ((network.on_rows(x) - y).square() / unit).mean()

        optimiser = Adam(list(network.parameters()))
        for _ in progress.track(range(self.steps), "fit predictors"):
            pick = torch.randint(x.shape[1], (self.batch,), generator=generator)
            loss(x[:, pick], y[:, pick]).backward()  # type: ignore[no-untyped-call]
            optimiser.step(*one_cycle(optimiser.count, self.steps, self.learning_rate))

        def losses() -> Iterator[Tensor]:
            yield loss(x, y)[None]

        def held_out_loss() -> Tensor:
            with torch.no_grad():
                return loss(held_x, held_y).detach()[None]

        polish(Ensemble([network]), losses, held_out_loss, self.iterations, held_out_loss(), progress)


def _draw(
    samples: Samples, index: Tensor, width: int, pixels: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Neighbourhoods `(K, M, C * width^d)` and targets `(K, M, C')` of pixels drawn from samples `index`."""
    per = max(1, -(-pixels // len(index)))
    index = index[: -(-pixels // per)]
    rows, values = [], []
    for part in index.split(64):
        x, y = samples.inputs(part), samples.targets(part)
        shape = tuple(y.shape[3:])
        patches = centre_crop(x, tuple(s + width - 1 for s in shape))
        for axis in range(len(shape)):
            patches = patches.unfold(3 + axis, width, 1)  # (B, K, C, *shape, *width)
        d = len(shape)
        # One draw of pixels for every sample and chart.
        where = [torch.randint(s, (len(part), y.shape[1], per), generator=generator) for s in shape]
        b = torch.arange(len(part))[:, None, None]
        k = torch.arange(y.shape[1])[None, :, None]
        rows.append(patches.movedim(2, 2 + d)[(b, k, *where)].flatten(3))  # (B, K, per, C * width^d)
        values.append(y.movedim(2, -1)[(b, k, *where)])
    x, y = torch.cat(rows), torch.cat(values)
    return x.movedim(1, 0).flatten(1, 2), y.movedim(1, 0).flatten(1, 2)


class _Patch(nn.Module):
    """First and second order in principal components of the neighbourhood, plus a perceptron, for every chart."""

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        width: int,
        shape: tuple[int, ...],
        components: int,
        hidden: tuple[int, ...],
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        charts, _, features = x.shape
        self.width, self.shape = width, shape
        dimensions = len(shape)
        self.channels = features // width**dimensions
        self.mean = x.double().mean(1)  # (K, F)
        centred = x.double() - self.mean[:, None]
        values, vectors = torch.linalg.eigh(centred.mT @ centred / x.shape[1])
        rank = min(components * self.channels, int((values > 1e-8 * values[:, -1:]).sum(-1).min()))
        # Weak components carry the higher derivatives: all are brought to one size.
        self.frame = (vectors[..., -rank:] / values[:, None, -rank:].sqrt()).flip(-1)  # (K, F, R)
        self.middle = width**dimensions // 2 + width**dimensions * torch.arange(self.channels)
        self.unit = centred[:, :, self.middle].square().mean(1).sqrt().clamp_min(1e-30)  # (K, C)
        self.scale = y.double().std(1).clamp_min(1e-30).float()  # (K, C')
        outputs = y.shape[-1]
        self.linear = nn.Parameter(uniform((charts, rank + self.channels + 1, outputs), rank, generator))
        self.quadratic = nn.Parameter(uniform((charts, rank, outputs * rank), rank * rank, generator))
        widths = [rank, *hidden]
        self.layers = nn.ParameterList()
        for a, b in pairwise(widths):
            self.layers.append(nn.Parameter(uniform((charts, a, 2 * b), a, generator)))
            self.layers.append(nn.Parameter(uniform((charts, 1, 2 * b), a, generator)))
        self.layers.append(nn.Parameter(uniform((charts, widths[-1], outputs), widths[-1], generator)))

    def fit_base(self, x: Tensor, y: Tensor) -> float:
        """Least squares for both orders; the perceptron starts from nothing. Returns the share of variance left."""
        z, features = self._features(x.double())
        rank = z.shape[-1]
        i, j = torch.triu_indices(rank, rank)
        wide = torch.cat([features, z[..., i] * z[..., j]], dim=-1)
        target = y.double() / self.scale[:, None].double()
        gram = wide.mT @ wide + 1e-7 * x.shape[1] * torch.eye(wide.shape[-1], dtype=torch.float64)
        solved = torch.linalg.solve(gram, wide.mT @ target)
        form = z.new_zeros(len(x), y.shape[-1], rank, rank)
        form[..., i, j] = solved[:, features.shape[-1] :].mT
        with torch.no_grad():
            self.linear.copy_(solved[:, : features.shape[-1]])
            self.quadratic.copy_(form.movedim(1, 2).flatten(2))
            self.layers[-1].mul_(0.0)
        return float((target - wide @ solved).square().mean())

    def _features(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Principal components `(K, M, R)` of neighbourhoods, and what the outputs are linear in."""
        z = (x - self.mean[:, None].to(x.dtype)) @ self.frame.to(x.dtype)
        return z, self._with_cube(z, x[..., self.middle])

    def _with_cube(self, z: Tensor, pixel: Tensor) -> Tensor:
        middle, unit = self.mean[:, self.middle].to(pixel.dtype), self.unit.to(pixel.dtype)
        u = (pixel - middle[:, None]) / unit[:, None]
        return torch.cat([z, u * u * u, torch.ones_like(u[..., :1])], dim=-1)

    def on_rows(self, x: Tensor) -> Tensor:
        """Neighbourhoods `(K, M, F)` to outputs `(K, M, C')`."""
        return self._outputs(*self._features(x))

    def _outputs(self, components: Tensor, features: Tensor) -> Tensor:
        kind, outputs = components.dtype, self.scale.shape[-1]
        second = (components @ self.quadratic.to(kind)).unflatten(-1, (outputs, -1)) * components.unsqueeze(-2)
        z = components
        for weight, bias in zip(self.layers[:-1:2], self.layers[1::2], strict=True):
            z = gate(z @ weight.to(kind) + bias.to(kind))
        y = z @ self.layers[-1].to(kind) + features @ self.linear.to(kind) + second.sum(-1)
        return y * self.scale[:, None].to(kind)

    def forward(self, x: Tensor) -> Tensor:
        """Patches `(B, K, C, *in)` to outputs `(B, K, C', *out)`, without padding."""
        b, charts = x.shape[:2]
        d, width = len(self.shape), self.width
        x = centre_crop(x, tuple(s + width - 1 for s in self.shape))
        rank = self.frame.shape[-1]
        kernel = self.frame.mT.reshape(charts * rank, self.channels, *([width] * d)).to(x.dtype)
        offset = (self.mean[:, None] @ self.frame).flatten().to(x.dtype)
        responses = _CONVOLUTION[d](x.flatten(1, 2), kernel, -offset, groups=charts)
        components = responses.unflatten(1, (charts, rank)).movedim((1, 2), (0, -1)).flatten(1, -2)  # (K, Q, R)
        pixel = centre_crop(x, self.shape).movedim((1, 2), (0, -1)).flatten(1, -2)
        y = self._outputs(components, self._with_cube(components, pixel))
        return y.unflatten(1, (b, *self.shape)).movedim((0, -1), (1, 2))
