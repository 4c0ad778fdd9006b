"""The fitted map of a discovery: in raw units, for new inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from atlasd.data.cleaning import whole_tensor
from atlasd.discovery.problem import Problem
from atlasd.errors import InputError


@dataclass(frozen=True, eq=False)
class LearnedMap:
    """The mean of the maps of all folds, from raw inputs to raw outputs."""

    problem: Problem

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs `(N, O)` of vectors; of fields those of every chart, `(N, K, C', *S)`; of classes probabilities."""
        problem, units = self.problem, self.problem.units
        shape = tuple(problem.samples.x.shape[1:])
        if problem.is_field and shape[0] == 1 and tuple(x.shape[1:]) == shape[1:]:
            x = x.unsqueeze(1)
        if tuple(x.shape[1:]) != shape:
            expected = ", ".join(["N", *map(str, shape)])
            raise InputError(f"`x` must have the shape of what was fitted, ({expected}), got {tuple(x.shape)}.")
        standard = units.inputs(x)
        given = problem.samples.atlas.input_patches(standard) if problem.is_field else standard.unsqueeze(1)
        with torch.no_grad():
            y = torch.stack([function(given) for function in problem.functions]).mean(0)
        if len(units.outputs):
            size = units.outputs.to(y.dtype)
            y = y * size.reshape(-1, *[1] * (y.ndim - 3))
        return y if problem.is_field else y[:, 0]


@dataclass(frozen=True)
class PredictorSummary:
    """The fitted predictor and its skill; call it for its outputs.

    Arguments:
        skill: Share of the held-out error of the best trivial model that it removes.
        samples: Samples that it was fitted to.
        function: The fitted map in raw units; not kept in files.
    """

    kind: str
    skill: float
    samples: int
    seconds: float
    function: Callable[[Tensor], Tensor] | None = field(default=None, compare=False, repr=False)

    def __call__(self, x: Any) -> Tensor:
        """Outputs of the fitted map for raw inputs, shaped as those of the discovery."""
        if self.function is None:
            raise InputError("`predictor` must have been fitted in this session, got one from a file; discover again.")
        return self.function(x if isinstance(x, Tensor) else whole_tensor(x, "x").double())

    def summary(self) -> dict[str, Any]:
        """What is kept in files."""
        return {"kind": self.kind, "skill": self.skill, "samples": self.samples, "seconds": self.seconds}
