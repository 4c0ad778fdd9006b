"""Networks that studies compare: one training loop, and what every comparison needs beside it."""

from __future__ import annotations

__all__ = ["class_weights", "given_discovery", "mean_row", "train_network", "weight_count"]

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.data.samples import Samples
from atlasd.discovery.result import Discovery, PredictorSummary, Verdict
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress


def train_network(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    optimiser: torch.optim.Optimizer,
    batches: Callable[[], Sequence[Tensor]],
    *,
    epochs: int,
    progress: Progress,
    label: str,
    rates: torch.optim.lr_scheduler.LRScheduler | None = None,
    clip: float | None = None,
    after: Callable[[], object] = lambda: None,
) -> list[float]:
    """Trains a network in place and leaves it in evaluation mode.

    Arguments:
        network: What to train.
        loss: Mean loss of the samples with the given numbers.
        optimiser: Of the weights of the network.
        batches: Called for every epoch; gives the numbers of the samples of each step.
        epochs: Passes over the data; the weights after the last one are kept.
        progress: Progress display.
        label: What is shown there.
        rates: Schedule of the learning rate, followed step by step.
        clip: Largest norm of a gradient; `None` for any.
        after: Called after every step.

    Returns:
        The mean loss of each epoch.
    """
    losses = []
    network.train()
    for _ in progress.track(range(epochs), label):
        total, count = 0.0, 0
        for part in batches():
            value = loss(part)
            optimiser.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
            if clip is not None:
                nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimiser.step()
            if rates is not None:
                rates.step()
            after()
            total, count = total + float(value.detach()) * len(part), count + len(part)
        losses.append(total / count)
    network.eval()
    return losses


def class_weights(samples: Samples, background: int | None = None, weight: float = 1.0) -> Tensor:
    """Weights of the classes of pixels in a loss, `(classes,)`; raises unless targets are classes of pixels of a plane.

    Arguments:
        samples: Inputs and targets.
        background: A class that counts differently; `None` for none.
        weight: How much it counts.
    """
    if not samples.classes or not samples.is_field or samples.size != 2:
        raise InputError("`y` must hold a class for every pixel of a plane for this predictor; use another one.")
    weights = torch.ones(samples.classes)
    if background is not None:
        weights[background] = weight
    return weights


def weight_count(network: nn.Module) -> int:
    """How many numbers are learned."""
    return sum(p.numel() for p in network.parameters())


def mean_row(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Means over several trainings, key by key."""
    return {key: fmean(run[key] for run in runs) for key in runs[0]}


def given_discovery(group: Group, reason: str, seed: int) -> Discovery:
    """A discovery that only says which group is used, and why."""
    return Discovery(
        group=group,
        verdict=Verdict(symmetric=True, reason=reason),
        charts=(),
        spectrum=(),
        predictor=PredictorSummary("none", math.nan, 0, 0.0),
        seconds={},
        seed=seed,
    )
