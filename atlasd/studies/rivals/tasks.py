"""What the tasks of others have in common: settings, controls, and how every method is asked about vectors."""

from __future__ import annotations

__all__ = ["Pair", "TaskConfig", "by_rule", "converted", "elementary", "linear_methods", "normal", "rippled"]

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from atlasd.discovery.gradient import GradientSearch
from atlasd.geometry.affine import as_inputs
from atlasd.runtime.random import stream
from atlasd.studies.config import RunConfig, option, tolerance_option
from atlasd.studies.rivals.asking import ask_data, ask_map
from atlasd.studies.rivals.augmentation import AugmentationLearning
from atlasd.studies.rivals.compare import Answer, Method
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG
from atlasd.studies.rivals.null_space import FixedThreshold, RankTest, Rule

Pair: TypeAlias = tuple[Tensor, Tensor]
"""Inputs `(N, n)` and targets `(N,)` or `(N, O)`, in float64."""
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

    def with_rule(rule: Rule) -> Method:
        return lambda data, config, seed: ask(rule, data, config)

    return {"fields, threshold": with_rule(FixedThreshold()), "fields, rank test": with_rule(RankTest())}


def linear_methods(
    pairs: Callable[[Any], Sequence[Pair]],
    answer: Callable[[Any, Any, int, list[Answer]], Answer],
    *,
    generators: Callable[[Any], Sequence[int]] = lambda data: (1,),
    given: Callable[[int], tuple[Tensor, list[str]]] | None = None,
    **options: Any,
) -> dict[str, Method]:
    """Methods that look for matrices, as rows of a table; LieGG only where targets are invariants.

    Arguments:
        pairs: From the data to the inputs and targets of every part.
        answer: From data, settings, a seed and the answers for all parts to the answer of the task.
        generators: From the data to the numbers of generators that a method is told, part by part.
        given: From the number of components to generators that widths are learned of, and their names.
        options: `action` and `predictor`, as in `discover`; with an action targets transform as inputs do.
    """
    moved = "action" in options

    def each(ask: Callable[[Pair, int, Any, int], Answer]) -> Method:
        def method(data: Any, config: Any, seed: int) -> Answer:
            told = zip(pairs(data), generators(data), strict=True)
            return answer(data, config, seed, [ask(pair, count, config, seed) for pair, count in told])

        return method

    def papers_search(pair: Pair, count: int, config: Any, seed: int) -> Answer:
        kind = {"growth": _GROWTH * float(pair[1].std()), "epochs": None, "steps": config.gradient_batches}
        search = GradientSearch.published(generators=count, **kind)
        return ask_map(search, *pair, tolerance=config.tolerance, seed=seed, **options)

    def liegg(pair: Pair, count: int, config: Any, seed: int) -> Answer:
        return ask_map(LieGG(), *pair, tolerance=config.tolerance, seed=seed, **options)

    def liegan(pair: Pair, count: int, config: Any, seed: int) -> Answer:
        search = LieGAN(generators=count, steps=config.liegan_steps)
        return ask_data(search, *pair, tolerance=config.tolerance, seed=seed, **options)

    def augmentation(pair: Pair, count: int, config: Any, seed: int) -> Answer:
        matrices, names = (given or elementary)(pair[0].shape[1])
        search = AugmentationLearning(steps=config.augmentation_steps)
        found, widths = search.find(*pair, matrices, seed=seed, output=as_inputs if moved else None)
        shown = [f"{n} {w:.2g}" for n, w in zip(names, widths.tolist(), strict=True) if w >= search.threshold]
        return Answer(found, note=f"widths: {', '.join(shown) or 'none'}")

    asked = {"AtlasD": papers_search, "LieGG": liegg, "LieGAN": liegan, "augmentation": augmentation}
    return {name: each(ask) for name, ask in asked.items() if name != "LieGG" or not moved}


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
