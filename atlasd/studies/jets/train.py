"""Training of classifiers on sets of vectors, with the same number of steps for whoever is compared."""

from __future__ import annotations

__all__ = ["Budget", "log_odds", "train_classifier"]

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.nn.metric_gnn import MetricGNN
from atlasd.runtime.progress import Progress, Silent
from atlasd.studies.networks import train_network


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How much a network may learn from.

    Arguments:
        epochs: Passes over the data; the weights after the last one are kept.
        batch: Samples in a step.
        learning_rate: Peak of a one-cycle schedule.
        weight_decay: That of AdamW.
        clip: Largest norm of a gradient.
    """

    epochs: int = 35
    batch: int = 32
    learning_rate: float = 3e-4
    weight_decay: float = 0.01
    clip: float = 1.0


def train_classifier(
    network: MetricGNN,
    x: Tensor,
    label: Tensor,
    budget: Budget,
    *,
    generator: torch.Generator,
    progress: Progress | None = None,
    name: str = "train",
) -> list[float]:
    """Trains a network in place and leaves it in evaluation mode.

    Arguments:
        network: What to train.
        x: Sets of vectors, with shape `(N, P, n)`, padded with zeros.
        label: Classes, with shape `(N,)`.
        budget: How long.
        generator: Source of the order of the samples.
        progress: Progress display.
        name: What it is called there.

    Returns:
        The mean loss of each epoch.
    """
    if label.shape != x.shape[:1] or label.is_floating_point():
        raise InputError(
            f"`label` must be integer classes with shape ({len(x)},), got {label.dtype} with {tuple(label.shape)}; "
            "give one class for each set."
        )
    network.standardise(x[:512])
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=budget.learning_rate, weight_decay=budget.weight_decay, fused=True
    )
    total = budget.epochs * math.ceil(len(x) / budget.batch)
    cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, budget.learning_rate, total_steps=total, pct_start=0.15)
    label = label.long()
    return train_network(
        network,
        lambda part: functional.cross_entropy(network(x[part]), label[part]),
        optimiser,
        lambda: torch.randperm(len(x), generator=generator).split(budget.batch),
        epochs=budget.epochs,
        progress=progress or Silent(),
        label=name,
        rates=cycle,
        clip=budget.clip,
    )


def log_odds(network: MetricGNN, x: Tensor, *, batch: int = 256) -> Tensor:
    """Log-odds of the second class against the first, in evaluation mode, with shape `(N,)`."""
    network.eval()
    with torch.no_grad():
        logits = torch.cat([network(part) for part in x.split(batch)])
    return logits[:, 1] - logits[:, 0]
