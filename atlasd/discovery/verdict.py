"""The verdict: one procedure for generators and elements, vectors and fields, functions and data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.coverage import VectorCoverage
from atlasd.discovery.decide import Finding, Measurement, Sensitivity, decide, interpolate, interval, root
from atlasd.discovery.problem import Problem
from atlasd.discovery.residual import Losses, Residual, judging, known_inputs, scaled, sized_pairs
from atlasd.discovery.result import Direction
from atlasd.limits import APART, CLEAR, EXACT, FEWEST, LEVEL, MOST
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_FIELD_SIZES = ((math.pi / 2, 1.0, 0.5, 0.25),)
_VECTOR_SIZES = ((math.pi / 2, 1.0, 0.5), (0.25, 0.125, 0.0625, 0.03125), (4.0, 16.0, 64.0, 256.0, 1024.0))
"""Sizes |t| of generators of operator norm 1: small ones where large ones do not count, huge ones where none does."""
_GROWTH = 1e4
"""Factor by which an element may stretch a vector: beyond, rounding decides what a function says."""
_JUDGED = 3
"""Sizes that are judged: the largest that count."""
_ROUNDING = 1e-4
"""Strength of unrelated transformations below which nothing depends on a direction."""
_VECTORS, _FIELDS = 1024, 128
_FEW = 48
"""Fields for a quick look, and for how much a symmetry of other charts is broken on a chart that was left out."""
_LADDER, _RANDOM = (0.15, 0.35, 0.7, 1.2), 6
_TURNS, _MEMBERS = 60, 8
"""Members of a one-parameter group that are looked at for those that data cover, and the most that are judged."""


class Judge:
    """Judges generators and elements of one problem, all in standard units.

    Arguments:
        weights: Weights of the charts, `(K,)`; 0 for outlier charts.
    """

    def __init__(
        self, problem: Problem, tolerance: float, *, seed: int, progress: Progress, weights: Tensor | None = None
    ) -> None:
        self.problem, self.tolerance, self.seed, self.progress = problem, tolerance, seed, progress
        self.weights = torch.ones(problem.charts, dtype=torch.float64) if weights is None else weights
        self.residual = judging(problem, _FIELDS if problem.is_field else _VECTORS)
        # A function is known beside its samples, too, to which a candidate may have been fitted.
        more = problem.elsewhere(_VECTORS) if len(problem.fold) < _VECTORS else problem
        self._elsewhere = None if more is problem else Residual(more, more.pick(_VECTORS))
        self._rungs: Tensor | None = None
        self._all: Residual | None = None
        self._sensitivity = Sensitivity(problem, self.residual, tolerance, self.weights, progress)

    @property
    def memory(self) -> tuple[Tensor, Tensor | None, list[float] | None]:
        """What earlier questions have settled for later ones: samples that judge, the ladder, sizes of plants."""
        return self.residual.index, self._rungs, self._sensitivity.sizes

    @memory.setter
    def memory(self, kept: tuple[Tensor, Tensor | None, list[float] | None]) -> None:
        index, self._rungs, self._sensitivity.sizes = kept
        if not torch.equal(index, self.residual.index):
            self.residual = Residual(self.problem, index, self.residual.coverage, self.residual.weights)

    @property
    def floor(self) -> float:
        """Strength below which everything is exact: a tenth of the tolerance, or rounding for functions of vectors."""
        return 1e-3 if self.problem.known and not self.problem.is_field else EXACT * self.tolerance

    @property
    def hidden(self) -> float:
        """The largest strength of errors of the map, as `Measurement.hidden`."""
        losses = self.residual.losses(torch.eye(self.problem.size, dtype=torch.float64)[None])
        return 2 * root(float((losses.plain @ self.weights).sum() / (losses.scale @ self.weights).sum()))

    def generators(self, basis: Tensor) -> list[Finding]:
        """Judges generators `(k, n, n)`, each at those finite sizes that data cover and that can tell."""
        groups = self._at_sizes(basis)
        return self._judge([self._counting(group) for group in groups], groups)

    def _at_sizes(self, basis: Tensor) -> list[list[Measurement]]:
        """Trials of each generator `(k, n, n)`, at as many sizes as it takes to judge it."""
        groups: list[list[Measurement]] = [[] for _ in basis]
        for sizes in _FIELD_SIZES if self.problem.is_field else _VECTOR_SIZES:
            enough = 1 if sizes[0] > math.pi / 2 else _JUDGED
            left = [i for i, group in enumerate(groups) if len(self._counting(group)) < enough]
            if left:
                trials = self._trials(sized_pairs(basis[left], sizes, self.problem), sizes * len(left))
                for k, i in enumerate(left):
                    groups[i] += trials[k * len(sizes) : (k + 1) * len(sizes)]
        return groups

    def elements(self, elements: Tensor, basis: Tensor | None = None) -> list[Finding]:
        """Judges group elements `(m, n, n)`, each together with its inverse.

        An element stands for its coset: where data do not cover all of it, every sample is taken by members that leave
        it among the data.

        Arguments:
            basis: Generators `(k, n, n)` of the identity component, which were found to be symmetries.
        """
        if not len(elements):
            return []
        if not self.problem.is_field and len(self.residual.index) > _VECTORS:  # elements are many
            return self._with(residual=self.residual.few(_VECTORS)).elements(elements, basis)
        groups = [[trial] for trial in self._of_elements(elements)]
        if basis is not None and len(basis) and self.residual.coverage is not None:
            for element, group in zip(elements, groups, strict=True):
                if group[0].coverage < 1 - LEVEL:
                    members, likely = self._members(element, basis)
                    joined = Measurement.joined(self._of_elements(members))
                    group[0] = max(group[0], joined, key=lambda t: t.coverage)
                    # Of members that are all like the data, these may determine the map for one and not for another.
                    group += self._of_elements(likely) if self.problem.is_field else []
        return self._judge([self._counting(group) for group in groups], groups)

    def _of_elements(self, elements: Tensor) -> list[Measurement]:
        pairs = torch.stack([elements.double(), torch.linalg.inv(elements.double())], dim=1)
        return self._trials(pairs, (1.0,) * len(elements))

    def lowest(self, elements: Tensor) -> Tensor:
        """A quick look at elements `(m, n, n)`: the least strengths that they may have, `(m,)`."""
        quick = self._with(residual=self.residual.few(_FEW if self.problem.is_field else 256))
        trials = quick._of_elements(elements) if len(elements) else []
        return torch.tensor([root(t.ratio(self.weights) - t.error(self.weights)) for t in trials], dtype=torch.float64)

    def strengths(self, basis: Tensor, samples: int = 256) -> tuple[Tensor, Tensor]:
        """A quick look at generators `(k, n, n)`: the largest strength over sizes that count, and its error, `(k,)`."""
        quick = self._with(residual=self.residual.few(_FEW if self.problem.is_field else samples))
        worst = []
        for group in quick._at_sizes(basis):
            trial = max(quick._counting(group) or group, key=lambda t: t.ratio(self.weights))
            worst.append((trial.ratio(self.weights), trial.error(self.weights) + quick._differing(trial)))
        found = torch.tensor(worst, dtype=torch.float64).clamp_min(0.0).sqrt()
        return found[:, 0], found[:, 1]

    def _differing(self, trial: Measurement) -> float:
        """What a map of vectors has from the accidents of its samples, which is no breaking: a ratio of squares."""
        if self.problem.fits is None or self.problem.is_field:
            return 0.0
        differing = float((self.residual.fit_variance(trial.pair) @ self.weights).sum())
        return max(differing, 0.0) / max(float((trial.scale @ self.weights).sum()), 1e-300)

    def _worse(self, trial: Measurement) -> bool:
        """Whether a map of vectors is clearly worse where samples are taken than where they come from."""
        if self.problem.fits is None or self.problem.is_field:
            return False
        here = self.residual.losses(torch.eye(self.problem.size, dtype=torch.float64)[None]).plain[0]
        return float((trial.plain - trial.covered * here).sum()) > EXACT * float((trial.covered * here).sum())

    def _members(self, element: Tensor, basis: Tensor) -> tuple[Tensor, Tensor]:
        """Members of the coset of an element that together take most samples to where data are, and the next best."""
        angles = torch.arange(_TURNS, dtype=torch.float64) * (2 * math.pi / _TURNS)
        steps = torch.matrix_exp(angles[:, None, None, None] * scaled(basis.double())).flatten(0, 1)
        every = element.double() @ steps
        if self.problem.is_field and self.problem.shifts:  # a chart knows nothing of what is far away
            near = every[:, :-1, -1].norm(dim=1) <= _FIELD_SIZES[0][0]
            every = torch.cat([element.double()[None], every[near]])
        held = self.weights > 0
        rows = self.residual.few(16 if self.problem.is_field else 128).losses(every).covered[..., held].flatten(1)
        left = torch.ones_like(rows[0])
        taken: list[int] = []
        while len(taken) < _MEMBERS and float((gain := rows @ left).max()) >= (0.05 if taken else 0.0) * len(left):
            taken.append(int(gain.argmax()))
            left = left * (1 - rows[taken[-1]])
        return every[taken], every[rows.sum(1).argsort(descending=True)[1:_JUDGED]]

    def holding(self, basis: Tensor, *, every: bool = False) -> Tensor:
        """On which charts the one of some generators `(k, n, n)` that holds on most of them does, `(K,)`.

        Other samples choose than those that judge, as far as there are any.

        Arguments:
            every: Whether all of them must hold.
        """
        count = min(_FIELDS, len(self.problem.fold) // 2)
        index = self.problem.pick(_FIELDS, after=count)
        other = self._with(residual=Residual(self.problem, index, self.residual.coverage))
        best = torch.full((len(self.weights),), every, dtype=torch.bool)
        for group in other._at_sizes(basis):
            counting = other._counting(group)
            if counting:
                excess = torch.stack([t.excess.sum(0) for t in counting])
                scale = torch.stack([t.scale.sum(0) for t in counting])
                most = scale * torch.tensor([self._most(t) ** 2 for t in counting])[:, None]
                if every:
                    # As for the verdict, all sizes must hold; on a chart, those at which data cover enough samples.
                    enough = torch.stack([(t.covered > 0).sum(0) >= FEWEST for t in counting])
                    best &= enough.any(0) & ((excess <= most) | ~enough).all(0)
                    continue
                # Sizes count by how well data cover them: a chart has few samples.
                excess, scale, most = excess.sum(0), scale.sum(0), most.sum(0)
                holds = (most > 0) & (excess <= most)
                # Charts on either side of the tolerance are no outliers: those are of another class.
                square = excess / scale.clamp_min(1e-300)
                near, far = (square[part].median() for part in (holds, ~holds))
                holds &= ~(far <= APART**2 * near.clamp_min(self.floor**2))
                best = max(best, holds, key=lambda held: int(held.sum()))
        if len(self.problem.fold) < 2 * _FIELDS:
            # The samples are too few to choose with some and judge with others: those that chose do not judge.
            self.residual = Residual(self.problem, self.problem.pick(count), self.residual.coverage)
        return best

    def _most(self, trial: Measurement) -> float:
        """The largest strength of a symmetry: within the tolerance, and clearly less than what any step would cost."""
        return min(self.tolerance, MOST * trial.unrelated)

    def on(self, weights: Tensor) -> Judge:
        """The same with other weights of the charts; data of the others say nothing about where data are."""
        residual = Residual(self.problem, self.residual.index, known_inputs(self.problem, weights=weights), weights)
        sensitivity = Sensitivity(self.problem, residual, self.tolerance, weights, self.progress)
        return self._with(weights=weights, residual=residual, _rungs=None, _sensitivity=sensitivity, _all=self.residual)

    def _with(self, **changed: Any) -> Judge:
        other = object.__new__(Judge)
        other.__dict__.update(self.__dict__, **changed)
        return other

    def _trials(self, pairs: Tensor, sizes: Sequence[float]) -> list[Measurement]:
        """Losses of transformations and their inverses, `(m, 2, n, n)`, as trials."""
        growth = torch.linalg.matrix_norm(pairs, ord=2).amax(1)
        wild = growth > _GROWTH
        pairs = torch.where(wild[:, None, None, None], torch.eye(pairs.shape[-1], dtype=torch.float64), pairs)
        losses = self.residual.losses(pairs.flatten(0, 1))
        unrelated = self._unrelated(pairs, losses)
        shape = (len(pairs), 2)
        excess, scale, plain, covered = (
            z.unflatten(0, shape) for z in (losses.excess, losses.scale, losses.covered * losses.plain, losses.covered)
        )
        cost, level = (
            z.unflatten(0, shape).sum((1, 2)) @ self.weights
            for z in (losses.through - losses.plain, losses.null - losses.plain)
        )
        trials = []
        for i, size in enumerate(sizes):
            kept = covered[i] * (self.weights > 0)
            share = float(kept.sum() / max(float((self.weights > 0).sum()) * 2 * kept.shape[1], 1.0))
            share = 0.0 if bool(wild[i]) else share
            count = int((kept.sum((0, 2)) > 0).sum())
            e, d, p = (z[i].sum(0) for z in (excess, scale, plain))
            everywhere = 0.0 if self.problem.is_field else float(cost[i] / level[i].clamp_min(1e-300))
            trials.append(Measurement(pairs[i], e, d, p, kept.sum(0), share, unrelated[i], count, size, everywhere))
        return trials

    def _unrelated(self, pairs: Tensor, losses: Losses) -> list[float]:
        """What unrelated transformations that move the data as far cost, as a strength, for each pair."""
        if self.problem.is_field:
            rungs = self._ladder()
            displaced = losses.displaced.unflatten(0, (len(pairs), 2)).mean(1)
            return [interpolate(rungs, float(d)) for d in displaced]
        outside = self.residual.losses(pairs[:, 0], unrelated=True)
        scale = losses.scale.unflatten(0, (len(pairs), 2))[:, 0].sum((1, 2))
        share = losses.covered.unflatten(0, (len(pairs), 2))[:, 0].mean((1, 2)).clamp_min(1e-9)
        excess = outside.excess.sum((1, 2)) * share
        return (excess / scale.clamp_min(1e-300)).clamp(0.0, 1.0).sqrt().tolist()

    def _ladder(self) -> Tensor:
        """How far fields are moved and what that costs for random transformations, `(R, 2)`, ascending."""
        if self._rungs is None:
            n = self.problem.size
            generator = stream(self.seed, "verdict", "random")
            drawn = torch.randn(_RANDOM, n, n, generator=generator, dtype=torch.float64)
            drawn = scaled(self.problem.ambient.tidy_generators(drawn))
            steps = torch.tensor(_LADDER, dtype=torch.float64)[:, None, None, None]
            losses = self.residual.few(24).losses(torch.matrix_exp(steps * drawn).flatten(0, 1))
            uncovered = replace(losses, covered=torch.ones_like(losses.covered))
            strength = uncovered.strength(self.weights).clamp_max(1.0).unflatten(0, (len(_LADDER), -1))
            displaced = losses.displaced.unflatten(0, (len(_LADDER), -1))
            rows = torch.stack([displaced.mean(1), strength.square().mean(1).sqrt()], dim=-1)
            self._rungs = rows[rows[:, 0].argsort()]
        return self._rungs

    def _counting(self, trials: Sequence[Measurement]) -> list[Measurement]:
        """The largest trials that data cover and that can tell, up to a quarter turn.

        Larger ones are taken only where these cannot tell: an error of a generator grows with the size.
        """
        good = [t for t in trials if t.coverage >= MOST and t.samples >= FEWEST and t.unrelated >= self.tolerance]
        near = [t for t in good if t.size <= math.pi / 2]
        # Smaller ones may be covered worse: waves along two axes are taken to themselves by a quarter turn alone.
        near = [t for t in near if t.coverage >= MOST * near[0].coverage]
        return near[:_JUDGED] if near else good[:1]

    def _judge(
        self, counting: Sequence[Sequence[Measurement]], groups: Sequence[Sequence[Measurement]]
    ) -> list[Finding]:
        """Intervals with Holm's correction, sensitivity where it matters, and the decisions."""
        estimates = [max((t.ratio(self.weights) for t in trials), default=math.inf) for trials in counting]
        ranks = sorted(range(len(estimates)), key=estimates.__getitem__)
        findings: list[Finding | None] = [None] * len(counting)
        for place, i in enumerate(ranks):
            level = LEVEL / (len(ranks) - place)
            findings[i] = self._one(counting[i], groups[i], level)
        return [f for f in findings if f is not None]

    def _one(self, counting: Sequence[Measurement], group: Sequence[Measurement], level: float) -> Finding:
        nan = math.nan
        if not counting:
            best = max(group, key=lambda t: (t.coverage >= MOST, t.unrelated))
            untested = max(t.unrelated for t in group) < _ROUNDING
            decision = "not testable" if untested else "cannot tell"
            if untested:
                reason = "nothing in the data depends on it"
            elif best.coverage < MOST or best.samples < FEWEST:
                reason = f"only {best.coverage:.0%} of the transformed samples lie where data are"
            else:
                reason = "the data do not reach far enough: unrelated transformations of this size cost only "
                reason += f"{best.unrelated:.0%}, less than the tolerance of {self.tolerance:.0%}"
            direction = Direction(nan, nan, nan, nan, best.coverage, decision, reason, self.tolerance)  # type: ignore[arg-type]
            return Finding(direction, best.element, torch.full_like(self.weights, nan), untested)
        worst: tuple[float, Measurement] | None = None
        sized = len({t.size for t in group}) > 1
        lowest, limit, most, reached = -math.inf, -math.inf, 0.0, False
        for trial in counting:
            rows = (trial.excess @ self.weights, trial.scale @ self.weights)
            draws = stream(self.seed, "verdict", "bootstrap")
            ratio, low, high, skilled = interval(*rows, level, draws, known=self.problem.known)
            if not skilled:
                reason = "the predictor is no better than one that pairs inputs with labels of other samples"
                direction = Direction(nan, nan, nan, nan, trial.coverage, "cannot tell", reason, self.tolerance)
                return Finding(direction, trial.element, torch.full_like(self.weights, nan))
            if self._elsewhere is not None:
                beside = self._elsewhere.losses(trial.pair)
                rows = (beside.excess.sum(0) @ self.weights, beside.scale.sum(0) @ self.weights)
                high = max(high, interval(*rows, level, draws, known=True)[2])
            # No breaking is negative: an estimate below zero is an error, which may hide a breaking as large.
            lowest, limit = max(lowest, low), max(limit, high, -low)
            if trial.size == counting[0].size:
                # A breaking grows with the size, and goes on where no data are: a group holds no better than what a
                # quarter turn may show of it, or the map over all samples. What small sizes leave open is open.
                turn = max(math.pi / 2 / trial.size, 1.0) if sized else 1.0
                beyond = root(trial.everywhere / ratio) if low > trial.hidden(self.weights) ** 2 else 1.0
                most, reached = root(high) * max(turn, beyond), beyond > turn
            if worst is None or ratio > worst[0]:
                worst = ratio, trial
        assert worst is not None
        ratio, trial = worst
        hidden, kappa, unsure, fits = trial.hidden(self.weights), 1.0, 0.0, self.problem.fits
        # Planting costs little in closed form; networks are fitted again only where the answer depends on it. How much
        # is broken where something is broken anyway, it does not tell; on fields, it tells of the lower end, too.
        decided = root(lowest) > self.tolerance
        close = root(limit) <= self.tolerance < root(limit) + hidden
        if fits is not None and (self.problem.is_field or not decided) and (fits.quick or close):
            farthest = max(counting, key=lambda t: t.size)
            recovery = self._sensitivity(farthest.pair)
            kappa = recovery.share
            hidden = hidden if decided or kappa < MOST else min(hidden, root(limit) / kappa - root(limit))
            # Any map may break as unrelated transformations do; that share of it is not known for transformed inputs.
            unsure = min(recovery.beyond, 1.0) * farthest.unrelated
            # What is unexplained grows with the error of the map; for vectors, neighbours have told by how much.
            lowest -= recovery.growth * farthest.unexplained(self.weights) if self.problem.is_field else 0.0
        lowest -= self._differing(trial)
        if isinstance(coverage := self.residual.coverage, VectorCoverage):
            # What neighbouring errors share is not noise but something unlearned, whatever is seen of plants.
            hidden = max(hidden, coverage.shared**0.5 * trial.hidden(self.weights))
        extent = max(t.size for t in counting) if sized else None
        upper = root(limit) + hidden + unsure
        cost = min(t.unrelated for t in counting)
        within = min(self.tolerance, MOST * cost)
        unknown = upper - unsure <= within or (root(lowest) <= within and self._worse(trial))
        if counting[1:] and unknown and within < upper:
            return self._one(counting[1:], group, level)  # a smaller step stays nearer to where the map is determined
        direction = decide(ratio, lowest, upper, kappa, trial.coverage, self.tolerance, extent)
        if direction.decision == "cannot tell" and upper - unsure <= self.tolerance:
            reason = f"for transformed inputs the data determine the map only up to {unsure:.0%}"
            direction = replace(direction, reason=reason)
        if direction.decision == "symmetry" and upper > MOST * cost:
            reason = f"breaking at most {direction.upper:.0%}, but unrelated transformations cost only {cost:.0%}"
            direction = replace(direction, decision="cannot tell", reason=reason)
        masked = (
            fits is not None and not self.problem.is_field and root(limit) + trial.hidden(self.weights) > self.tolerance
        )
        if direction.decision == "symmetry" and masked and self.residual.few(_VECTORS).error_change(trial.pair) > CLEAR:
            reason = "what the predictor leaves unexplained is not the same for transformed inputs"
            direction = replace(direction, decision="cannot tell", reason=reason)
        if direction.decision == "symmetry" and most > self.tolerance:
            reach = f"data cover {trial.coverage:.0%}" if reached else f"data reach sizes up to {extent:.2g} only"
            there = "all samples" if reached else "a quarter turn"
            reason = f"{reach}; over {there} the breaking may be about {min(most, 1.0):.0%}"
            direction = replace(direction, decision="cannot tell", reason=reason)
        gap = any(t.coverage < MOST and t.size < counting[-1].size for t in group)
        return Finding(direction, trial.element, self._charts(trial), gap=gap)

    def _charts(self, trial: Measurement) -> Tensor:
        """Strength on every chart, `(K,)`; where some were left out, on those as well."""
        charts = trial.charts()
        if self._all is None or bool((self.weights > 0).all()):
            return charts
        losses = self._all.few(_FEW).losses(trial.pair)
        excess, scale = losses.excess.sum((0, 1)), losses.scale.sum((0, 1))
        there = torch.where(scale > 0, excess / scale.clamp_min(1e-300), math.nan).clamp_min(0.0).sqrt()
        return torch.where(self.weights > 0, charts, there)
