"""How well a tagger separates signal from background."""

from __future__ import annotations

__all__ = ["accuracy", "auroc", "background_rejection"]

import torch
from torch import Tensor

from atlasd.errors import InputError


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
