"""Climate maps on the vertices of an icosahedral grid, with the labels of every expert, and how well these agree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from atlasd.errors import DataError, InputError
from atlasd.nn.icosahedral_projection import IcosahedralProjection
from atlasd.runtime.progress import Progress
from atlasd.studies.climate.files import open_climate
from atlasd.studies.climate.synthetic import CLASSES, VARIABLES, Rule, synthetic_climate


@dataclass(frozen=True, eq=False)
class VertexMaps:
    """Fields and labels on the grid.

    Arguments:
        x: Fields, with shape `(T, C, N)`, float32.
        labels: What every expert drew on each map, `(E, N)` each, bytes; E may differ.
    """

    x: Tensor
    labels: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        assert len(self.x) == len(self.labels)

    def pairs(self) -> list[tuple[int, int]]:
        """Every map with every expert who labelled it."""
        return [(t, e) for t, drawn in enumerate(self.labels) for e in range(len(drawn))]

    def standardised(self, like: VertexMaps) -> VertexMaps:
        """The same with the mean and the spread of another set taken out."""
        spread, mean = torch.std_mean(like.x, dim=(0, 2), keepdim=True)
        return VertexMaps((self.x - mean) / torch.where(spread > 0, spread, 1.0), self.labels)


def synthetic_maps(
    times: int,
    *,
    resolution: int,
    generator: torch.Generator,
    symmetry: Rule,
    rows: int,
    experts: int,
    discord: float = 0.0,
) -> VertexMaps:
    """Draws maps one by one and brings each to the grid; only the vertices are kept."""
    shape = (rows, 3 * rows // 2)
    projection = _projection(resolution, shape)

    def drawn() -> Iterable[tuple[Tensor, Tensor]]:
        for _ in range(times):
            maps = synthetic_climate(
                1, generator=generator, symmetry=symmetry, shape=shape, experts=experts, discord=discord
            )
            yield maps.x[0], maps.labels[0]

    return _brought(projection, drawn())


def given_maps(
    folder: str | Path, split: Literal["train", "test"], *, resolution: int, progress: Progress
) -> VertexMaps:
    """Reads ClimateNet's files one by one and brings each to the grid; only the vertices are kept."""
    maps = open_climate(folder, split=split)
    if absent := [v for v in VARIABLES if v not in maps.variables]:
        raise DataError(
            f"`{maps.path}` must hold the 16 variables of ClimateNet, got none of {absent[0]} in some file."
        )
    numbers = progress.track(range(len(maps)), f"reading {split}")
    return _brought(_projection(resolution, maps.shape), ((maps.fields(n), maps.labels(n)) for n in numbers))


def score_maps(network: nn.Module, maps: VertexMaps) -> dict[str, float]:
    """Scores against every expert, averaged over the experts of a map, and then over maps."""
    network.eval()
    each = []
    with torch.no_grad():
        for x, drawn in zip(maps.x, maps.labels, strict=True):
            given = network(x[None]).argmax(1)[0]
            each.append(_mean([(given, truth) for truth in drawn]))
    return _named(each)


def agreement(maps: VertexMaps) -> dict[str, float]:
    """The same between the experts of a map, each against each; empty where no map has two."""
    each = [_mean(list(combinations(drawn, 2))) for drawn in maps.labels if len(drawn) > 1]
    named = _named(each) if each else {}
    return {key: value for key, value in named.items() if "iou" in key}


def _mean(pairs: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Mean scores of several pairs of labellings, `(3, classes)`; nan where nobody has the class."""
    return torch.stack([segmentation_scores(a, b, len(CLASSES)) for a, b in pairs]).nanmean(0)


def _projection(resolution: int, shape: Sequence[int]) -> IcosahedralProjection:
    """Maps have rows from the north pole to the south pole and columns from longitude 0 eastwards."""
    rows, columns = shape
    return IcosahedralProjection(resolution, torch.linspace(90, -90, rows), torch.arange(columns) * (360 / columns))


def _brought(projection: IcosahedralProjection, maps: Iterable[tuple[Tensor, Tensor]]) -> VertexMaps:
    fields, labels = [], []
    for field, drawn in maps:
        fields.append(projection.to_grid(field))
        labels.append(projection.labels_to_grid(drawn))
    return VertexMaps(torch.stack(fields), tuple(labels))


def _named(each: Sequence[Tensor]) -> dict[str, float]:
    """Means over maps of scores `(3, classes)`, by name; those over classes have every class once."""
    iou, precision, recall = torch.stack(list(each)).nanmean(0)
    classes = dict(zip(("iou_bg", "iou_tc", "iou_ar"), iou.tolist(), strict=True))
    means = {"mean_iou": iou, "precision": precision, "recall": recall}
    return classes | {name: float(values.nanmean()) for name, values in means.items()}


def segmentation_scores(given: Tensor, truth: Tensor, classes: int) -> Tensor:
    """Agreement of two labellings of the same shape: IoU, precision and recall of every class, `(3, classes)`.

    IoU is the number of points that both give a class, by that of points that either does. Precision is the share of
    the points that were given a class that have it; recall the share of those that have it that were given it. A class
    that neither has counts as nothing: it is nan here, and is left out of means.

    Example:
        >>> segmentation_scores(torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 1]), 2)
        tensor([[0.5000, 0.6667],
                [0.5000, 1.0000],
                [1.0000, 0.6667]])
    """
    if given.shape != truth.shape:
        raise InputError(f"labellings must have one shape, got {tuple(given.shape)} and {tuple(truth.shape)}.")
    pairs = torch.bincount(classes * given.long().flatten() + truth.long().flatten(), minlength=classes * classes)
    if len(pairs) > classes * classes:
        raise InputError(f"classes must be below {classes}, got {max(int(given.max()), int(truth.max()))}.")
    table = pairs.reshape(classes, classes).to(torch.get_default_dtype())
    both, rows, columns = table.diagonal(), table.sum(1), table.sum(0)
    return torch.stack([both / (rows + columns - both), both / rows, both / columns])


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
