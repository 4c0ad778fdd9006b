"""Classes of every point: the loss that networks learn from, and how well they and people agree."""

from __future__ import annotations

__all__ = ["SegmentationScores", "jaccard_loss", "segmentation_scores"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.errors import InputError


@dataclass(frozen=True, eq=False)
class SegmentationScores:
    """Agreement of two labellings, class by class.

    A class that neither has counts as nothing: it is nan here, and is left out of means.

    Arguments:
        iou: Points that both give a class, by points that either does, with shape `(classes,)`.
        precision: Share of the points that were given a class that have it.
        recall: Share of the points that have a class that were given it.
    """

    iou: Tensor
    precision: Tensor
    recall: Tensor


def segmentation_scores(given: Tensor, truth: Tensor, classes: int) -> SegmentationScores:
    """Compares two labellings of the same shape.

    Example:
        >>> scores = segmentation_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]), 2)
        >>> scores.iou, scores.precision, scores.recall
        (tensor([0.5000, 0.6667]), tensor([0.5000, 1.0000]), tensor([1.0000, 0.6667]))
    """
    if given.shape != truth.shape:
        raise InputError(f"labellings must have one shape, got {tuple(given.shape)} and {tuple(truth.shape)}.")
    pairs = torch.bincount(classes * given.long().flatten() + truth.long().flatten(), minlength=classes * classes)
    if len(pairs) > classes * classes:
        raise InputError(f"classes must be below {classes}, got {max(int(given.max()), int(truth.max()))}.")
    table = pairs.reshape(classes, classes).to(torch.get_default_dtype())
    both, rows, columns = table.diagonal(), table.sum(1), table.sum(0)
    return SegmentationScores(both / (rows + columns - both), both / rows, both / columns)


def jaccard_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """One less the mean over classes of the IoU of a batch, with probabilities in place of classes.

    Arguments:
        scores: Scores of the classes, with shape `(B, classes, N)`.
        labels: Classes, with shape `(B, N)`.
    """
    share = scores.softmax(1)
    truth = torch.nn.functional.one_hot(labels.long(), scores.shape[1]).mT.to(share)
    both = (share * truth).sum((0, 2))
    either = (share + truth).sum((0, 2)) - both
    return 1 - (both / either.clamp(min=1e-6)).mean()
