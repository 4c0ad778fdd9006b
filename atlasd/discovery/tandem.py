"""Predictors that learn while the generators do, as in the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem, in_comparison
from atlasd.errors import InputError
from atlasd.prediction.neural import Blueprint
from atlasd.prediction.train import loss_per_chart, standardise
from atlasd.runtime.random import stream


class Tandem:
    """The networks of all charts, one step of training at a time.

    Arguments:
        problem: Data, and the recipe of the networks, whose learning rate and loss are used.
        seed: Seed of the first weights.
    """

    def __init__(self, problem: Problem, seed: object) -> None:
        draw = getattr(problem.recipe, "blueprint", None)
        if draw is None or problem.known:
            given = "a function" if problem.known else type(problem.recipe).__name__
            raise InputError(
                f"`predictor` must be a network that can learn in tandem with the search, got {given}; use "
                "ConvPredictor.published() or tandem=False."
            )
        plan: Blueprint = draw(problem.samples)
        self.problem, self._plan = problem, plan
        self._schedule = problem.recipe.schedule  # type: ignore[union-attr]
        some = torch.arange(len(problem.samples))
        self.network = plan.make(stream(0, "tandem", seed)).to(problem.inputs(some[:1]).dtype)
        standardise(self.network, problem.samples, some)
        self.network.architecture = plan.make  # type: ignore[assignment]
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=self._schedule.learning_rate)
        self.function = in_comparison(problem, (self.network,))[0]
        self._rest()

    def _rest(self) -> None:
        self.network.eval().requires_grad_(False)

    def learn(self, x: Tensor, y: Tensor) -> float:
        """One step on inputs `(B, K, *in)` and targets, each chart for itself; the mean loss."""
        if len(x) < 2:  # batch norm needs two
            return float("nan")
        self.network.train().requires_grad_(True)
        weights, classes = self._plan.class_weights, self.problem.classes
        each = loss_per_chart(self.network(x), y, classes, weights, self._schedule.loss)
        self._optimizer.zero_grad(set_to_none=True)
        each.sum().backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._rest()
        return float(each.detach().mean())

    def state(self) -> dict[str, Any]:
        """All that is needed to go on."""
        weights = {k: v.clone() for k, v in self.network.state_dict().items()}
        return {"weights": weights, "optimizer": optimizer_state(self._optimizer)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from there."""
        self.network.load_state_dict(state["weights"])
        restore_optimizer(self._optimizer, state["optimizer"])


def optimizer_state(optimizer: torch.optim.Optimizer) -> list[dict[str, Tensor]]:
    """The averages of Adam, parameter by parameter."""
    held = optimizer.state_dict()["state"]
    return [{k: torch.as_tensor(v).clone() for k, v in held[i].items()} for i in sorted(held)]


def restore_optimizer(optimizer: torch.optim.Optimizer, state: Sequence[Mapping[str, Tensor]]) -> None:
    """Gives Adam its averages back."""
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": {i: dict(s) for i, s in enumerate(state)}, "param_groups": groups})
