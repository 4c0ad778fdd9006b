"""The default search: first order in closed form, then finite size, with the dimension found."""

from __future__ import annotations

__all__ = ["SpectralSearch"]

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery import gram
from atlasd.discovery.blocks import ChartCriterion
from atlasd.discovery.coverage import Coverage
from atlasd.discovery.problem import Problem
from atlasd.discovery.refine import FLOOR, minimise, pooled, scaled
from atlasd.discovery.search import Found
from atlasd.discovery.support import find_cone, onto_cone, stabiliser
from atlasd.discovery.values import search_values
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_COARSE = (0.6, 1.5)
"""Sizes for the first steps."""
_FAN = 24
"""Directions that are tried in a plane of candidates."""
_ROUNDS = 3
"""How often charts that stand apart are looked for: while the worst bend the answer, good ones miss it too."""
_ASKED = 8
"""Charts whose own generators are tried on all others, where some stand apart."""
_NEARBY = 0.1
"""How far, relative to its norm, a sharp predictor may move a generator: what is biased, not another one."""


@dataclass(frozen=True, kw_only=True)
class SpectralSearch:
    """Generators from a generalised eigenproblem, confirmed and refined at finite size.

    Arguments:
        tolerance: The largest error that counts as a symmetry, on the scale where 0 is exact and 1 is chance.
        generators: The number of generators, or `None` to find it.
        candidates: First-order error below which a direction is looked at again at finite size.
        sizes: Finite sizes |t|, for generators of operator norm 1.
        samples: Samples for finite size on fields.
        gram_samples: The most samples for first order.
        starts: Random starts where first order tells nothing.
        derivatives: Whether the map's derivatives mean something. `False` asks no first order on fields and
            searches by values alone, for networks that were fitted to classes.
        judged: Sizes |t| at which the verdict is asked on fields; the usual ones by default. Fewer is a smaller claim.
        judged_samples: Held-out samples that the verdict looks at on fields; more make its bounds narrower.
    """

    tolerance: float = 0.05
    generators: int | None = None
    candidates: float = 0.35
    sizes: tuple[float, ...] = (0.3, 0.6, 1.0, 1.5)
    samples: int = 40
    gram_samples: int = 4096
    starts: int = 16
    derivatives: bool = True
    judged: tuple[float, ...] | None = None
    judged_samples: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.tolerance < 1:
            raise InputError(f"`tolerance` must lie between 0 and 1, got {self.tolerance}.")
        if self.generators is not None and self.generators < 0:
            raise InputError(f"`generators` must not be negative, got {self.generators}.")

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """Proposes a basis that is closed under the bracket."""
        if problem.is_field and not self.derivatives:
            return self._by_values(problem, seed=seed, progress=progress)
        limit = min(self.gram_samples, 128) if problem.is_field else self.gram_samples
        batch = 16 if problem.is_field else 512
        shards = 4 if problem.is_field else 16
        sums = gram.accumulate(problem, "search", limit=limit, batch=batch, shards=shards, progress=progress)
        weights = problem.chart_weights()
        residual, chance = sums.total()
        residual_sum, chance_sum = gram.pool(residual, chance, weights)
        if problem.cone is not None:
            return self._on_cone(problem.cone, residual_sum, chance_sum)
        values, directions, blind = gram.solve(residual_sum, chance_sum)
        if problem.is_field:
            hints = _chart_hints(residual, chance, weights)
            return self._on_fields(problem, values, directions, blind, hints, seed=seed, progress=progress)
        basis, notes = self._first(values, directions)
        return Found(_kept(problem, basis), tuple(values.tolist()), notes=notes, not_testable=len(blind))

    def _first(self, values: Tensor, directions: Tensor) -> tuple[Tensor, tuple[str, ...]]:
        """The algebra of the directions within the tolerance, or of as many as are asked for."""
        n = round(directions.shape[-1] ** 0.5)
        count = int((values < self.tolerance).sum()) if self.generators is None else self.generators
        return closed(directions[:count].reshape(-1, n, n), fixed=self.generators is not None)

    def _on_cone(self, cone: Tensor, residual: Tensor, chance: Tensor) -> Found:
        """First order among the motions that keep the cone on which all data lie."""
        span = stabiliser(cone)
        values, inside, blind = gram.solve(span @ residual @ span.mT, span @ chance @ span.mT)
        basis, notes = self._first(values, inside @ span)
        beside = len(cone) ** 2 - len(span)
        notes = (*notes, f"all vectors lie on a cone, and {beside} directions lead off it, where nothing was fitted")
        return Found(basis, tuple(values.tolist()), notes=notes, not_testable=len(blind))

    def _by_values(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """Finite size alone, without derivatives."""
        n = problem.size
        found, _ = search_values(
            problem,
            sizes=self.sizes,
            samples=self.samples,
            starts=self.starts,
            limit=self.tolerance if self.generators is None else None,
            most=n * n if self.generators is None else min(self.generators, n * n),
            seed=seed,
            progress=progress,
        )
        basis = torch.stack(found) if found else torch.zeros(0, n, n, dtype=torch.float64)
        basis, notes = closed(basis, fixed=self.generators is not None)
        return Found(basis, notes=notes, sizes=self.judged, samples=self.judged_samples)

    def _on_fields(
        self,
        problem: Problem,
        values: Tensor,
        directions: Tensor,
        blind: Tensor,
        hints: Tensor,
        *,
        seed: int,
        progress: Progress,
    ) -> Found:
        """Finite size decides: deflation inside the span of the first-order candidates."""
        n = problem.size
        # First order ties what finite size separates, and is noise where a predictor's derivatives are; and one
        # chart that stands apart spoils the pooled first order, but not the geometric mean at finite size.
        near = directions[values < self.candidates]
        blurred = len(near) == 0 or (problem.charts > 1 and float(values[0]) > 0.1)
        everything = _orthonormal(directions).reshape(-1, n, n)
        span = everything if blurred else _orthonormal(near).reshape(-1, n, n)
        index, known = problem.search[: self.samples], problem.search[:64]
        cover = Coverage.of(problem, known)
        criterion = ChartCriterion(problem, index, self.sizes, cover)
        weights = problem.chart_weights()
        found: list[Tensor] = []
        own: Tensor | None = None
        wanted = len(everything) + 1 if self.generators is None else min(self.generators, len(span))
        generator = stream(seed, "search", "starts")
        whole = weights, cover, criterion
        for _ in progress.track(range(wanted), "finite size"):
            rest = _complement(span, found)
            if len(rest) == 0:
                break
            ways = hints if blurred else hints[:0]
            a, errors, sizes = self._descent(criterion, rest, weights, generator, ways)
            if not found and len(weights) > 1:
                for turn in range(_ROUNDS):
                    lone = problem.apart(errors.exp()) & (weights > 0)
                    if turn == 0 and bool(lone.any()):
                        # They have bent the pooled first order too, and with it the span of the candidates.
                        span, ways, rest = everything, hints, _complement(everything, found)
                        a, errors = self._agreed(problem, criterion, a, rest, weights)
                        lone = problem.apart(errors.exp()) & (weights > 0)
                    lone = _worst(lone, errors)
                    left = int(((weights > 0) & ~lone).sum())
                    if not bool(lone.any()) or 2 * left < len(weights):  # those that stay are to be half of all
                        break
                    weights = torch.where(lone, 0.0, weights)
                    cover = Coverage.of(problem, known, (weights > 0).nonzero().flatten())
                    criterion = ChartCriterion(problem, index, self.sizes, cover)
                    # What they bent is too far off to go on from there alone.
                    ways = torch.cat([ways, a.flatten()[None]])
                    a, errors, sizes = self._descent(criterion, rest, weights, generator, ways)
                own = criterion.few(12, self.sizes).apart(a, rest, sizes, iterations=3)
            if self.generators is None and float(errors.exp() @ weights / weights.sum()) > 2 * self.tolerance + FLOOR:
                if found or len(span) == len(everything):
                    break
                # Where data lie along a few directions, first order may point the wrong way.
                span, blurred, own = everything, True, None
                weights, cover, criterion = whole
                continue
            if not found:
                index = self._covered(problem, cover, a)
                criterion = ChartCriterion(problem, index, self.sizes, cover)
            # The candidates led here; the last steps may leave their span, which first order knows only roughly.
            if not found or len(span) < len(everything):
                a, _ = minimise(criterion, a, _complement(everything, found), weights, iterations=4)
            found.append(a)
        if problem.sharp is not None and found:
            found = self._sharpened(ChartCriterion(problem.sharp, index, self.sizes, cover), found, everything, weights)
        basis = torch.stack(found) if found else torch.zeros(0, n, n, dtype=torch.float64)
        basis, notes = closed(basis, fixed=self.generators is not None)
        if blurred:
            notes = (*notes, "first order told nothing; finite size alone decided")
        return Found(
            basis,
            tuple(values.tolist()),
            chart_basis=None if own is None else own.unsqueeze(1),
            notes=notes,
            weights=weights,
            not_testable=len(blind),
            sizes=self.judged,
            samples=self.judged_samples,
        )

    def _sharpened(
        self, criterion: ChartCriterion, found: list[Tensor], everything: Tensor, weights: Tensor
    ) -> list[Tensor]:
        """The same generators after a few steps by the predictor's sharp twin, those that it confirms."""
        for i, a in enumerate(found):
            moved, errors = minimise(
                criterion, a, _complement(everything, found[:i] + found[i + 1 :]), weights, iterations=6
            )
            confirmed = float(errors.exp() @ weights / weights.sum()) <= 2 * self.tolerance + FLOOR
            if confirmed and float((moved - a).norm()) < _NEARBY * float(a.norm()):
                found = [*found[:i], moved, *found[i + 1 :]]
        return found

    def _covered(self, problem: Problem, cover: Coverage, a: Tensor) -> Tensor:
        """Of three times as many samples, the numbers of those that the largest turn along `a` leaves with the data."""
        pool = problem.search[: 3 * self.samples]
        drift = ChartCriterion(problem, pool, self.sizes, cover).drift(torch.matrix_exp(max(self.sizes) * a)[None])
        return pool[cover.best_of(drift[0], self.samples)]

    def _agreed(
        self, problem: Problem, criterion: ChartCriterion, a: Tensor, span: Tensor, weights: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Of `a` and some charts' own generators, the one that the most charts share, and the errors of all there.

        Charts are counted: the weight of one that stands apart may be larger than that of all the others.
        """
        few = criterion.few(12, self.sizes)
        own = few.apart(a, span, few.size_weights(a), iterations=6)
        trials = [a, *own[weights.argsort(descending=True)[:_ASKED]]]
        asked = few.errors_of(trials, list(few.size_weights_of(trials)))
        errors = [(e + FLOOR).log().mean(0) for e in asked]
        ranks = [
            (int((problem.apart(e.exp()) & (weights > 0)).sum()), float(e @ weights / weights.sum())) for e in errors
        ]
        best = min(range(len(trials)), key=ranks.__getitem__)
        return trials[best], errors[best]

    def _descent(
        self, criterion: ChartCriterion, span: Tensor, weights: Tensor, generator: torch.Generator, hints: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """From the best start: a generator, its mean logarithm of the error in every chart, and weights of sizes."""
        few = criterion.few(12, _COARSE)
        start, sizes = self._start(few, span, weights, generator, hints)
        start, _ = minimise(few, start, span, weights, iterations=6, sizes=sizes)
        sizes = criterion.size_weights(start)
        return *minimise(criterion, start, span, weights, iterations=3, sizes=sizes), sizes

    def _start(
        self, few: ChartCriterion, span: Tensor, weights: Tensor, generator: torch.Generator, hints: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The best of the axes of the span, their sums and differences, hints of charts, and random directions.

        With it come the weights of its sizes. Of a plane, which first order often leaves open, all directions: from far
        off a descent does not find the way, since what it crosses is not covered by data.
        """
        s = len(span)
        mixes = [torch.eye(s, dtype=torch.float64)]
        if s == 2:
            angles = torch.arange(_FAN, dtype=torch.float64) * (math.pi / _FAN)
            mixes = [torch.stack([angles.cos(), angles.sin()], dim=-1), hints @ span.flatten(1).mT]
        elif s > 1:
            random = torch.randn(self.starts if len(hints) else 4, s, generator=generator, dtype=torch.float64)
            i, j = torch.triu_indices(s, s, 1)
            eye = mixes[0]
            mixes += [eye[i] + eye[j], eye[i] - eye[j], random, hints @ span.flatten(1).mT]
        combined = torch.einsum("ms,sij->mij", torch.cat(mixes), span)
        trials = [scaled(a) for a in combined if float(a.norm()) > 1e-6]
        sizes = list(few.size_weights_of(trials))
        scores = [float(pooled(e, weights)) for e in few.errors_of(trials, sizes)]
        best = min(range(len(trials)), key=scores.__getitem__)
        return trials[best], sizes[best]


def _kept(problem: Problem, basis: Tensor) -> Tensor:
    """The same algebra, moved a little so that it keeps the cone to which a fitted map's vectors come near, if any.

    A symmetry of data takes them to where data are. Where these lie is known far better than a fitted map.
    """
    if problem.train is None or not len(basis):
        return basis
    cone = find_cone(problem, afar=True)
    return basis if cone is None else closed(onto_cone(cone, basis, near=_NEARBY), fixed=True)[0]


def _chart_hints(residual: Tensor, chance: Tensor, weights: Tensor, charts: int = 6) -> Tensor:
    """The two best first-order directions of the most reliable charts, and their sums and differences."""
    rows = []
    for k in weights.argsort(descending=True)[:charts].tolist():
        _, directions, _ = gram.solve(residual[k], chance[k])
        if len(directions) > 1:
            a, b = directions[0], directions[1]
            rows += [a, b, a + b, a - b]
    return torch.stack(rows) if rows else residual.new_zeros(0, residual.shape[-1])


def _worst(lone: Tensor, errors: Tensor) -> Tensor:
    """Of the charts that stand apart `(K,)`, those that come near the largest mean logarithm of the error."""
    worst = errors.masked_fill(~lone, -math.inf).max()
    return lone & (errors > worst - math.log(2))


def _orthonormal(rows: Tensor) -> Tensor:
    q, _ = torch.linalg.qr(rows.mT)
    return q.mT


def _complement(span: Tensor, found: list[Tensor]) -> Tensor:
    """Orthonormal basis of the part of `span` orthogonal to what was found."""
    if not found:
        return span
    frame = span.flatten(1)
    taken = _orthonormal(torch.stack(found).flatten(1))
    _, s, v = torch.linalg.svd(frame - frame @ taken.mT @ taken, full_matrices=False)
    return v[s > 1e-6].reshape(-1, *span.shape[1:])


def closed(basis: Tensor, *, fixed: bool = False, near: float = 0.25) -> tuple[Tensor, tuple[str, ...]]:
    """The largest algebra that the leading generators span, moved to exact closure.

    Arguments:
        basis: Candidates, best first, with shape `(k, n, n)`.
        fixed: Keeps the span as it is.
        near: Closure error beyond which a span is not taken for a noisy algebra.
    """
    notes: tuple[str, ...] = ()
    for k in range(len(basis), 0, -1):
        algebra = LieAlgebra(basis[:k])
        if fixed or k == 1 or algebra.closure_error() < 1e-9:
            return algebra.basis, notes
        if algebra.closure_error() < near:
            moved = algebra.nearest_algebra()
            if moved.dimension == k and moved.closure_error() < 1e-3 and moved.distance(algebra) < near:
                return moved.basis, notes
        notes = ("some candidates were dropped: their brackets leave the span",)
    return basis[:0], notes
