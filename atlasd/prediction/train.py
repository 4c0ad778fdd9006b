"""The loop that fits networks: mini-batches, a held-out loss, early stopping, the best weights kept."""

from __future__ import annotations

__all__ = ["Schedule", "fit_network"]

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.prediction.samples import Samples
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How long and how fast to train.

    Arguments:
        epochs: The most passes over the data.
        batch: Samples in a step.
        learning_rate: Peak of a one-cycle schedule.
        patience: Epochs without improvement before stopping.
    """

    epochs: int = 100
    batch: int = 64
    learning_rate: float = 3e-3
    patience: int = 15


def loss_per_chart(samples: Samples) -> Callable[[Tensor, Tensor], Tensor]:
    """Loss of outputs `(B, K, *)` against targets, with shape `(K,)`."""
    if samples.classes:

        def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
            flat = functional.cross_entropy(output.flatten(0, 1), target.flatten(0, 1), reduction="none")
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
) -> dict[str, tuple[float, ...]]:
    """Trains all charts together; each chart keeps its own best weights in sum, the pooled best epoch.

    Returns:
        The curves `train` and `held_out`, one value per epoch.
    """
    loss = loss_per_chart(samples)
    unit = standardise(network, samples, train)
    generator = stream(seed, "fit", "order")
    steps = math.ceil(len(train) / schedule.batch)
    optimiser = torch.optim.Adam(network.parameters(), lr=schedule.learning_rate)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, schedule.learning_rate, total_steps=schedule.epochs * steps, pct_start=0.15
    )
    best, best_loss, since = None, math.inf, 0
    curves: dict[str, list[float]] = {"train": [], "held_out": []}
    # Small data are cut once; large data chart by chart as they come.
    cache = samples.inputs(train[:1])[0].numel() * len(train) < 2e8
    inputs = samples.inputs(train) if cache else None
    targets = samples.targets(train) if cache else None
    for _ in progress.track(range(schedule.epochs), label):
        network.train()
        total = 0.0
        order = torch.randperm(len(train), generator=generator)
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
        network.eval()
        with torch.no_grad():
            parts = [
                float((loss(network(samples.inputs(i)), samples.targets(i)) / unit).mean()) * len(i)
                for i in held_out[:2048].split(256)
            ]
        current = sum(parts) / len(held_out[:2048])
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
    for parameter in network.parameters():
        parameter.requires_grad_(False)
    return {k: tuple(v) for k, v in curves.items()}
