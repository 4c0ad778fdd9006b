"""Taggers: training with the same number of steps for all that are compared, and how well they separate signals."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.nn.metric_gnn import MetricGNN
from atlasd.runtime.progress import Progress, Silent
from atlasd.studies.networks import Budget, Trained, train_network


def train_tagger(
    network: MetricGNN,
    x: Tensor,
    label: Tensor,
    budget: Budget,
    *,
    generator: torch.Generator,
    weight_decay: float = 0.01,
    progress: Progress | None = None,
    name: str = "train",
) -> Trained:
    """Trains a network in place, with gradients of norm 1 at most, and leaves it in evaluation mode.

    Arguments:
        network: What to train.
        x: Sets of vectors, with shape `(N, P, n)`, padded with zeros.
        label: Classes, with shape `(N,)`.
        budget: How long, with the peak of a one-cycle schedule.
        generator: Source of the order of the samples.
        weight_decay: That of AdamW.
        progress: Progress display.
        name: What it is called there.
    """
    if label.shape != x.shape[:1] or label.is_floating_point():
        raise InputError(
            f"`label` must be integer classes with shape ({len(x)},), got {label.dtype} with {tuple(label.shape)}; "
            "give one class for each set."
        )
    network.standardise(x[:512])
    label = label.long()
    return train_network(
        network,
        lambda part: functional.cross_entropy(network(x[part]), label[part]),
        torch.arange(len(x)),
        budget,
        generator=generator,
        progress=progress or Silent(),
        label=name,
        cycle=0.15,
        weight_decay=weight_decay,
        clip=1.0,
    )


def log_odds(network: MetricGNN, x: Tensor, *, batch: int = 256) -> Tensor:
    """Log-odds of the second class against the first, in evaluation mode, with shape `(N,)`."""
    network.eval()
    with torch.no_grad():
        logits = torch.cat([network(part) for part in x.split(batch)])
    return logits[:, 1] - logits[:, 0]


def accuracy(score: Tensor, label: Tensor) -> float:
    """Share of samples on the right side of zero.

    Arguments:
        score: Log-odds of the signal, with shape `(N,)`.
        label: 1 for signal and 0 for background, with shape `(N,)`.
    """
    return float(((score > 0) == (label == 1)).double().mean())


def auroc(score: Tensor, label: Tensor) -> float:
    """Area under the curve of efficiencies: the chance that a signal scores above a background; ties count half.

    Example:
        >>> auroc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
        0.75
    """
    signal, background = _parts(score, label)
    ordered = background.sort().values
    below, upto = (torch.searchsorted(ordered, signal, right=side) for side in (False, True))
    return float((below + upto).double().mean() / (2 * len(background)))


def background_rejection(score: Tensor, label: Tensor, efficiency: float) -> float:
    """One over the share of background that passes the cut which keeps a share `efficiency` of the signal.

    Where none passes, half an event is counted: the rejection is at least twice the number of background samples.

    Example:
        >>> background_rejection(torch.tensor([3.0, 2.0, 1.0, 0.0, 2.5, -1.0]), torch.tensor([1, 1, 1, 1, 0, 0]), 0.5)
        2.0
    """
    if not 0 < efficiency <= 1:
        raise InputError(f"`efficiency` must be above 0 and at most 1, got {efficiency}; 0.3 and 0.5 are usual.")
    signal, background = _parts(score, label)
    ordered = signal.sort(descending=True).values
    # Rounded first: 0.3 of 10 must be 3 and not 4.
    kept = max(1, -int(-round(efficiency * len(signal), 9) // 1))
    passing = float((background >= ordered[kept - 1]).sum())
    return len(background) / max(passing, 0.5)


def _parts(score: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    if score.ndim != 1 or score.shape != label.shape:
        raise InputError(
            f"`score` and `label` must have one shape (N,), got {tuple(score.shape)} and {tuple(label.shape)}; "
            "give one number for each sample."
        )
    if not bool(torch.isfinite(score).all()):
        raise InputError("`score` must be finite, got nan or infinity; lower the learning rate.")
    signal, background = score[label == 1].double(), score[label == 0].double()
    if not len(signal) or not len(background):
        raise InputError("`label` must hold both 1 and 0, got one of them only; take more samples.")
    return signal, background
