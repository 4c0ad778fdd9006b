"""Recipes for neural predictors: convolutions for fields, a perceptron for vectors."""

from __future__ import annotations

__all__ = ["ConvPredictor", "MLPPredictor"]

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from atlasd.errors import InputError
from atlasd.prediction.networks import ChartConv, VectorMLP
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.samples import Samples
from atlasd.prediction.skill import measure_skill
from atlasd.prediction.train import Job, Schedule, fit_networks, standardise
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream


@storable()
@dataclass(frozen=True)
class Architecture:
    """A kind of network with its shape: all but the weights.

    Arguments:
        kind: The class.
        shape: Positional arguments.
        options: Arguments by name.
    """

    kind: type[nn.Module]
    shape: tuple[Any, ...]
    options: Mapping[str, Any]

    def __call__(self, generator: torch.Generator) -> nn.Module:
        return self.kind(*self.shape, **self.options, generator=generator)


def _rebuilt(content: Mapping[str, Any]) -> nn.Module:
    """A network as it was fitted, from its architecture and its weights."""
    network = content["architecture"](stream(0, "rebuild"))
    weights = content["weights"]
    network.to(next(w.dtype for w in weights.values() if w.is_floating_point())).load_state_dict(weights)
    return network.eval().requires_grad_(False)


for _kind in (ChartConv, VectorMLP):
    storable("architecture", "weights", read=_rebuilt)(_kind)


def fit_modules(
    make: Callable[[torch.Generator], nn.Module],
    jobs: Sequence[Job],
    schedule: Schedule,
    *,
    kind: str,
    reach: float,
    seed: int,
    progress: Progress,
    class_weights: Tensor | None = None,
    start: Callable[[nn.Module, Job, torch.Generator], None] | None = None,
) -> list[FittedPredictor]:
    """Fits for each job a network that `make` builds from a generator, all at once, and measures their skill.

    All begin with the same weights, so that two fits differ by what they were fitted to. `start` may set weights
    from the data before training; the network that it is given knows its units.
    """
    started = time.perf_counter()
    precision = jobs[0].samples.inputs(jobs[0].train[:1]).dtype
    networks = []
    for job in jobs:
        network = make(stream(seed, "fit", "weights")).to(precision)
        if start is not None:
            standardise(network, job.samples, job.train)
            start(network, job, stream(seed, "fit", "start"))
        network.architecture = make  # type: ignore[assignment]
        networks.append(network)
    curves = fit_networks(networks, jobs, schedule, seed=seed, progress=progress, class_weights=class_weights)
    seconds = (time.perf_counter() - started) / len(jobs)
    fitted = []
    for network, job in zip(networks, jobs, strict=True):
        skill = measure_skill(network, job.samples, job.train, job.held_out)
        fitted.append(
            FittedPredictor(
                function=network,
                kind=kind,
                skill=skill.pooled,
                chart_skill=skill.charts,
                reach=reach,
                classes=job.samples.classes,
                samples=len(job.train),
                seconds=seconds,
                curves=curves,
            )
        )
    return fitted


@dataclass(frozen=True, kw_only=True)
class ConvPredictor:
    """The paper's small CNN per chart, without padding; `residual` adds a map of the centre pixel.

    Arguments:
        hidden: Channels between layers.
        depth: Layers.
        kernel: Width of each kernel.
        residual: Lets the layers learn only what the centre pixel leaves over.
        smooth: SiLU without batch norm, better derivatives; `False` is LeakyReLU then batch norm, as in the paper.
        schedule: How to train.
    """

    hidden: int = 16
    depth: int = 4
    kernel: int = 3
    residual: bool = True
    smooth: bool = True
    schedule: Schedule = Schedule(epochs=60, batch=32, learning_rate=5e-3, patience=12)

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits every chart's network in one grouped network."""
        if not samples.is_field:
            raise InputError("`predictor` must not be a ConvPredictor for vectors; use MLPPredictor.")
        x, y = samples.inputs(train[:1]), samples.targets(train[:1])
        outputs = samples.classes or y.shape[2]
        shape = tuple(y.shape[2:]) if samples.classes else tuple(y.shape[3:])
        room = min(a - b for a, b in zip(x.shape[3:], shape, strict=True)) // 2
        layers = min(self.depth, room // (self.kernel // 2)) if samples.atlas.radii else self.depth
        if layers < 1:
            raise InputError(
                f"`in_radius` must exceed `out_radius` by at least {self.kernel // 2} for a convolution, got {room}."
            )
        if not samples.atlas.radii:
            raise InputError(
                "`atlas` must be given for a ConvPredictor: a chart needs a margin; use Atlas.at or Atlas.grid."
            )
        options = {"hidden": self.hidden, "depth": layers, "kernel": self.kernel}
        options |= {"residual": self.residual, "smooth": self.smooth}
        make = Architecture(ChartConv, (len(samples.atlas), x.shape[2], outputs, shape), options)

        return fit_modules(
            make, [Job(samples, train, held_out)], self.schedule,
            kind=f"CNN, {layers} layers", reach=math.sqrt(2.0) * layers * (self.kernel // 2),
            seed=seed, progress=progress,
        )[0]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MLPPredictor:
    """A perceptron on all components of all tokens.

    Arguments:
        hidden: Widths of the hidden layers.
        gated: Layers that multiply, for polynomials; `False` is SiLU, which bears kinks and logarithms.
        schedule: How to train.
    """

    hidden: tuple[int, ...] = (64, 64, 64)
    gated: bool = False
    schedule: Schedule = Schedule(epochs=150, batch=256, learning_rate=1e-2, patience=30, steps=1000, polish=600)

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits one network on all tokens."""
        return self.fit_many([Job(samples, train, held_out)], seed=seed, progress=progress)[0]

    def fit_many(self, jobs: Sequence[Job], *, seed: int, progress: Progress) -> list[FittedPredictor]:
        """Fits one network for each job, all at once."""
        samples = jobs[0].samples
        if samples.is_field:
            raise InputError(
                "`predictor` must not be an MLPPredictor for fields; use StencilPredictor or ConvPredictor."
            )
        inputs = samples.x.shape[1:].numel()
        outputs = samples.classes or samples.outputs
        make = Architecture(VectorMLP, (inputs, outputs), {"hidden": self.hidden, "gated": self.gated})
        return fit_modules(
            make, jobs, self.schedule,
            kind=f"MLP {'-'.join(map(str, self.hidden))}", reach=0.0, seed=seed, progress=progress,
        )  # fmt: skip
