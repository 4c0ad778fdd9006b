r"""The residual :math:`f(g x) - \rho(g) f(x)`: the one place where it is written.

For elements of a group, or for generators at first order, it gives what searches, cosets, the verdict, the pictures of
the report and the audit of a model reduce. Charts are worked on block by block, wherever the workers are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.coverage import FieldCoverage, VectorCoverage
from atlasd.discovery.part_fields import FieldPart
from atlasd.discovery.part_vectors import VectorPart
from atlasd.discovery.problem import Function, Part, Problem, looked_at
from atlasd.errors import InputError
from atlasd.geometry.actions import Action
from atlasd.prediction.fit import selected
from atlasd.prediction.predictor import part_of
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.executor import About, current_workers
from atlasd.runtime.packing import Shared, ask

_LIVE = 8
"""Blocks of charts whose data stay in memory between questions."""


def scaled(a: Tensor) -> Tensor:
    """Generators `(*, n, n)` with operator norm 1: a rotation's t is then its angle in radians."""
    return a / torch.linalg.matrix_norm(a, ord=2)[..., None, None].clamp_min(1e-300)


def sides(function: Function, action: Action, x: Tensor, y: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    r"""The two sides of the question, :math:`f(g x)` and :math:`\rho(g) y`.

    Arguments:
        action: How g transforms inputs and outputs.
        y: Outputs that belong to them: labels, or f(x).
        g: One matrix `(n, n)`, or one for each leading axis of `x`.
    """
    return function(action.on_input(g, x)), action.on_output(g, y)


def equivariance_error(
    function: Callable[[Tensor], Tensor],
    action: Action,
    x: Tensor,
    g: Tensor,
    *,
    distance: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> Tensor:
    r"""Measures how far :math:`f(g \cdot x)` lies from :math:`g \cdot f(x)`.

    Arguments:
        function: The map f.
        action: How g transforms inputs and outputs.
        x: Inputs, with shape `(B, *)` or `(B, K, *)`; whatever the function takes.
        g: One matrix `(n, n)`, or one for each leading axis of `x`.
        distance: Maps two outputs to one error per sample (and chart); the mean squared difference by default.

    Returns:
        The errors, differentiable with respect to `g`.

    Example:
        >>> from atlasd.geometry.actions import VectorAction
        >>> rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> norm = lambda x: x.norm(dim=-1)
        >>> equivariance_error(norm, VectorAction(), torch.tensor([[3.0, 4.0]]), rotation)
        tensor([0.])
    """
    if g.shape[-1] != g.shape[-2]:
        raise InputError(f"`g` must have shape (..., n, n), got {tuple(g.shape)}.")
    # The second side does not depend on g through the function: its graph would cost memory for nothing.
    with torch.no_grad():
        y = function(x)
    left, right = sides(function, action, x, y, g)
    if distance is not None:
        return distance(left, right)
    squares = (left - right).square()
    return squares if squares.ndim < 3 else squares.flatten(2).mean(-1)


@dataclass(frozen=True, eq=False)
class Losses:
    r"""Squared losses of every element, sample and chart, `(M, B, K)`.

    Arguments:
        through: Of the label, when one predicts through g: :math:`|y - g^{-1} f(g x)|^2`.
        plain: Of the label, when one predicts plainly: :math:`|y - f(x)|^2`.
        null: The same as `through` with inputs and labels of different samples. The mean over samples is that over
            all pairs; single values are such that their spread is that of the mean.
        covered: Whether the transformed input lies where data are, as 0 or 1.
        displaced: How far inputs are moved: the mean squared change over twice their variance, `(M,)`.
    """

    through: Tensor
    plain: Tensor
    null: Tensor
    covered: Tensor
    displaced: Tensor

    @property
    def excess(self) -> Tensor:
        """What predicting through g costs beyond predicting plainly; only where covered."""
        return self.covered * (self.through - self.plain)

    @property
    def scale(self) -> Tensor:
        """What it costs to know nothing; only where covered."""
        return self.covered * (self.null - self.plain)

    def strength(self, weights: Tensor | None = None) -> Tensor:
        """Strength of every element, `(M,)`: a ratio of amplitudes, 0 for a symmetry, 1 for what takes no notice of g.

        Arguments:
            weights: Weights of the charts, `(K,)`.
        """
        w = torch.ones(self.plain.shape[-1], dtype=torch.float64) if weights is None else weights
        ratio = (self.excess @ w).sum(-1) / (self.scale @ w).sum(-1).clamp_min(1e-300)
        return ratio.clamp_min(0.0).sqrt()


class Residual:
    """Answers for some samples of a problem, block by block of its charts.

    Arguments:
        index: The samples, `(B,)`.
        coverage: Where data are; `None` where the map is known everywhere, or where nobody asks.
        weights: Weights of the charts, `(K,)`. Those of weight 0 are not asked, where maps of single charts can be:
            their answers are 0.
    """

    def __init__(
        self,
        problem: Problem,
        index: Tensor,
        coverage: FieldCoverage | VectorCoverage | None = None,
        weights: Tensor | None = None,
    ) -> None:
        self.problem, self.index, self.coverage, self.weights = problem, index, coverage, weights
        some = weights is not None and not bool((weights > 0).all())
        blocks = problem.blocks()
        parts = [problem.part(block) for block in blocks]
        some = some and all(hasattr(f, "select") for part in parts for f in part.functions)
        self.ranges: list[tuple[range, list[int]]] = []
        self._parts: list[Shared[Part]] = []
        kind = FieldPart if problem.is_field else VectorPart
        for block, part in zip(blocks, parts, strict=True):
            keep = [k for k in range(len(block)) if not some or float(weights[block.start + k]) > 0]  # type: ignore[index]
            if keep:
                less = part if len(keep) == len(block) else problem.part(block, keep)
                self.ranges.append((block, keep))
                self._parts.append(Shared(kind(less, index, coverage)))
        self._asked = torch.tensor([block.start + k for block, keep in self.ranges for k in keep])

    def few(self, samples: int) -> Residual:
        """The same on the first samples."""
        if samples >= len(self.index):
            return self
        return Residual(self.problem, self.index[:samples], self.coverage, self.weights)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """Answers of every block; an argument of type `_Each` has one value for each."""
        each = [tuple(a[i] if isinstance(a, _Each) else a for a in arguments) for i in range(len(self._parts))]
        tasks = [(part, method, given) for part, given in zip(self._parts, each, strict=True)]
        names = [About(block) for block, _ in self.ranges]
        answers = []
        for i, answer in enumerate(current_workers().stream(ask, tasks, names, quick=True)):
            answers.append(answer)
            if i >= _LIVE:
                self._parts[i].value.forget()
        return answers

    def _joined(self, answers: Sequence[Tensor], dim: int) -> Tensor:
        """Answers of all blocks side by side along the axis of charts; 0 for charts that were not asked."""
        joined = torch.cat(list(answers), dim=dim)
        if joined.shape[dim] == self.problem.charts:
            return joined
        shape = list(joined.shape)
        shape[dim] = self.problem.charts
        return joined.new_zeros(shape).index_copy(dim, self._asked, joined)

    def losses(self, elements: Tensor, *, unrelated: bool = False) -> Losses:
        """Losses of elements `(M, n, n)`; with `unrelated`, each vector is displaced as another sample would be."""
        *columns, displaced = zip(*self._all("losses", elements.double(), unrelated), strict=True)
        through, plain, null, covered = (self._joined(parts, -1) for parts in columns)
        return Losses(through, plain, null, covered, torch.cat(displaced, dim=-1).mean(-1))

    def inner(self, elements: Tensor, labels: bool = False) -> tuple[Tensor, Tensor]:
        """Inner products `(M, B, K, p, p)` of residuals of elements `(M, p, n, n)`, and levels `(M, B, K)`.

        Elements may differ from chart to chart: `(M, p, K, n, n)`. With `labels`, residuals of fields are those of
        what was measured in place of what is predicted.
        """
        given: Tensor | _Each = elements
        if elements.ndim > 4:
            given = _Each(elements[:, :, [block.start + k for k in keep]] for block, keep in self.ranges)
        products, levels = zip(*self._all("inner", given, *[labels][: self.problem.is_field]), strict=True)
        return self._joined(products, 2), self._joined(levels, 2)

    def permuted(self, projectors: Tensor) -> Tensor:
        """Strength `(M,)` of swapping the part of vectors in the span of each projector `(M, n, n)` between samples."""
        identity = self.problem.exponential(torch.zeros(1, *[self.problem.size] * 2, dtype=torch.float64))
        scale = self.losses(identity).scale.mean()
        cost = torch.cat(self._all("permuted", projectors.double()), dim=-1).mean((1, 2))
        return (cost / scale.clamp_min(1e-300)).clamp_min(0.0).sqrt()

    def recovered(self, elements: Tensor, planted: Sequence[tuple[Any, Sequence[Function]]]) -> Tensor:
        """What refitting tells of the breaking of each plant under each element, where data are, `(P, M, K, 4)`.

        Means over samples: what is seen times what was planted, and the square of what was planted, whose ratio is the
        share of the amplitude that is seen; the square of their difference, and the square of the error of the refitted
        map where the samples are.
        """
        given = _Each([(p, [self._of_block(f, *r) for f in fs]) for p, fs in planted] for r in self.ranges)
        return self._joined(self._all("recovered", elements.double(), given), 2) / len(self.index)

    def error_change(self, elements: Tensor) -> float:
        """How clearly errors of a map of vectors go with what elements `(M, n, n)` change, in standard deviations.

        Where neither the errors nor the data change under g, errors have nothing to do with differences of features of
        x and of g x. For each degree of monomials, all of them are looked at together, by the products of the errors of
        two samples. A breaking shows here that the map does not hold at all: a product of three vectors of a set.
        """
        return float(torch.cat(self._all("error_change", elements.double())).max())

    def fit_variance(self, elements: Tensor) -> Tensor:
        """How much more the maps of all folds differ at transformed vectors than at the samples, `(M, B, K)`.

        The jackknife's variance of a fitted map, as a square of outputs. What a map has from the accidents of its
        samples is no breaking.
        """
        return self._joined(self._all("fit_variance", elements.double()), -1)

    def hidden(self, plants: Sequence[Function]) -> Tensor:
        """Of fields, what products of neighbouring values tell of the errors of the map, and of plants.

        By squares, explained and all, `(1 + P, K, 2)`.
        """
        return self._joined(self._all("hidden", list(plants)), 1) / len(self.index)

    def slopes(self) -> tuple[Tensor, Tensor]:
        """Gram matrices over generators at first order: of the residual and of its null level, each `(K, n^2, n^2)`."""
        residual, null = zip(*self._all("slopes"), strict=True)
        return self._joined(residual, 0), self._joined(null, 0)

    def _of_block(self, function: Function, charts: range, keep: list[int]) -> Function:
        part = function if len(charts) == self.problem.charts else part_of(function, charts)
        return part if len(keep) == len(charts) else selected(part, keep)


class _Each(list[Any]):
    """Arguments of which every block has its own."""


_NUMBERS, _PLACES = 3 << 12, 4096
"""Numbers in the vectors that judge, as far as they are more; vectors that tell where data are, of small ones twice."""


def judging(problem: Problem, samples: int) -> Residual:
    """Residuals on samples that judge, at least so many: more of small vectors, whose errors they average out.

    A map that is known everywhere has no errors.
    """
    more = 1
    if not (problem.is_field or problem.known):
        more = min(max(_NUMBERS // (samples * problem.samples.x.shape[1:].numel()), 1), 4)
    return Residual(problem, problem.pick(samples * more), known_inputs(problem, _PLACES * min(more, 2)))


def known_inputs(
    problem: Problem, most: int = _PLACES, weights: Tensor | None = None
) -> FieldCoverage | VectorCoverage | None:
    """Where the data of a problem are; nothing for a function that is known everywhere.

    Arguments:
        most: The most vectors that are looked at.
        weights: Weights of the charts, `(K,)`; those of weight 0 do not count.
    """
    if problem.known:
        return None
    if not problem.is_field:
        index = problem.pick(most)
        x, y, p = VectorPart(problem.part(range(problem.charts)), index, None).data
        return VectorCoverage(x[:, 0], (y - p).double().flatten(1))
    index = problem.pick(96)
    patches = []
    for block in problem.blocks():
        part = problem.part(block)
        x = part.inputs(index)
        kept = torch.ones(len(block), dtype=torch.bool) if weights is None else weights[block.start : block.stop] > 0
        patches.append(centre_crop(x, looked_at(part, x))[:, kept].flatten(0, 1))
    # Charts may have maps of different reach: all are compared by the smallest.
    smallest = tuple(map(min, zip(*(p.shape[2:] for p in patches), strict=True)))
    stacked = torch.cat([centre_crop(p, smallest) for p in patches])
    return FieldCoverage.of(stacked[torch.randperm(len(stacked), generator=torch.Generator().manual_seed(0))])


def sized_pairs(basis: Tensor, sizes: Sequence[float], problem: Problem) -> Tensor:
    """Elements of generators `(k, n, n)` at every size and their inverses, `(k T, 2, n, n)`."""
    steps = torch.tensor([[t, -t] for t in sizes], dtype=torch.float64)
    tangents = steps[:, :, None, None] * scaled(basis.double())[:, None, None]
    elements = problem.exponential(tangents.reshape(-1, *basis.shape[1:]).contiguous())
    return elements.nan_to_num(1e30, 1e30, -1e30).unflatten(0, (-1, 2))
