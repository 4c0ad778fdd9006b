"""The paper's search: generators by stochastic gradient descent on the equivariance error."""

from __future__ import annotations

__all__ = ["GradientSearch"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from atlasd.algebra.basis import cosine_similarity, standard_similarity
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.problem import Problem
from atlasd.discovery.residual import sides
from atlasd.discovery.search import Found
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

Loss = Literal["mae", "mse", "cross_entropy"]

_SIMILARITY: dict[str, Callable[[Tensor], Tensor]] = {
    "standard": standard_similarity,
    "cosine": cosine_similarity,
}
_START = 0.02
# Interpolation error rises steeply below a third of a radian and can hold a generator there: in the first
# part of the steps growth is rewarded more, falling to what was asked for. The last objective is the paper's.
_PUSH = 4.0
_PUSHED = 0.3
# Two runs whose spans differ by less than the sine of about 12 degrees found the same algebra.
_SAME = 0.2


@dataclass(frozen=True, kw_only=True)
class GradientSearch:
    r"""Algorithm 1 of the paper, step 2: k matrices B that make :math:`\exp(\sum_i \eta_i B_i)` a symmetry.

    With an independent Gaussian :math:`\eta` for every sample and chart, Adam lowers

    .. math::
        L(\Phi(g x), g \Phi(x)) - \iota \sum_i \|\mathrm{clip}(B_i, \beta)\| + \gamma \sum_{i<j} s(B_i, B_j).

    The first term is a weighted mean over charts, in units of the spread of the outputs: the sum of the
    paper with growth and weight counted per chart, so that they mean the same for 3 charts, for 19, and for
    any unit of the data. The norm in the growth term is that of B with entries clipped to the limit, as in
    the published code, where appendix B writes a clipped norm: a rotation then grows to angles of one radian.
    Predictors are fitted before the search and stay as they are.

    Arguments:
        generators: The number k, or `auto` for the rule of appendix B: the least k that leads to one algebra
            from every start, then raised until the weakest generator drops below `threshold`.
        growth: Reward :math:`\iota` for large generators.
        growth_limit: Entry :math:`\beta` beyond which growth is not rewarded; `None` for no limit.
        similarity: `standard` counts shared positions, `cosine` is the plain cosine.
        weight: Weight :math:`\gamma` of the similarity.
        loss: Mean absolute error, mean squared error, or cross-entropy where outputs are probabilities.
        spread: Standard deviation of :math:`\eta`; 1 in the paper. Larger motions bend the answer less where
            the data do not fill their orbits: on the paper's heat data the least loss lies about 5 degrees
            off so(2) for turns by 0.3, 2 degrees for turns by 1.
        steps: Batches, if `epochs` is `None`.
        epochs: Passes over the samples of the search.
        batch: Samples in a batch.
        samples: The most samples looked at; `None` for all of the search split.
        learning_rate: Of Adam at the start; it falls to zero along a cosine, so that the answer settles.
        robust: Weighs charts by their signal to noise: those at a wall have poor predictors.
        starts: Independent runs for each k of `auto`.
        threshold: Norm below which a generator counts as absent.

    Example:
        >>> GradientSearch(generators=2, similarity="cosine").growth
        0.1
    """

    generators: int | Literal["auto"] = 1
    growth: float = 0.1
    growth_limit: float | None = 1.0
    similarity: Literal["standard", "cosine"] = "standard"
    weight: float = 0.05
    loss: Loss = "mae"
    spread: float = 1.5
    steps: int = 300
    epochs: int | None = None
    batch: int = 16
    samples: int | None = None
    learning_rate: float = 3e-2
    robust: bool = True
    starts: int = 3
    threshold: float = 0.1

    def __post_init__(self) -> None:
        if self.generators != "auto" and (not isinstance(self.generators, int) or self.generators < 1):
            raise InputError(f"`generators` must be 'auto' or a positive integer, got {self.generators!r}.")
        if self.similarity not in _SIMILARITY:
            raise InputError(f"`similarity` must be 'standard' or 'cosine', got {self.similarity!r}.")
        if self.loss not in ("mae", "mse", "cross_entropy"):
            raise InputError(f"`loss` must be 'mae', 'mse' or 'cross_entropy', got {self.loss!r}.")
        for name in ("steps", "batch", "starts", "learning_rate", "spread"):
            if getattr(self, name) <= 0:
                raise InputError(f"`{name}` must be positive, got {getattr(self, name)}; leave it at its default.")

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """Descends from a random start, or from several to choose the number of generators."""
        if self.generators != "auto":
            return self._found(self._descend(problem, self.generators, seed, progress))
        return self._automatic(problem, seed, progress)

    def _automatic(self, problem: Problem, seed: int, progress: Progress) -> Found:
        """The rule of appendix B for the number of generators."""
        found: Found | None = None
        for k in range(1, problem.size**2 + 1):
            runs = [
                self._found(self._descend(problem, k, seed if i == 0 else f"{seed}/{i}", progress))
                # Once one k has been found that every start agrees on, a single run tells whether more fit.
                for i in range(self.starts if found is None else 1)
            ]
            weak = any(len(run.basis) < k for run in runs)
            if found is not None and weak:
                break
            spans = [LieAlgebra(run.basis) for run in runs]
            if found is not None or all(spans[0].distance(span) < _SAME for span in spans[1:]):
                found = runs[0]
            if weak:
                # The starts agree on fewer than k generators: more would only be copies.
                break
            progress.say(f"{k} generators: {'one algebra' if found else 'no agreement yet'}")
        return found or Found(
            basis=torch.zeros(0, problem.size, problem.size, dtype=torch.float64),
            notes=("no number of generators led to one algebra from every start",),
        )

    def _descend(self, problem: Problem, k: int, seed: object, progress: Progress) -> _Descent:
        generator = stream(0, "gradient", seed, k)
        index = problem.search if self.samples is None else problem.search[: self.samples]
        if not len(index):
            raise InputError("`problem` must hold samples to search on, got none.")
        steps = self.steps if self.epochs is None else self.epochs * math.ceil(len(index) / self.batch)
        objective = _Objective(problem, self.loss, self.robust, index)
        start = torch.randn(k, problem.size, problem.size, generator=generator, dtype=torch.float64)
        basis = (_START * start).requires_grad_()
        optimizer = torch.optim.Adam([basis], lr=self.learning_rate)
        errors, growths = [], []
        average = torch.zeros_like(basis)
        order = index[:0]
        for step in progress.track(range(steps), "gradient search", total=steps):
            if not len(order):
                order = index[torch.randperm(len(index), generator=generator)]
            part, order = order[: self.batch], order[self.batch :]
            optimizer.param_groups[0]["lr"] = self.learning_rate * 0.5 * (1 + math.cos(math.pi * step / steps))
            eta = self.spread * torch.randn(len(part), problem.charts, k, generator=generator, dtype=torch.float64)
            error = objective(part, torch.matrix_exp(torch.einsum("bkg,gij->bkij", eta, basis)))
            limit = self.growth_limit
            limited = basis if limit is None else basis.clamp(-limit, limit)
            push = 1 + _PUSH * max(0.0, 1 - step / (_PUSHED * steps))
            total = error - push * self.growth * limited.flatten(1).norm(dim=1).sum()
            if k > 1:
                total = total + push * self.weight * _SIMILARITY[self.similarity](basis)
            optimizer.zero_grad()
            total.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            errors.append(float(error.detach()))
            growths.append(float(basis.detach().flatten(1).norm(dim=1).min()))
            if step >= 0.8 * steps:  # the mean of the last steps carries less of the noise of the batches
                average += basis.detach()
        count = sum(step >= 0.8 * steps for step in range(steps))
        return _Descent(average / count, tuple(errors), tuple(growths))

    def _found(self, run: _Descent) -> Found:
        """Leaves out what has collapsed and what repeats another generator."""
        norms = run.basis.flatten(1).norm(dim=1)
        large = run.basis[norms >= self.threshold]
        notes = []
        if len(large) < len(run.basis):
            notes.append(f"{len(run.basis) - len(large)} of {len(run.basis)} generators collapsed to zero")
        kept: list[Tensor] = []
        for matrix in large[torch.argsort(norms[norms >= self.threshold], descending=True)]:
            rest = matrix / matrix.norm()
            for other in _orthonormal(kept):
                rest = rest - (rest * other).sum() * other
            if float(rest.norm()) > _SAME:
                kept.append(matrix)
            else:
                notes.append("a generator repeated the others and was left out")
        basis = torch.stack(kept) if kept else run.basis[:0]
        return Found(
            basis=basis,
            curves={"error": run.errors, "weakest generator": run.norms},
            notes=tuple(notes),
            fixed=True,
        )


@dataclass(frozen=True, eq=False)
class _Descent:
    basis: Tensor
    errors: tuple[float, ...]
    norms: tuple[float, ...]


def _orthonormal(matrices: list[Tensor]) -> list[Tensor]:
    if not matrices:
        return []
    stacked = torch.stack(matrices)
    rows = torch.linalg.qr(stacked.flatten(1).mT).Q.mT
    return list(rows.unflatten(1, stacked.shape[1:]))


class _Objective:
    """The equivariance error of group elements drawn for every sample and chart, as one number."""

    def __init__(self, problem: Problem, loss: Loss, robust: bool, index: Tensor) -> None:
        self._problem, self._loss = problem, loss
        skill = torch.ones(problem.charts, dtype=torch.float64)
        if robust and problem.fits is not None:
            skill = problem.fits.members[0].chart_skill.clamp(0.0, 0.998)
        weights = (skill / (1 - skill + 2e-3)).square()  # signal to noise, squared as for any unequal measurements
        weights = weights if float(weights.sum()) > 0 else torch.ones_like(weights)
        self._weights = weights / weights.sum()
        with torch.no_grad():
            y = problem.outputs(problem.patches(index[:64]))
        # A spread per output channel: one with large numbers must not drown the others.
        flat = y.double().movedim(2, 0).flatten(1) if y.ndim > 2 else y.double().flatten()[None]
        spread = flat.std(dim=1).clamp_min(1e-12).mean()
        self._scale = 1.0 if loss == "cross_entropy" else float(spread ** (2 if loss == "mse" else 1))

    def __call__(self, part: Tensor, g: Tensor) -> Tensor:
        """Mean error of samples `part`, `(B,)`, moved by `g`, `(B, K, n, n)`."""
        problem = self._problem
        x = problem.patches(part)
        with torch.no_grad():
            y = problem.outputs(x)
        left, right = sides(problem.outputs, problem.action, x, y, g)
        each = self._distance(left, right)  # (B, K, *)
        if problem.is_field:
            d = problem.action.dimensions  # type: ignore[attr-defined]
            mask = problem.window(tuple(y.shape[-d:]), g, tuple(x.shape[-d:])).double()
            # Shares in float64: where nearly all has left the patch, what is left still counts in full.
            share = mask / mask.flatten(2).sum(-1)[(..., *([None] * d))].clamp_min(1e-300)
            each = (each.double() * share).flatten(2).sum(-1)
        elif each.ndim > 2:
            each = each.flatten(2).mean(-1)
        return (each.double() * self._weights).sum(1).mean() / self._scale

    def _distance(self, left: Tensor, right: Tensor) -> Tensor:
        """Errors without the axis of channels."""
        if self._loss == "cross_entropy":
            # Less the entropy of the target, so that exact symmetry gives 0.
            target = right.clamp(min=1e-9)
            return (target * (target.log() - left.clamp(min=1e-9).log())).sum(2)
        difference = left - right
        each = difference.abs() if self._loss == "mae" else difference.square()
        return each.mean(2) if each.ndim > 2 else each
