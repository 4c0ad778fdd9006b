"""The steps of the paper's search for generators: they can be stopped after any epoch, and go on from there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atlasd.algebra.basis import cosine_similarity, standard_similarity
from atlasd.discovery.objective import Objective
from atlasd.discovery.problem import Function, Problem, in_comparison
from atlasd.errors import InputError
from atlasd.prediction.neural import Blueprint
from atlasd.prediction.train import loss_per_chart, standardise
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.runtime.stages import current_stages


class Tandem:
    """The networks of all charts, one step of training at a time."""

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


if TYPE_CHECKING:
    from atlasd.discovery.gradient import GradientSearch

SIMILARITY: dict[str, Callable[[Tensor], Tensor]] = {
    "standard": standard_similarity,
    "cosine": cosine_similarity,
}
_START = 0.02
_PUSHED = 0.3
"""Share of the steps in which growth is rewarded more, where that is asked for."""


@dataclass(frozen=True, eq=False)
class Course:
    """How one descent went.

    Arguments:
        basis: The generators, in the units of the search, `(k, n, n)`.
        curves: The error, the norm of the weakest generator and, in tandem, the loss of the predictors, step by step.
        function: The predictors that were trained with them, if any were.
    """

    basis: Tensor
    curves: Mapping[str, tuple[float, ...]]
    function: Function | None = None


class GradientSteps:
    """One descent: generators, their optimiser, the order of the samples, and the predictors where they learn too."""

    def __init__(self, search: GradientSearch, problem: Problem, k: int, seed: object) -> None:
        self._search, self._problem, self._k = search, problem, k
        self._generator = stream(0, "gradient", seed, k)
        every = search.tandem or not search.held_out
        index = torch.arange(len(problem.samples)) if every else problem.search
        self._index = index if search.samples is None else index[: search.samples]
        if not len(self._index):
            raise InputError("`problem` must hold samples to search on, got none.")
        self._epoch = math.ceil(len(self._index) / search.batch)
        self.steps = search.steps if search.epochs is None else search.epochs * self._epoch
        start = torch.randn(k, problem.size, problem.size, generator=self._generator, dtype=torch.float64)
        self._basis = (_START * start).requires_grad_()
        self._optimizer = torch.optim.Adam([self._basis], lr=search.learning_rate)
        self._tandem = Tandem(problem, seed) if search.tandem else None
        self._function = problem.outputs if self._tandem is None else self._tandem.function
        self._objective = Objective(
            problem, loss=search.loss, units=search.units, charts=search.charts,
            weights=self._reliability(), interpolation=search.interpolation, window=search.window,
        )  # fmt: skip
        self._scale = self._spread() if search.units == "standard" else 1.0
        self._average = torch.zeros_like(start)
        self._order = self._index[:0]
        self._curves: dict[str, list[float]] = {"error": [], "weakest generator": []}
        if self._tandem is not None:
            self._curves["predictor"] = []

    def run(self, progress: Progress) -> Course:
        """Does all steps; finished epochs are kept where the run keeps its stages."""
        label = "gradient search"
        if self._search.epochs is None:
            self._advance(progress.track(range(self.steps), label, total=self.steps))
        else:
            stages, epochs = current_stages(), range(self._search.epochs)
            for epoch in progress.track(epochs, label, total=len(epochs)):
                steps = range(epoch * self._epoch, (epoch + 1) * self._epoch)
                self._load(stages.do(f"epoch of {self._k}", partial(self._advance, steps)))
        count = sum(self._counts(step) for step in range(self.steps))
        basis = self._average / count if count else self._basis.detach().clone()
        curves = {name: tuple(values) for name, values in self._curves.items()}
        return Course(basis, curves, None if self._tandem is None else self._tandem.function)

    def _counts(self, step: int) -> bool:
        """Whether the generators after this step count for the average."""
        return step >= (1 - self._search.average) * self.steps

    def _advance(self, steps: Iterable[int]) -> dict[str, Any]:
        for step in steps:
            self._step(step)
        tandem = None if self._tandem is None else self._tandem.state()
        return {
            "basis": self._basis.detach().clone(),
            "optimizer": optimizer_state(self._optimizer),
            "generator": self._generator.get_state(),
            "average": self._average.clone(),
            "order": self._order,
            "curves": {name: torch.tensor(v, dtype=torch.float64) for name, v in self._curves.items()},
            "tandem": tandem,
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            self._basis.copy_(state["basis"])
        restore_optimizer(self._optimizer, state["optimizer"])
        self._generator.set_state(state["generator"])
        self._average, self._order = state["average"].clone(), state["order"]
        self._curves = {name: values.tolist() for name, values in state["curves"].items()}
        if self._tandem is not None:
            self._tandem.load(state["tandem"])

    def _step(self, step: int) -> None:
        search, problem, basis = self._search, self._problem, self._basis
        if not len(self._order):
            self._order = self._index[torch.randperm(len(self._index), generator=self._generator)]
        part, self._order = self._order[: search.batch], self._order[search.batch :]
        if search.anneal:
            rate = search.learning_rate * 0.5 * (1 + math.cos(math.pi * step / self.steps))
            self._optimizer.param_groups[0]["lr"] = rate
        x = problem.inputs(part)
        if self._tandem is not None:
            self._curves["predictor"].append(self._tandem.learn(x, problem.samples.targets(part)))
        shape = (len(part), problem.charts, self._k)
        eta = search.spread * torch.randn(shape, generator=self._generator, dtype=torch.float64)
        with torch.no_grad():
            y = self._function(x)
        g = torch.matrix_exp(torch.einsum("bkg,gij->bkij", eta, basis))
        error = self._objective(self._function, x, y, g).mean() / self._scale
        push = 1 + search.push * max(0.0, 1 - step / (_PUSHED * self.steps))
        total = error - push * search.growth * self._growth().sum()
        if self._k > 1:
            total = total + push * search.weight * SIMILARITY[search.similarity](basis)
        self._optimizer.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._curves["error"].append(float(error.detach()))
        self._curves["weakest generator"].append(float(basis.detach().flatten(1).norm(dim=1).min()))
        if self._counts(step):
            self._average += basis.detach()

    def _growth(self) -> Tensor:
        """Sizes of the generators as far as growth is rewarded, `(k,)`."""
        limit, basis = self._search.growth_limit, self._basis
        if limit is None:
            return basis.flatten(1).norm(dim=1)
        if self._search.clip == "norm":
            return basis.flatten(1).norm(dim=1).clamp(max=limit)
        return basis.clamp(-limit, limit).flatten(1).norm(dim=1)

    def _reliability(self) -> Tensor | None:
        """Weights of the charts by their signal to noise, `(K,)`, squared as for any unequal measurements."""
        fits = self._problem.fits
        if not self._search.robust or fits is None:
            return None
        skill = fits.members[0].chart_skill.clamp(0.0, 0.998)
        weights = (skill / (1 - skill + 2e-3)).square()
        return weights if float(weights.sum()) > 0 else None

    def _spread(self) -> float:
        """Unit of the error: a spread per output channel, so that one with large numbers does not drown the others."""
        if self._search.loss == "cross_entropy":
            return 1.0
        with torch.no_grad():
            y = self._function(self._problem.inputs(self._index[:64]))
        flat = y.double().movedim(2, 0).flatten(1) if y.ndim > 2 else y.double().flatten()[None]
        spread = flat.std(dim=1).clamp_min(1e-12).mean()
        return float(spread ** (2 if self._search.loss == "mse" else 1))
