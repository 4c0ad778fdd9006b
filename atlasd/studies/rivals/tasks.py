"""What the tasks of others have in common: settings, controls, and how every method is asked about vectors."""

from __future__ import annotations

__all__ = ["Pair", "TaskConfig", "by_rule", "elementary", "for_flows", "normal", "on_fields", "rippled", "shown_widths"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from atlasd.runtime.random import stream
from atlasd.studies.config import RunConfig, option, tolerance_option
from atlasd.studies.rivals.compare import OURS, Answer, Method
from atlasd.studies.rivals.null_space import FixedThreshold, RankTest, Rule

Pair: TypeAlias = tuple[Tensor, Tensor]
"""Inputs `(N, n)` and targets `(N,)` or `(N, O)`, in float64."""


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


def by_rule(ask: Callable[[Rule, Any, Any], Answer]) -> Mapping[str, Method]:
    """The vector-field method with each of the rules, as rows of a table.

    Arguments:
        ask: From a rule, the data and the settings to an answer.
    """

    def with_rule(rule: Rule) -> Method:
        return lambda data, config, seed: ask(rule, data, config)

    return {"fields, threshold": with_rule(FixedThreshold()), "fields, rank test": with_rule(RankTest())}


def for_flows(
    ours: Method, fields: Callable[[Rule, Any, Any], Answer], papers_search: Method, liegan: Method, learned: Method
) -> Mapping[str, Method]:
    """The methods that find symmetries of flows, as rows of a table; `learned` is augmentation learning."""
    others = {"AtlasD": papers_search, "LieGAN": liegan, "augmentation": learned}
    return {OURS: ours, **by_rule(fields), **others}


def on_fields(answer: Answer, convert: Callable[[Tensor], Tensor]) -> Answer:
    """An answer whose generators are written in another way, those that our verdict leaves as well."""
    judged = answer.judged
    after = None if judged is None else lambda: convert(judged())
    return replace(answer, basis=convert(answer.basis), judged=after, confirm=None)


def elementary(n: int) -> tuple[Tensor, list[str]]:
    """Rotations, the scaling, and the traceless stretches and shears of n components, `(n^2, n, n)`, with names.

    Example:
        >>> elementary(2)[1]
        ['rotation 12', 'shear 12', 'scaling', 'stretch 2']
    """
    matrices, names = [], []
    for i in range(n):
        for j in range(i + 1, n):
            turn = torch.zeros(n, n, dtype=torch.float64)
            turn[j, i], turn[i, j] = 1.0, -1.0
            matrices += [turn, turn.abs()]
            names += [f"rotation {i + 1}{j + 1}", f"shear {i + 1}{j + 1}"]
    matrices.append(torch.eye(n, dtype=torch.float64))
    names.append("scaling")
    for i in range(1, n):
        stretch = torch.zeros(n, n, dtype=torch.float64)
        stretch[0, 0], stretch[i, i] = 1.0, -1.0
        matrices.append(stretch)
        names.append(f"stretch {i + 1}")
    return torch.stack(matrices), names


def shown_widths(widths: Tensor, names: list[str]) -> str:
    """Widths by name, those that are not nearly zero."""
    return ", ".join(f"{name} {w:.2g}" for name, w in zip(names, widths.tolist(), strict=True) if w >= 0.1) or "none"
