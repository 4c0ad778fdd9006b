"""Networks that studies compare: one training loop, one loop over seeds, and what comparisons need beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from atlasd.algebra.group import Group
from atlasd.data.samples import Samples
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.result import Discovery, Verdict, load
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress
from atlasd.runtime.stages import current_stages, located

R = TypeVar("R", bound=Mapping[str, Any])


class Budget(Protocol):
    """Passes over the data, samples in a step, and the learning rate, or its peak in a cycle."""

    @property
    def epochs(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def learning_rate(self) -> float: ...


@dataclass(frozen=True)
class Trained:
    """What training took: the mean loss of each epoch, seconds, and seconds of all cores together."""

    losses: list[float]
    seconds: float
    core_seconds: float

    @property
    def row(self) -> dict[str, float]:
        """The same in a row of a table, with the last loss only."""
        return {"loss": self.losses[-1], "seconds": self.seconds, "core_seconds": self.core_seconds}


def train_network(
    network: nn.Module,
    loss: Callable[[Tensor], Tensor],
    samples: Tensor,
    budget: Budget,
    *,
    generator: torch.Generator,
    progress: Progress,
    label: str,
    cycle: float | None = None,
    weight_decay: float = 0.0,
    clip: float | None = None,
    full_batches: bool = False,
    after: Callable[[], object] = lambda: None,
) -> Trained:
    """Trains a network in place by AdamW and leaves it in evaluation mode.

    Arguments:
        loss: Mean loss of some of the samples.
        samples: What the loss is asked about, such as the numbers of the samples, `(N, *)`.
        budget: How long, in steps of which size; the weights after the last epoch are kept.
        cycle: Share of the steps in which the learning rate rises, before it falls; `None` leaves it as it is.
        clip: Largest norm of a gradient; `None` for any.
        full_batches: Whether a last batch with fewer samples is left out.
    """
    epochs, batch, rate = budget.epochs, budget.batch, budget.learning_rate
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=weight_decay, fused=True)
    steps = len(samples) // batch if full_batches else math.ceil(len(samples) / batch)
    total = max(epochs * steps, 10)
    rates = (
        None
        if cycle is None
        else torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=total, pct_start=cycle)
    )
    losses, start, busy = [], time.monotonic(), time.process_time()
    network.train()
    for _ in progress.track(range(epochs), label):
        sum_, count = 0.0, 0
        for part in samples[torch.randperm(len(samples), generator=generator)].split(batch)[:steps]:
            value = loss(part)
            optimiser.zero_grad(set_to_none=True)
            value.backward()  # type: ignore[no-untyped-call]
            if clip is not None:
                nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimiser.step()
            if rates is not None:
                rates.step()
            after()
            sum_, count = sum_ + float(value.detach()) * len(part), count + len(part)
        losses.append(sum_ / count)
    network.eval()
    return Trained(losses, time.monotonic() - start, time.process_time() - busy)


def over_seeds(
    names: Sequence[str], seeds: range, measure: Callable[[str, int], R], shown: str, progress: Progress
) -> dict[str, list[R]]:
    """Rows of every network for every seed; each is a stage, which a resumed run need not do again.

    Arguments:
        measure: Trains a network with a seed and gives a row: plain values, with `seconds` among them.
        shown: The score that is told on the way.
    """
    rows: dict[str, list[R]] = {name: [] for name in names}
    for seed in seeds:
        for name in names:
            row = current_stages().do(f"{name}, seed {seed}", partial(measure, name, seed))
            rows[name].append(row)
            if shown in row:
                score = f"{shown.replace('_', ' ')} {row[shown]:.4f}"
                progress.say(f"{name}, seed {seed}: {score} after {row.get('seconds', 0.0):.0f} s")
    return rows


def class_weights(samples: Samples, background: int | None = None, weight: float = 1.0) -> Tensor:
    """Weights of the classes of pixels in a loss, `(classes,)`; raises unless targets are classes of pixels of a plane.

    Arguments:
        background: A class that counts differently; `None` for none.
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


def given_discovery(group: Group, reason: str, seed: int, directory: str | None) -> Discovery:
    """The discovery of a run directory; without one, a discovery that only says which group is used, and why."""
    if directory is not None:
        return load(located(directory))
    return Discovery(
        group=group,
        verdict=Verdict(symmetric=True, reason=reason),
        charts=(),
        spectrum=(),
        predictor=PredictorSummary("none", math.nan, 0, 0.0),
        seconds={},
        seed=seed,
    )
