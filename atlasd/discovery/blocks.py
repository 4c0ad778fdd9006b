"""The finite criterion for many charts: blocks of them are asked one by one, here or by workers."""

from __future__ import annotations

__all__ = ["Block", "ChartCriterion"]

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.coverage import Coverage
from atlasd.discovery.criterion import halves
from atlasd.discovery.problem import Problem
from atlasd.discovery.refine import FiniteCriterion, Linearised, minimise, weigh_sizes
from atlasd.runtime.executor import About, Shared, current_workers

_LIVE = 32
"""Blocks whose inputs are kept in memory; those of the others are read again when they are asked."""


class Block:
    """One block of charts and the samples it is asked on, by number: the inputs are read where they are needed.

    Arguments:
        problem: The problem of these charts.
        index: Numbers of the samples.
        sizes: The sizes |t|.
    """

    def __init__(self, problem: Problem, index: Tensor, sizes: tuple[float, ...]) -> None:
        self.problem, self.index, self.sizes = problem, index, sizes
        self._x: Tensor | None = None
        self._criterion: FiniteCriterion | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_x": None, "_criterion": None}

    def close(self) -> None:
        """Forgets the inputs."""
        self._x = self._criterion = None

    @property
    def x(self) -> Tensor:
        """The inputs, `(B, K, *in)`."""
        if self._x is None:
            self._x = self.problem.patches(self.index)
        return self._x

    @property
    def criterion(self) -> FiniteCriterion:
        """The criterion of these charts."""
        if self._criterion is None:
            self._criterion = FiniteCriterion(self.problem, self.x, self.sizes)
        return self._criterion

    def errors(self, generators: Sequence[Tensor], sizes: Sequence[Tensor]) -> list[Tensor]:
        """Errors of several generators, each `(B, K)`."""
        return [self.criterion.errors(a, s) for a, s in zip(generators, sizes, strict=True)]

    def linearise(self, a: Tensor, directions: Tensor, sizes: Tensor) -> Linearised:
        """First-order model of the errors."""
        return self.criterion.linearise(a, directions, sizes)

    def apart(self, start: Tensor, subspace: Tensor, sizes: Tensor, iterations: int) -> Tensor:
        """A generator for every chart, `(K, n, n)`, each from the same start."""
        weights = torch.ones(self.problem.charts, dtype=torch.float64)
        return minimise(self.criterion, start, subspace, weights, apart=True, iterations=iterations, sizes=sizes)[0]

    def measure(self, a: Tensor) -> Tensor:
        """Miss and chance, with shape `(2, T, B, K)`."""
        return torch.stack(self.criterion.measure(a))

    def drift(self, elements: Tensor, coverage: Shared[Coverage]) -> Tensor:
        """How far inputs that group elements `(M, n, n)` move leave the data, `(M, 3, B, K)`."""
        action, x = self.problem.action, self.x
        with torch.no_grad():
            return torch.stack([coverage.value.drift(action.on_input(g, x)) for g in elements])

    def variance(self) -> Tensor:
        """Variance of the outputs of every chart, `(K,)`."""
        p = self.criterion.p
        return (p - p.mean(0)).double().square().flatten(2).mean(-1).mean(0)

    def there_and_back(self, a: Tensor) -> Tensor:
        """Half of what a motion and its inverse together miss, at every size, `(T, K)`."""
        problem, d = self.problem, self.problem.size
        x, p = self.criterion.x[:8], self.criterion.p[:8]
        rows = []
        for t in self.criterion.steps:
            g = torch.matrix_exp(t * a)
            with torch.no_grad():
                back = problem.psi(problem.action.on_input(torch.linalg.inv(g), problem.action.on_input(g, x)))
            # There and back needs room twice; only the inner disc has it.
            window = problem.window(tuple(p.shape[-d:]), g @ g, tuple(x.shape[-d:])).to(p.dtype)
            size = ((back - p).square() * window).flatten(2).sum(-1).double() / window.sum().clamp_min(1e-9)
            rows.append(0.5 * size.mean(0))
        return torch.stack(rows)

    def evidence(
        self, generators: Sequence[Tensor], motions: Sequence[Tensor], coverage: Shared[Coverage]
    ) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
        """Variance of the outputs of every chart, `(K,)`, and for every generator three things.

        These are miss and chance, drift of its motions `(T, n, n)`, and what there and back miss.
        """
        pairs = zip(generators, motions, strict=True)
        rows = [(self.measure(a), self.drift(m, coverage), self.there_and_back(a)) for a, m in pairs]
        return self.variance(), rows

    def element_evidence(self, elements: Tensor, coverage: Shared[Coverage]) -> tuple[Tensor, Tensor]:
        """What `elements` and `drift` give."""
        return self.elements(elements), self.drift(elements, coverage)

    def elements(self, elements: Tensor) -> Tensor:
        """Miss, chance, and spread of the outputs for group elements `(M, n, n)`, with shape `(M, 3, B, K)`."""
        x, p, d = self.criterion.x, self.criterion.p, self.problem.size
        rows = []
        for g in elements:
            with torch.no_grad():
                both = halves(self.problem, x, g, p)
            window = self.problem.window(tuple(p.shape[-d:]), g, tuple(x.shape[-d:])).to(p.dtype)
            spread = ((p - p.mean(0)).square() * window).flatten(2).sum(-1).double() / window.sum().clamp_min(1e-9)
            rows.append(torch.stack([both.miss, both.chance, spread]))
        return torch.stack(rows)

    def seen(self, elements: Tensor) -> Tensor:
        """Share of the window that still has its source inside the patch, `(M,)`."""
        shapes = tuple(self.criterion.p.shape[3:]), tuple(self.x.shape[3:])
        whole = self.problem.window(shapes[0]).sum()
        return torch.stack([self.problem.window(shapes[0], g, shapes[1]).sum() / whole for g in elements])

    def misses(self, elements: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, int]:
        """For elements `(M, p + 1, n, n)`: inner products of misses, what moves, and the number of values.

        Products are those of the first miss and of the differences of the others from it, `(M, p + 1, p + 1)`;
        what moves is a sum of squares, `(M, p + 1)`.
        """
        x, p, problem = self.x, self.criterion.p, self.problem
        shapes = tuple(p.shape[3:]), tuple(x.shape[3:])
        products, moves, count = [], [], 0
        for near in elements:
            rows, moved = [], []
            for g in near:
                with torch.no_grad():
                    left, right = problem.psi(problem.action.on_input(g, x)), problem.action.on_output(g, p)
                mask = problem.window(shapes[0], g, shapes[1]).to(left.dtype)
                root = (mask / mask.mean().clamp_min(1e-9)).sqrt()
                moved.append(((left - p) * root).double().square().sum() + ((right - p) * root).double().square().sum())
                rows.append((((left - right) * root).flatten(2) * weights[:, None].to(left.dtype)).flatten().double())
            count = len(rows[0])
            stack = torch.stack([rows[0], *(row - rows[0] for row in rows[1:])])
            products.append(stack @ stack.mT)
            moves.append(torch.stack(moved))
        return torch.stack(products), torch.stack(moves), count


def _ask(block: Shared[Block], method: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(block.value, method)(*arguments)


class ChartCriterion:
    """`FiniteCriterion` for all charts of a problem: the same questions, answered block by block.

    Arguments:
        problem: The map, the action and the window.
        index: Numbers of the samples, `(B,)`.
        sizes: The sizes |t|; both signs are used.
        coverage: Weighs the sizes by how far moved inputs are still where the predictor was fitted.
    """

    def __init__(
        self,
        problem: Problem,
        index: Tensor,
        sizes: tuple[float, ...] = (0.3, 0.6, 1.0, 1.5),
        coverage: Coverage | None = None,
    ) -> None:
        self.problem, self.index, self.coverage = problem, index, coverage
        self.steps = torch.tensor([s * t for t in sizes for s in (1.0, -1.0)], dtype=torch.float64)
        self.ranges = problem.blocks()
        self.blocks = [Shared(Block(problem.part(r), index, sizes)) for r in self.ranges]

    def few(self, samples: int, sizes: tuple[float, ...]) -> ChartCriterion:
        """The same on the first samples."""
        return ChartCriterion(self.problem, self.index[:samples], sizes, self.coverage)

    def _all(self, method: str, *arguments: Any) -> list[Any]:
        """Answers of every block to one question; arguments are for all, or a list with one for each."""
        each = [tuple(a[i] if isinstance(a, _Each) else a for a in arguments) for i in range(len(self.blocks))]
        tasks = [(block, method, given) for block, given in zip(self.blocks, each, strict=True)]
        answers = []
        for i, answer in enumerate(current_workers().stream(_ask, tasks, [About(r) for r in self.ranges], quick=True)):
            answers.append(answer)
            if i >= _LIVE:
                self.blocks[i].value.close()
        return answers

    def errors(self, a: Tensor, sizes: Tensor) -> Tensor:
        """Error of every sample and chart, with shape `(B, K)`."""
        given = [a] if a.ndim == 2 else _Each([a[r.start : r.stop]] for r in self.ranges)
        return torch.cat([answer[0] for answer in self._all("errors", given, [sizes])], dim=1)

    def errors_of(self, generators: Sequence[Tensor], sizes: Sequence[Tensor]) -> list[Tensor]:
        """Errors of several generators asked together, each `(B, K)`."""
        answers = self._all("errors", list(generators), list(sizes))
        return [torch.cat(parts, dim=1) for parts in zip(*answers, strict=True)]

    def linearise(self, a: Tensor, directions: Tensor, sizes: Tensor) -> Linearised:
        """First-order model of the errors around `a` along `directions` `(s, n, n)` or `(s, K, n, n)`."""
        here = a if a.ndim == 2 else _Each(a[r.start : r.stop] for r in self.ranges)
        along = directions if directions.ndim == 3 else _Each(directions[:, r.start : r.stop] for r in self.ranges)
        answers = self._all("linearise", here, along, sizes)
        return Linearised(*(torch.cat([getattr(m, n) for m in answers], 1) for n in ("error", "slope", "curve")))

    def apart(self, start: Tensor, subspace: Tensor, sizes: Tensor, *, iterations: int) -> Tensor:
        """The best generator of every chart near `start`, inside a subspace `(s, n, n)`, with shape `(K, n, n)`."""
        return torch.cat(self._all("apart", start, subspace, sizes, iterations))

    def measure(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Miss and chance of every size, sample and chart, each with shape `(T, B, K)`."""
        miss, chance = torch.cat(self._all("measure", a), dim=-1)
        return miss, chance

    def drift(self, elements: Tensor) -> Tensor:
        """How far inputs that `(M, n, n)` move leave the data, `(M, 3, B, K)`."""
        assert self.coverage is not None
        return torch.cat(self._all("drift", elements, _Each(self.coverage.shared(self.ranges))), dim=-1)

    def coverages(self, generators: Sequence[Tensor]) -> Tensor:
        """Coverage of every size for several generators, with shape `(G, T)`."""
        assert self.coverage is not None
        scores = [self.coverage.score(d) for d in self.drift(self._motions(generators).flatten(0, 1))]
        return torch.tensor(scores, dtype=torch.float64).reshape(-1, len(self.steps))

    def _motions(self, generators: Sequence[Tensor]) -> Tensor:
        """The group elements at all sizes, `(G, T, n, n)`."""
        return torch.matrix_exp(self.steps[:, None, None] * torch.stack(list(generators))[:, None])

    def evidence(self, generators: Sequence[Tensor]) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor, Tensor]]]:
        """Variance of the outputs `(K,)`, and for generators asked together four things.

        These are miss, chance, coverages `(T,)`, and what there and back miss.
        """
        if not generators:
            return self.variance(), []
        assert self.coverage is not None
        shared, score = self.coverage.shared(self.ranges), self.coverage.score
        answers = self._all("evidence", list(generators), list(self._motions(generators)), _Each(shared))
        rows = []
        for parts in zip(*(rows for _, rows in answers), strict=True):
            measured, drift, back = (torch.cat(kind, dim=-1) for kind in zip(*parts, strict=True))
            coverages = torch.tensor([score(d) for d in drift], dtype=torch.float64)
            rows.append((measured[0], measured[1], coverages, back))
        return torch.cat([variance for variance, _ in answers]), rows

    def size_weights(self, a: Tensor) -> Tensor:
        """Weights of the sizes for one generator, with shape `(T,)`, sum 1."""
        return self.size_weights_of([a])[0]

    def size_weights_of(self, generators: Sequence[Tensor]) -> Tensor:
        """Weights of the sizes for several generators, `(G, T)`."""
        if self.coverage is None:
            return torch.full((len(generators), len(self.steps)), 1 / len(self.steps), dtype=torch.float64)
        return weigh_sizes(self.coverages(generators))

    def variance(self) -> Tensor:
        """Variance of the outputs of every chart, `(K,)`."""
        return torch.cat(self._all("variance"))

    def there_and_back(self, a: Tensor) -> Tensor:
        """Half of what a motion and its inverse together miss, at every size, `(T, K)`."""
        return torch.cat(self._all("there_and_back", a), dim=-1)

    def elements(self, elements: Tensor) -> Tensor:
        """Miss, chance and spread for group elements, `(M, 3, B, K)`."""
        return torch.cat(self._all("elements", elements), dim=-1)

    def element_evidence(self, elements: Tensor) -> tuple[Tensor, list[float]]:
        """The same for group elements, `(M, 3, B, K)`, and the coverage of each."""
        assert self.coverage is not None
        answers = self._all("element_evidence", elements, _Each(self.coverage.shared(self.ranges)))
        sides, drift = (torch.cat(parts, dim=-1) for parts in zip(*answers, strict=True))
        return sides, [self.coverage.score(d) for d in drift]

    def seen(self, elements: Tensor) -> Tensor:
        """Share of the window that still has its source inside the patch, `(M,)`; the same for all charts."""
        return self.blocks[0].value.seen(elements)

    def misses(self, elements: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, int]:
        """Sums over all charts of what `Block.misses` gives; `weights` are those of the charts, `(K,)`."""
        answers = self._all("misses", elements, _Each(weights[r.start : r.stop] for r in self.ranges))
        products, moved, counts = zip(*answers, strict=True)
        return torch.stack(products).sum(0), torch.stack(moved).sum(0), sum(counts)


class _Each(list[Any]):
    """Arguments of which every block has its own."""
