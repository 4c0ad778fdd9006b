"""What the tasks of others have in common: settings, controls, and how every method is asked about vectors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.gradient import GradientSearch
from atlasd.runtime.random import stream
from atlasd.studies.config import RunConfig, option, tolerance_option
from atlasd.studies.rivals.asking import Plan, Side
from atlasd.studies.rivals.augmentation import AugmentationLearning
from atlasd.studies.rivals.compare import Answer, Method
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.null_space import Rule, fixed_threshold, rank_test

LINEAR = ("AtlasD", "LieGG", "LieGAN", "augmentation")
"""Methods that look for matrices; LieGG knows invariants only."""
_GROWTH = 0.1
"""Growth factor of the paper's search, in spreads of the targets: the paper has none for these tasks, and a reward that
is a number in the units of the loss lets generators collapse where targets are large."""


@dataclass(frozen=True, kw_only=True)
class TaskConfig(RunConfig):
    """Settings of every task of others."""

    tolerance: float = tolerance_option()
    gradient_batches: int = option(1500, "batches of the paper's search", least=1)
    liegan_steps: int = option(1500, "steps of LieGAN", least=1)
    augmentation_steps: int = option(2000, "steps of augmentation learning", least=1)


def rippled(x: Tensor, y: Tensor, *, size: float = 0.3, spread: Tensor | None = None) -> Tensor:
    """Targets with a wave along a generic direction added, of a share of their spread: no symmetry is left.

    Arguments:
        x: Inputs `(N, n)`.
        y: Targets `(N,)`.
        size: The share.
        spread: What it is a share of; the spread of `y` by default.
    """
    along = torch.tensor([2.0, 1.0, 1.5, 0.7], dtype=x.dtype)[: x.shape[1]]
    return y + size * (y.std() if spread is None else spread) * torch.sin(x @ along)


def normal(*shape: int, seed: int, name: str) -> Tensor:
    """Normal numbers in float64."""
    return torch.randn(*shape, generator=stream(seed, "task", name), dtype=torch.float64)


def by_rule(ask: Callable[[Rule, Any, Any], Answer]) -> dict[str, Method]:
    """The vector-field method with each of the rules, as rows of a table.

    Arguments:
        ask: From a rule, the data and the settings to an answer.
    """

    def method(rule: Rule, data: Any, config: Any, seed: int) -> Answer:
        return ask(rule, data, config)

    return {"fields, threshold": partial(method, fixed_threshold), "fields, rank test": partial(method, rank_test)}


def linear_plan(
    side: Side, config: TaskConfig, *, count: int = 1, given: tuple[Tensor, list[str]] | None = None, **shared: Any
) -> Plan:
    """How methods that look for matrices are asked about vectors.

    Arguments:
        config: How long methods may take.
        count: How many generators a method is told that cannot choose.
        given: Generators whose widths are learned, and their names.
        shared: `action` and `predictor`, as in `discover`; with an action targets transform as inputs do.
    """
    kind = {"growth": _GROWTH * float(side.y.std()), "epochs": None, "steps": config.gradient_batches}
    return Plan(
        side=side,
        shared=shared,
        search=GradientSearch.published(generators=count, **kind),
        liegan=LieGAN(generators=count, steps=config.liegan_steps),
        augmentation=AugmentationLearning(steps=config.augmentation_steps),
        given=given or elementary(side.x.shape[1]),
    )


def elementary(n: int) -> tuple[Tensor, list[str]]:
    """Rotations, the scaling, and the traceless stretches and shears of n components, `(n^2, n, n)`, with names.

    Example:
        >>> elementary(2)[1]
        ['rotation 12', 'shear 12', 'scaling', 'stretch 2']
    """
    unit = torch.eye(n * n, dtype=torch.float64).reshape(n, n, n, n)
    matrices, names = [], []
    for i in range(n):
        for j in range(i + 1, n):
            matrices += [unit[j, i] - unit[i, j], unit[j, i] + unit[i, j]]
            names += [f"rotation {i + 1}{j + 1}", f"shear {i + 1}{j + 1}"]
    matrices += [torch.eye(n, dtype=torch.float64), *(unit[0, 0] - unit[i, i] for i in range(1, n))]
    return torch.stack(matrices), [*names, "scaling", *(f"stretch {i + 1}" for i in range(1, n))]


def converted(answer: Answer, convert: Callable[[Tensor], Tensor]) -> Answer:
    """An answer whose generators are written in another way, those that our verdict leaves as well."""
    judged = answer.judged
    after = None if judged is None else lambda: convert(judged())
    return replace(answer, basis=convert(answer.basis), judged=after)
