"""The loop that fits networks: mini-batches, a held-out loss, early stopping, the best weights kept.

Several networks of one kind are fitted at once, each to its own samples: the folds of a cross-fit, and the fits to
targets with something planted. Small networks take hardly longer together than alone.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.prediction.optimise import Adam, Descent, one_cycle
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_POLISHED = 4096
"""The most samples that are polished on: each iteration reads all of them."""
_EXACT = 1e-6
"""Held-out loss in units of the targets' variance below which no more is to be gained in float32."""
_CACHED = 2e8
"""Numbers in the inputs up to which they are read once and kept."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast to train.

    Arguments:
        epochs: The most passes over the data.
        learning_rate: Peak of a one-cycle schedule.
        patience: Epochs without improvement before stopping; `None` trains to the end and keeps the last weights.
        steps: Batches after which to stop, though not before 10 epochs; `None` for no such limit.
        polish: The most L-BFGS iterations afterwards, on all samples at once. Mini-batches leave noise that
            hardly shows in the loss but does in the derivatives, which a search for symmetry looks at.
        constant: Keeps the learning rate as it is, as in the paper.
        loss: Of numbers: mean squared or mean absolute error. Classes have cross-entropy.
    """

    epochs: int = 100
    batch: int = 64
    learning_rate: float = 3e-3
    patience: int | None = 15
    steps: int | None = None
    polish: int = 0
    constant: bool = False
    loss: Literal["mse", "mae"] = "mse"

    def passes(self, samples: int) -> int:
        """Epochs for this many samples."""
        if self.steps is None:
            return self.epochs
        return min(self.epochs, max(10, round(self.steps / math.ceil(samples / self.batch))))


@dataclass(frozen=True, eq=False)
class Job:
    """What one network is fitted to.

    Arguments:
        train: Indices to fit on.
        held_out: Indices to stop early on.
    """

    samples: Samples
    train: Tensor
    held_out: Tensor


def loss_per_chart(
    output: Tensor, target: Tensor, classes: int, weights: Tensor | None, loss: Literal["mse", "mae"] = "mse"
) -> Tensor:
    """Loss of outputs `(B, K, *)` against targets, with shape `(K,)`; classes may weigh differently, `(classes,)`."""
    if not classes:
        miss = output - target
        return (miss.square() if loss == "mse" else miss.abs()).flatten(2).mean((0, 2))
    flat = functional.cross_entropy(output.flatten(0, 1), target.flatten(0, 1), weight=weights, reduction="none")
    rows = flat.unflatten(0, output.shape[:2])
    return rows.flatten(2).mean((0, 2)) if rows.ndim > 2 else rows.mean(0)


def standardise(network: nn.Module, samples: Samples, train: Tensor) -> Tensor:
    """Sets the network's units from the data and returns the variance of the targets, `(K,)`."""
    index = train[:512]
    x = samples.inputs(index).double()
    if samples.is_field:
        rest = (0, *range(3, x.ndim))
        network.get_buffer("shift").copy_(x.mean(rest))
        network.get_buffer("scale").copy_(x.std(rest).clamp_min(1e-12))
    else:
        # One unit for all components: scaling them apart would break the symmetry that is looked for.
        network.get_buffer("unit").copy_(x.square().mean().sqrt().clamp_min(1e-30))
    if samples.classes:
        return torch.ones(len(samples.atlas))
    y = samples.targets(index).double()
    rest = (0, *range(3, y.ndim)) if samples.is_field else (0, 1)
    shift, scale = y.mean(rest), y.std(rest).clamp_min(1e-12)
    network.get_buffer("out_shift").copy_(shift)
    network.get_buffer("out_scale").copy_(scale)
    return scale.square().mean(-1).reshape(-1).float().clamp_min(1e-24)


class Ensemble:
    """Networks of one kind as one function of stacked inputs `(E, B, K, *in)`; one network alone is called plainly."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self.networks = networks
        if len(networks) == 1:
            self.parameters: dict[str, Tensor] = dict(networks[0].named_parameters())
            return
        stacked, buffers = stack_module_state(list(networks))  # type: ignore[arg-type]
        self.parameters = {k: v.detach().requires_grad_() for k, v in stacked.items()}
        skeleton = copy.deepcopy(networks[0]).to("meta")

        def one(parameters: dict[str, Tensor], values: dict[str, Tensor], x: Tensor) -> Tensor:
            return functional_call(skeleton, (parameters, values), (x,))

        self._call = lambda x: vmap(one)(self.parameters, buffers, x)

    def __call__(self, x: Tensor) -> Tensor:
        return self.networks[0](x[0]).unsqueeze(0) if len(self.networks) == 1 else self._call(x)

    def train(self, on: bool) -> None:
        for network in self.networks:
            network.train(on)

    def state(self) -> list[dict[str, Tensor]]:
        """Weights of every network; for a single one its running statistics, too."""
        if len(self.networks) == 1:
            return [{k: v.detach().clone() for k, v in self.networks[0].state_dict().items()}]
        values = {k: v.detach().clone() for k, v in self.parameters.items()}
        return [{k: v[e] for k, v in values.items()} for e in range(len(self.networks))]

    def load(self, states: Sequence[dict[str, Tensor]]) -> None:
        """Takes weights back, into the networks as well."""
        with torch.no_grad():
            for e, (network, state) in enumerate(zip(self.networks, states, strict=True)):
                network.load_state_dict(state, strict=False)
                if len(self.networks) > 1:
                    for name, value in self.parameters.items():
                        value[e] = state[name]


class _Reader:
    """Stacked inputs and targets of several jobs; what fits into memory is read once."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = jobs
        first = jobs[0].samples
        size = first.inputs(jobs[0].train[:1])[0].numel() * len(first)
        self._x: Tensor | None = None
        self._y: list[Tensor] = []
        if size < _CACHED:
            everything = torch.arange(len(first))
            self._x = first.inputs(everything)
            read: dict[int, Tensor] = {}
            for job in jobs:
                if id(job.samples) not in read:
                    read[id(job.samples)] = job.samples.targets(everything)
                self._y.append(read[id(job.samples)])

    def __call__(self, rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Inputs `(E, B, K, *in)` and targets of one list of indices for each job."""
        if self._x is not None:
            x = self._x
            pairs = [(x[i], y[i]) for i, y in zip(rows, self._y, strict=True)]
        else:
            pairs = [(j.samples.inputs(i), j.samples.targets(i)) for i, j in zip(rows, self.jobs, strict=True)]
        return torch.stack([x for x, _ in pairs]), torch.stack([y for _, y in pairs])


def fit_networks(
    networks: Sequence[nn.Module],
    jobs: Sequence[Job],
    schedule: Schedule,
    *,
    seed: int,
    progress: Progress,
    label: str = "fit predictors",
    class_weights: Tensor | None = None,
) -> dict[str, tuple[float, ...]]:
    """Trains one network for each job, all at once; each keeps the weights of its own best epoch.

    Returns:
        The curves `train` and `held_out`, means over the networks, one value per epoch.
    """
    classes = jobs[0].samples.classes
    units = torch.stack([standardise(n, j.samples, j.train) for n, j in zip(networks, jobs, strict=True)])  # (E, K)
    ensemble, read = Ensemble(networks), _Reader(jobs)
    length = min(len(job.train) for job in jobs)
    held = min(min(len(job.held_out) for job in jobs), 2048)

    def losses(rows: Sequence[Tensor]) -> Tensor:
        """Loss of every network on its own samples, `(E,)`."""
        x, y = read(rows)
        output = ensemble(x)
        each = [loss_per_chart(o, t, classes, class_weights, schedule.loss) for o, t in zip(output, y, strict=True)]
        return (torch.stack(each) / (units if schedule.loss == "mse" else units.sqrt())).mean(1)

    def held_out_losses() -> Tensor:
        ensemble.train(False)
        with torch.no_grad():
            total = sum(
                losses([job.held_out[part] for job in jobs]) * len(part) for part in torch.arange(held).split(256)
            )
        assert isinstance(total, Tensor)
        return (total / held).detach().nan_to_num(math.inf)

    generator = stream(seed, "fit", "order")
    epochs, steps = schedule.passes(length), math.ceil(length / schedule.batch)
    optimiser = Adam(list(ensemble.parameters.values()))
    best = ensemble.state()
    best_loss, since = torch.full((len(jobs),), math.inf), torch.zeros(len(jobs))
    curves: dict[str, list[float]] = {"train": [], "held_out": []}
    for _ in progress.track(range(epochs), label):
        ensemble.train(True)
        total = 0.0
        order = jobs[0].samples.shuffled(jobs[0].train[:length], generator)
        for part in order.split(schedule.batch):
            if len(part) < 2:  # batch norm needs two
                continue
            value = losses([job.train[part] for job in jobs])
            value.sum().backward()  # type: ignore[no-untyped-call]
            pace = one_cycle(optimiser.count, epochs * steps, schedule.learning_rate)
            optimiser.step(*((schedule.learning_rate,) if schedule.constant else pace))
            total += float(value.detach().mean()) * len(part)
        current = held_out_losses()
        curves["train"].append(total / length)
        curves["held_out"].append(float(current.mean()))
        better = current < best_loss
        if schedule.patience is None:
            better = torch.ones_like(better)
        if bool(better.any()):
            state = ensemble.state()
            best = [new if b else old for new, old, b in zip(state, best, better.tolist(), strict=True)]
        best_loss = torch.where(better, current, best_loss)
        since = torch.where(better, 0.0, since + 1)
        if schedule.patience is not None and bool((since >= schedule.patience).all()):
            break
    ensemble.load(best)
    ensemble.train(False)
    if schedule.polish:
        few = [job.train[: min(length, _POLISHED)] for job in jobs]
        # A block of rows that stays in the cache.
        part = max(1, int(4e6 / max(read([f[:1] for f in few])[0].numel(), 1) / 16))
        blocks = [[f[i : i + part] for f in few] for i in range(0, len(few[0]), part)]

        def parts() -> Iterator[Tensor]:
            for rows in blocks:
                yield losses(rows) * (len(rows[0]) / len(few[0]))

        for row in polish(ensemble, parts, held_out_losses, schedule.polish, best_loss, progress):
            curves["train"].append(row[0])
            curves["held_out"].append(row[1])
    for network in networks:
        network.requires_grad_(False)
    return {k: tuple(v) for k, v in curves.items()}


def polish(
    ensemble: Ensemble,
    losses: Callable[[], Iterator[Tensor]],
    held_out_losses: Callable[[], Tensor],
    iterations: int,
    best_loss: Tensor,
    progress: Progress,
    *,
    every: int = 50,
) -> list[tuple[float, float]]:
    """L-BFGS on `losses`, for as long as some held-out loss falls by a tenth in `every` iterations.

    Arguments:
        losses: Yields parts of the losses of all networks, `(E,)`.
        held_out_losses: Held-out losses of all networks, `(E,)`.
        best_loss: Held-out losses so far, `(E,)`.
        every: Iterations between looks at the held-out losses.

    Returns:
        Training and held-out loss after each round.
    """
    descent = Descent([p for p in ensemble.parameters.values() if p.requires_grad], len(ensemble.networks), losses)
    best = ensemble.state()
    curve = []
    for _ in progress.track(range(math.ceil(iterations / every)), "polish predictors"):
        moving = all(descent.iterate() for _ in range(every))
        current = held_out_losses()
        curve.append((float(descent.value.mean()), float(current.mean())))
        better = current < best_loss
        if not bool(better.any()):
            break
        state = ensemble.state()
        best = [new if b else old for new, old, b in zip(state, best, better.tolist(), strict=True)]
        gained = current < 0.9 * best_loss
        best_loss = torch.where(better, current, best_loss)
        if not moving or not bool((gained & (current > _EXACT)).any()):
            break
    ensemble.load(best)
    return curve
