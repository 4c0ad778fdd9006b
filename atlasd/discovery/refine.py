"""Finite size: the criterion at |t| from 0.3 upwards, and Gauss-Newton on it, charts together or apart."""

from __future__ import annotations

__all__ = ["FLOOR", "Criterion", "FiniteCriterion", "Frozen", "minimise", "scaled", "weigh_sizes"]

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from atlasd.discovery.coverage import Coverage
from atlasd.discovery.problem import Problem

FLOOR = 3e-4
"""Errors below this are interpolation; they do not count as better."""
ENOUGH = 1e-3
"""Gain in the mean logarithm of the error below which a descent ends."""


def scaled(a: Tensor) -> Tensor:
    """Generators `(*, n, n)` with operator norm 1: a rotation's t is then its angle in radians."""
    return a / torch.linalg.matrix_norm(a, ord=2)[..., None, None].clamp_min(1e-300)


@dataclass(frozen=True, eq=False)
class Linearised:
    """Value and first-order model of the error of every sample and chart.

    Arguments:
        error: With shape `(B, K)`.
        slope: With shape `(B, K, s)`.
        curve: Gauss-Newton second derivative, `(B, K, s, s)`.
    """

    error: Tensor
    slope: Tensor
    curve: Tensor


@dataclass(frozen=True, eq=False)
class Frozen:
    """What a search by values holds fixed while it compares generators near each other.

    The chance level has a slope of its own across generators, and a choice of signs or samples that follows the errors
    rewards generators for luck; held fixed, all three leave the comparison alone.

    Arguments:
        levels: Chance of every size, sample and chart, as errors are divided by it, `(T, B, K)`.
        backwards: Whether the second sign of the sizes is better for a sample and chart, `(B, K)`. Of the two ways to
            move a sample from the edge of the data, one leads back among them.
        counted: Which samples and charts count, `(B, K)`.
    """

    levels: Tensor
    backwards: Tensor
    counted: Tensor


class FiniteCriterion:
    """The chance-normalised error of `exp(t A)` on a fixed set of samples.

    Arguments:
        problem: The map, the action and the window.
        x: Inputs, with shape `(B, K, *in)`.
        sizes: The sizes |t|; both signs are used. A quarter turn is among them: it takes a grid to itself.
        coverage: Weighs the sizes by how far moved inputs are still where the predictor was fitted.
    """

    def __init__(
        self,
        problem: Problem,
        x: Tensor,
        sizes: tuple[float, ...] = (0.3, 0.6, 1.0, 1.5),
        coverage: Coverage | None = None,
    ) -> None:
        self.problem, self.x, self.coverage = problem, x, coverage
        self.steps = torch.tensor([s * t for t in sizes for s in (1.0, -1.0)], dtype=torch.float64)
        with torch.no_grad():
            self.p = problem.psi(x)

    def _sides(self, a: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Windowed miss and motions for generators `(n, n)` or `(K, n, n)`, each `(B, K, Q)`."""
        problem = self.problem
        g = torch.matrix_exp(t * a)
        g = g if g.ndim == 2 else g.unsqueeze(0)  # (1, K, n, n): shared by the samples of a chart
        with torch.no_grad():
            left = problem.psi(problem.action.on_input(g, self.x))
            right = problem.action.on_output(g, self.p)
        p = self.p
        if problem.is_field:
            d = problem.size
            mask = problem.window(tuple(left.shape[-d:]), g, tuple(self.x.shape[-d:])).to(left.dtype)
            root = (mask / mask.flatten(-d).sum(-1)[(..., *([None] * d))].clamp_min(1e-9)).sqrt()
            root = root if g.ndim == 2 else root.unsqueeze(2)
            left, right, p = left * root, right * root, p * root
        return (left - right).flatten(2), (left - p).flatten(2), (right - p).flatten(2)

    def size_weights(self, a: Tensor) -> Tensor:
        """Weights of the sizes for one generator, with shape `(T,)`, sum 1."""
        if self.coverage is None:
            return torch.full_like(self.steps, 1 / len(self.steps))
        with torch.no_grad():
            moved = (self.problem.action.on_input(torch.matrix_exp(t * a), self.x) for t in self.steps)
            weights = torch.tensor([self.coverage(m) for m in moved], dtype=torch.float64)
        return weigh_sizes(weights)

    def measure(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """Miss and chance of every size, sample and chart, each with shape `(T, B, K)`."""
        rows = [self._sides(a, t) for t in self.steps]
        miss = torch.stack([_square(r) for r, _, _ in rows])
        return miss, torch.stack([_square(u) + _square(v) for _, u, v in rows])

    def errors(self, a: Tensor, sizes: Tensor) -> Tensor:
        """Error of every sample and chart, with shape `(B, K)`: the weighted mean over sizes."""
        total: Tensor | None = None
        for t, weight in self._counting(sizes):
            r, u, v = self._sides(a, t)
            error = weight * _square(r) / self._level(_square(u) + _square(v))
            total = error if total is None else total + error
        assert total is not None
        return total

    def freeze(self, a: Tensor, share: float) -> Frozen:
        """What a search by values holds fixed around one generator.

        Arguments:
            a: The generator.
            share: Share of the samples of every chart that count, those with the smallest errors.
        """
        miss, chance = self.measure(a)
        levels = torch.stack([self._level(c) for c in chance])
        errors = (miss / levels).unflatten(0, (-1, 2))  # (sizes, 2, B, K)
        backwards = errors[:, 1].sum(0) < errors[:, 0].sum(0)
        nearer = torch.where(backwards, errors[:, 1], errors[:, 0]).mean(0)
        last = nearer.sort(dim=0).values[max(round(share * len(nearer)), 1) - 1]
        return Frozen(levels, backwards, nearer <= last)

    def nearer_errors(self, a: Tensor, frozen: Frozen) -> Tensor:
        """Error of every sample and chart, `(B, K)`, at that sign of the sizes that is better for the sample.

        This is for searches only: a verdict must take both signs.
        """
        problem, back = self.problem, frozen.backwards
        where = back[(..., *([None] * (self.x.ndim - 2)))]
        total = torch.zeros(back.shape, dtype=torch.float64)
        d, count = problem.size, len(self.steps) // 2
        with torch.no_grad():
            for k in range(count):
                g = [torch.matrix_exp(t * a) for t in self.steps[2 * k : 2 * k + 2]]
                ahead, behind = (problem.action.on_input(m, self.x) for m in g)
                left = problem.psi(torch.where(where, behind, ahead))
                ahead, behind = (problem.action.on_output(m, self.p) for m in g)
                side = back[(..., *([None] * (left.ndim - 2)))]
                square = (left - torch.where(side, behind, ahead)).square()
                if problem.is_field:
                    masks = [problem.window(tuple(left.shape[-d:]), m, tuple(self.x.shape[-d:])) for m in g]
                    shares = [(m / m.sum().clamp_min(1e-9)).to(left.dtype) for m in masks]
                    square = square * torch.where(side, shares[1], shares[0])
                miss = square.flatten(2).double().sum(-1)
                total += miss / torch.where(back, frozen.levels[2 * k + 1], frozen.levels[2 * k])
        return total / count

    def _counting(self, sizes: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Steps and weights of the sizes that count: those that nothing covers are not worth their time."""
        keep = sizes > 0.01 * sizes.max()
        return list(zip(self.steps[keep], sizes[keep] / sizes[keep].sum(), strict=True))

    @staticmethod
    def _level(chance: Tensor) -> Tensor:
        # A sample that hardly moves is measured against the others, not against its own noise.
        return chance.clamp_min(1e-300) + 0.1 * chance.mean(-2, keepdim=True)

    def linearise(self, a: Tensor, directions: Tensor, sizes: Tensor, step: float = 1e-3) -> Linearised:
        """First-order model of the errors around `a` along `directions` `(s, n, n)` or `(s, K, n, n)`."""
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        for t, weight in self._counting(sizes):
            r, u, v = self._sides(a, t)
            moved = [self._sides(a + step * e, t) for e in directions]
            dr, du, dv = (
                torch.stack([(m[i] - here) / step for m in moved]) for i, here in enumerate((r, u, v))
            )  # (s, B, K, Q)
            level = self._level(_square(u) + _square(v))
            rho = _square(r) / level
            slope = 2 * _inner(dr, r) - rho.unsqueeze(-1) * 2 * (_inner(du, u) + _inner(dv, v)) / 1.1
            # The chance level curves too, but dropping that keeps the model convex; the line search sees the truth.
            curve = 2 * torch.einsum("ibkq,jbkq->bkij", dr, dr).double()
            parts.append((weight * rho, weight * slope / level[..., None], weight * curve / level[..., None, None]))
        return Linearised(*(torch.stack([p[i] for p in parts]).sum(0) for i in range(3)))


def weigh_sizes(coverages: Tensor) -> Tensor:
    """Weights `(*, T)` with sum 1 from the coverages of sizes."""
    weights = coverages.pow(4) + 1e-6  # a size that nothing covers still breaks ties
    return weights / weights.sum(-1, keepdim=True)


class Criterion(Protocol):
    """What a descent asks: `FiniteCriterion`, or the same for blocks of charts."""

    def size_weights(self, a: Tensor) -> Tensor:
        """Weights of the sizes for one generator, `(T,)`."""

    def errors(self, a: Tensor, sizes: Tensor) -> Tensor:
        """Error of every sample and chart, `(B, K)`."""

    def linearise(self, a: Tensor, directions: Tensor, sizes: Tensor) -> Linearised:
        """First-order model of the errors."""


def _square(z: Tensor) -> Tensor:
    return z.double().square().sum(-1)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return torch.einsum("ibkq,bkq->bki", left, right).double()


def pooled(errors: Tensor, weights: Tensor) -> Tensor:
    """Mean logarithm of the errors `(B, K)` over samples and charts.

    The geometric mean: neither a chart on which nothing commutes nor a sample that was moved to where the
    predictor has never been can bend the answer.
    """
    return (errors + FLOOR).log().mean(0) @ weights / weights.sum()


def minimise(
    criterion: Criterion,
    start: Tensor,
    subspace: Tensor,
    weights: Tensor,
    *,
    apart: bool = False,
    iterations: int = 12,
    sizes: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Damped Gauss-Newton on the chance-normalised error, inside a subspace of generators.

    Arguments:
        criterion: The finite criterion.
        start: Generator `(n, n)`.
        subspace: Orthonormal generators that span the search space, with shape `(s, n, n)`.
        weights: Weights of the charts, `(K,)`.
        apart: Whether every chart has its own generator.
        iterations: The most steps.
        sizes: Weights of the sizes, where they are known already.

    Returns:
        The generator `(n, n)` or generators `(K, n, n)` of operator norm 1, and the mean logarithm of the error
        of every chart, `(K,)`.
    """
    s, n = len(subspace), start.shape[-1]
    frame = subspace.flatten(1)  # (s, n^2)
    c = frame @ start.flatten().double()
    c = c / c.norm().clamp_min(1e-300)
    c = c.expand(len(weights), s).clone() if apart else c[None]  # (rows, s)

    def matrix(coefficients: Tensor) -> Tensor:
        a = scaled((coefficients @ frame).reshape(-1, n, n))
        return a if apart else a[0]

    if sizes is None:
        sizes = criterion.size_weights(scaled(start.double()))

    def objective(errors: Tensor) -> Tensor:
        return (errors + FLOOR).log().mean(0) if apart else pooled(errors, weights)[None]

    if s == 1 or iterations == 0:
        return matrix(c), (criterion.errors(matrix(c), sizes) + FLOOR).log().mean(0)
    errors: Tensor | None = None
    ahead: Linearised | None = None
    eye = torch.eye(s - 1, dtype=torch.float64)
    damping = torch.full((len(c),), 1e-3, dtype=torch.float64)

    def tangents(at: Tensor) -> Tensor:
        """The scale of a generator is fixed: it moves only along the sphere, whose tangents are `(rows, s - 1, s)`."""
        return torch.linalg.svd(at[:, None, :])[2][:, 1:]

    def linearised(at: Tensor, tangent: Tensor) -> Linearised:
        norm = torch.linalg.matrix_norm((at @ frame).reshape(-1, n, n), ord=2)
        motions = torch.einsum("rij,jm->irm", tangent, frame).reshape(s - 1, -1, n, n) / norm[:, None, None]
        return criterion.linearise(matrix(at), motions if apart else motions[:, 0], sizes)

    for iteration in range(iterations):
        tangent = tangents(c)
        model, ahead = ahead or linearised(c, tangent), None
        errors = model.error
        value = objective(errors)
        level = model.error + FLOOR
        slope = (model.slope / level[..., None]).mean(0)  # (K, s - 1)
        curve = (model.curve / level[..., None, None]).mean(0)
        if not apart:
            share = weights / weights.sum()
            slope, curve = (share @ slope)[None], torch.einsum("k,kij->ij", share, curve)[None]
        scale = curve.diagonal(dim1=-2, dim2=-1).mean(-1).abs().clamp_min(1e-12)
        moved = torch.zeros_like(value, dtype=torch.bool)
        before = value
        for attempt in range(4):
            system = curve + scale[:, None, None] * damping[:, None, None] * eye
            step = -torch.linalg.solve(system, slope.unsqueeze(-1)).squeeze(-1)
            step = step * (0.5 / step.norm(dim=-1, keepdim=True).clamp_min(0.5))
            gain = -(slope * step).sum(-1) - 0.5 * torch.einsum("ri,rij,rj->r", step, curve, step)
            hopeful = ~moved & (gain > ENOUGH)
            if not bool(hopeful.any()):
                break
            trial = torch.where(hopeful[:, None], c + torch.einsum("rij,ri->rj", tangent, step), c)
            trial = trial / trial.norm(dim=-1, keepdim=True)
            if not apart and attempt == 0 and iteration + 1 < iterations:
                # Most steps are good: the model around the new place is asked for at once, and tells the error too.
                next_model = linearised(trial, tangents(trial))
                tried = next_model.error
            else:
                next_model, tried = None, criterion.errors(matrix(trial), sizes)
            new = objective(tried)
            better = (new < value) & hopeful
            damping = torch.where(better, damping * 0.2, torch.where(hopeful, damping * 8, damping)).clamp(1e-8, 1e6)
            c = torch.where(better[:, None], trial, c)
            value = torch.where(better, new, value)
            errors = torch.where(better, tried, errors)
            moved |= better
            if bool(moved.all()):
                ahead = next_model
                break
        if float((before - value).max()) < ENOUGH:
            break
    assert errors is not None
    return matrix(c), (errors + FLOOR).log().mean(0)
