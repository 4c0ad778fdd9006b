"""The loop that fits networks: mini-batches, a held-out loss, early stopping, the best weights kept."""

from __future__ import annotations

__all__ = ["Schedule", "fit_network", "polish"]

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.prediction.samples import Samples
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_POLISHED = 16_384
"""The most samples that are polished on: each iteration reads all of them."""
_EXACT = 1e-6
"""Held-out loss in units of the targets' variance below which no more is to be gained in float32."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast to train.

    Arguments:
        epochs: The most passes over the data.
        batch: Samples in a step.
        learning_rate: Peak of a one-cycle schedule.
        patience: Epochs without improvement before stopping.
        steps: Batches after which to stop, though not before 20 epochs; `None` for no such limit.
        polish: The most L-BFGS iterations afterwards, on all samples at once. Mini-batches leave noise that
            hardly shows in the loss but does in the derivatives, which a search for symmetry looks at.
    """

    epochs: int = 100
    batch: int = 64
    learning_rate: float = 3e-3
    patience: int = 15
    steps: int | None = None
    polish: int = 0

    def passes(self, samples: int) -> int:
        """Epochs for this many samples."""
        if self.steps is None:
            return self.epochs
        return min(self.epochs, max(20, round(self.steps / math.ceil(samples / self.batch))))


def loss_per_chart(samples: Samples, class_weights: Tensor | None = None) -> Callable[[Tensor, Tensor], Tensor]:
    """Loss of outputs `(B, K, *)` against targets, with shape `(K,)`; classes may weigh differently, `(classes,)`."""
    if samples.classes:

        def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
            flat = functional.cross_entropy(
                output.flatten(0, 1), target.flatten(0, 1), weight=class_weights, reduction="none"
            )
            return (
                flat.unflatten(0, output.shape[:2]).flatten(2).mean((0, 2))
                if flat.ndim > 1
                else flat.unflatten(0, output.shape[:2]).mean(0)
            )

        return cross_entropy
    return lambda output, target: (output - target).square().flatten(2).mean((0, 2))


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


def fit_network(
    network: nn.Module,
    samples: Samples,
    train: Tensor,
    held_out: Tensor,
    schedule: Schedule,
    *,
    seed: int,
    progress: Progress,
    label: str = "fit predictors",
    class_weights: Tensor | None = None,
) -> dict[str, tuple[float, ...]]:
    """Trains all charts together; each chart keeps its own best weights in sum, the pooled best epoch.

    Returns:
        The curves `train` and `held_out`, one value per epoch.
    """
    loss = loss_per_chart(samples, class_weights)
    unit = standardise(network, samples, train)
    generator = stream(seed, "fit", "order")
    steps = math.ceil(len(train) / schedule.batch)
    epochs = schedule.passes(len(train))
    optimiser = torch.optim.Adam(network.parameters(), lr=schedule.learning_rate, fused=True)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, schedule.learning_rate, total_steps=epochs * steps, pct_start=0.15
    )
    best, best_loss, since = None, math.inf, 0
    curves: dict[str, list[float]] = {"train": [], "held_out": []}
    # Small data are cut once; large data chart by chart as they come.
    cache = samples.inputs(train[:1])[0].numel() * len(train) < 2e8
    inputs = samples.inputs(train) if cache else None
    targets = samples.targets(train) if cache else None

    def held_out_loss() -> float:
        network.eval()
        with torch.no_grad():
            parts = [
                float((loss(network(samples.inputs(i)), samples.targets(i)) / unit).mean()) * len(i)
                for i in held_out[:2048].split(256)
            ]
        return sum(parts) / len(held_out[:2048])

    for _ in progress.track(range(epochs), label):
        network.train()
        total = 0.0
        order = samples.shuffled(train, generator)
        for part in order.split(schedule.batch):
            if len(part) < 2:  # batch norm needs two
                continue
            x = inputs[part] if inputs is not None else samples.inputs(train[part])
            y = targets[part] if targets is not None else samples.targets(train[part])
            value = (loss(network(x), y) / unit).mean()
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
            cycle.step()
            total += float(value.detach()) * len(part)
        current = held_out_loss()
        curves["train"].append(total / len(train))
        curves["held_out"].append(current)
        if current < best_loss:
            best_loss, since = current, 0
            best = {k: v.detach().clone() for k, v in network.state_dict().items()}
        else:
            since += 1
            if since >= schedule.patience:
                break
    if best is not None:
        network.load_state_dict(best)
    network.eval()
    if schedule.polish:
        few = train[:_POLISHED]
        x = inputs[: len(few)] if inputs is not None else samples.inputs(few)
        y = targets[: len(few)] if targets is not None else samples.targets(few)
        part = max(1, int(4e6 / x[0].numel() / 16))
        batches = list(zip(x.split(part), y.split(part), strict=True))

        def losses() -> Iterator[Tensor]:
            for x, y in batches:
                yield (loss(network(x), y) / unit).mean() * (len(x) / len(few))

        for row in polish(network, losses, held_out_loss, schedule.polish, best_loss, progress):
            curves["train"].append(row[0])
            curves["held_out"].append(row[1])
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return {k: tuple(v) for k, v in curves.items()}


def polish(
    network: nn.Module,
    losses: Callable[[], Iterator[Tensor]],
    held_out_loss: Callable[[], float],
    iterations: int,
    best_loss: float,
    progress: Progress,
    *,
    every: int = 50,
) -> list[tuple[float, float]]:
    """L-BFGS on the sum of `losses`, for as long as the held-out loss falls by a tenth in `every` iterations.

    Returns:
        Training and held-out loss after each round.
    """
    parameters = [p for p in network.parameters() if p.requires_grad]
    optimiser = torch.optim.LBFGS(
        parameters,
        max_iter=every,
        history_size=20,
        line_search_fn="strong_wolfe",
        tolerance_grad=1e-10,
        tolerance_change=1e-14,
    )

    def closure() -> Tensor:
        optimiser.zero_grad(set_to_none=True)
        total = torch.zeros(())
        for value in losses():
            value.backward()  # type: ignore[no-untyped-call]
            total = total + value.detach()
        return total

    best = [p.detach().clone() for p in parameters]
    curve = []
    for _ in progress.track(range(math.ceil(iterations / every)), "polish predictors"):
        train_loss = float(optimiser.step(closure))  # type: ignore[arg-type, no-untyped-call]
        current = held_out_loss()
        curve.append((train_loss, current))
        if not current < best_loss:
            break
        gained, best_loss = current < 0.9 * best_loss, current
        best = [p.detach().clone() for p in parameters]
        if not gained or current < _EXACT:
            break
    with torch.no_grad():
        for parameter, value in zip(parameters, best, strict=True):
            parameter.copy_(value)
    return curve
