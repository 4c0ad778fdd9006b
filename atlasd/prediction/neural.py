"""Recipes for neural predictors: convolutions for fields, a perceptron for vectors."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.prediction.networks import ChartConv, VectorMLP
from atlasd.prediction.predictor import FittedPredictor, with_skill
from atlasd.prediction.train import Job, Schedule, fit_networks, standardise
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream


@storable()
@dataclass(frozen=True)
class Architecture:
    """A kind of network with its shape: all but the weights."""

    kind: type[nn.Module]
    shape: tuple[Any, ...]
    options: Mapping[str, Any]

    def __call__(self, generator: torch.Generator) -> nn.Module:
        return self.kind(*self.shape, **self.options, generator=generator)


def rebuilt(content: Mapping[str, Any]) -> nn.Module:
    """A network as it was fitted, from its architecture and its weights."""
    network = content["architecture"](stream(0, "rebuild"))
    weights = content["weights"]
    network.to(next(w.dtype for w in weights.values() if w.is_floating_point())).load_state_dict(weights)
    return network.eval().requires_grad_(False)


for _kind in (ChartConv, VectorMLP):
    storable("architecture", "weights", read=rebuilt)(_kind)


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
    told: dict[str, Any] = {"kind": kind, "reach": reach, "seconds": seconds, "curves": curves}
    return [
        with_skill([network], job.samples, job.train, job.held_out, **told)[0]
        for network, job in zip(networks, jobs, strict=True)
    ]


@dataclass(frozen=True, eq=False)
class Blueprint:
    """A network for all charts that is not trained yet.

    Arguments:
        make: Builds it, from a generator of its first weights.
        reach: Radius of its receptive field in pixels, to the farthest.
        class_weights: How much every class counts in its loss, `(classes,)`; `None` for all alike.
    """

    make: Architecture
    kind: str
    reach: float
    class_weights: Tensor | None = None

    def fit(self, jobs: Sequence[Job], schedule: Schedule, *, seed: int, progress: Progress) -> list[FittedPredictor]:
        """Fits one network for each job, all at once."""
        return fit_modules(
            self.make, jobs, schedule, kind=self.kind, reach=self.reach,
            seed=seed, progress=progress, class_weights=self.class_weights,
        )  # fmt: skip


class FitsMany:
    """Base of recipes that train the networks of several jobs at once."""

    def fit_many(self, jobs: Sequence[Job], *, seed: int, progress: Progress) -> list[FittedPredictor]:
        """Fits one network for each job, all at once."""
        raise NotImplementedError

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits one network."""
        return self.fit_many([Job(samples, train, held_out)], seed=seed, progress=progress)[0]


class FromBlueprint:
    """Base of recipes that train one network for all charts, as their blueprint says."""

    schedule: Schedule

    def blueprint(self, samples: Samples) -> Blueprint:
        """The network of all charts for these samples."""
        raise NotImplementedError

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits the networks of all charts together."""
        job = Job(samples, train, held_out)
        return self.blueprint(samples).fit([job], self.schedule, seed=seed, progress=progress)[0]


PUBLISHED = Schedule(epochs=10, batch=16, learning_rate=1e-3, patience=None, constant=True, loss="mae")
"""How the paper trains its predictors of heat: ten passes, nothing cut short, the rate as it is."""


@dataclass(frozen=True, kw_only=True)
class ConvPredictor(FromBlueprint):
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

    @classmethod
    def published(cls, **changes: Any) -> ConvPredictor:
        """The network and the training of the paper: LeakyReLU then batch norm, mean absolute error.

        Arguments:
            changes: Settings that differ from the paper's.

        Example:
            >>> ConvPredictor.published().schedule.epochs
            10
        """
        return replace(cls(residual=False, smooth=False, schedule=PUBLISHED), **changes)

    def blueprint(self, samples: Samples) -> Blueprint:
        """The grouped network for these samples."""
        if not samples.is_field:
            raise InputError("`predictor` must not be a ConvPredictor for vectors; use MLPPredictor.")
        one = torch.zeros(1, dtype=torch.long)
        x, y = samples.inputs(one), samples.targets(one)
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
        return Blueprint(make, f"CNN, {layers} layers", math.sqrt(2.0) * layers * (self.kernel // 2))


@dataclass(frozen=True, kw_only=True)
class MLPPredictor(FitsMany):
    """A perceptron on all components of all tokens.

    Arguments:
        hidden: Widths of the hidden layers.
        gated: Layers that multiply, for polynomials; `False` is SiLU, which bears kinks and logarithms.
        relu: ReLU in place of SiLU, as in the paper.
        schedule: How to train.
    """

    hidden: tuple[int, ...] = (64, 64, 64)
    gated: bool = False
    relu: bool = False
    schedule: Schedule = Schedule(epochs=150, batch=256, learning_rate=1e-2, patience=30, steps=1000, polish=600)

    @classmethod
    def published(cls, **changes: Any) -> MLPPredictor:
        """The network and the training of the paper's jets: two hidden layers of 512, ReLU, ten passes.

        Arguments:
            changes: Settings that differ from the paper's.
        """
        return replace(cls(hidden=(512, 512), relu=True, schedule=PUBLISHED), **changes)

    def fit_many(self, jobs: Sequence[Job], *, seed: int, progress: Progress) -> list[FittedPredictor]:
        """Fits one network for each job, all at once."""
        return self.blueprint(jobs[0].samples).fit(jobs, self.schedule, seed=seed, progress=progress)

    def blueprint(self, samples: Samples) -> Blueprint:
        """The network for these samples."""
        if samples.is_field:
            raise InputError(
                "`predictor` must not be an MLPPredictor for fields; use StencilPredictor or ConvPredictor."
            )
        inputs = samples.x.shape[1:].numel()
        outputs = samples.classes or samples.outputs
        options = {"hidden": self.hidden, "gated": self.gated, "relu": self.relu}
        return Blueprint(
            Architecture(VectorMLP, (inputs, outputs), options), f"MLP {'-'.join(map(str, self.hidden))}", 0.0
        )
