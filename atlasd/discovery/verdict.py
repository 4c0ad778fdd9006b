"""The verdict: held-out data, bootstrap bounds, controls, and a decision with its reason."""

from __future__ import annotations

__all__ = ["Evidence", "Gates", "decide", "element_evidence", "field_evidence", "field_extent", "vector_evidence"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.discovery import gram
from atlasd.discovery.blocks import ChartCriterion
from atlasd.discovery.coverage import Coverage, Neighbours, Range, Totals
from atlasd.discovery.problem import Problem
from atlasd.discovery.refine import scaled, weigh_sizes
from atlasd.discovery.result import Decision, Direction
from atlasd.discovery.support import keeps_cone
from atlasd.runtime.codec import storable

MINIMUM_SKILL = 0.3
RESAMPLES = 400
_FEW = 16
_INSIDE = 0.05
"""Share of the moved vectors that must lie within the range of the data for a single element to be judged."""
_COVERED = 0.3
"""Share of the moved vectors that must stay near the data for a finite size to count."""


@dataclass(frozen=True)
class Gates:
    """What must hold before any claim.

    Arguments:
        skill: Held-out skill of the predictor.
        testable: Share of the outputs' variance that is not a map of the same pixel (or, for vectors, whether
            outputs vary at all).
        saturated: Whether class probabilities are all but constant.
    """

    skill: float
    testable: float
    saturated: bool = False

    def refusal(self) -> tuple[Decision, str] | None:
        """The decision that no evidence can change, if there is one."""
        if self.saturated:
            return (
                "not testable",
                "outputs are saturated: the predictor gives nearly the same answer everywhere",
            )
        if self.testable < 1e-6:
            return (
                "not testable",
                "outputs are constant, or depend on the same pixel only, so every motion commutes",
            )
        if self.skill < MINIMUM_SKILL:
            return "cannot tell", f"the predictor has no skill ({self.skill:.2f}; {MINIMUM_SKILL} is needed)"
        return None


@storable()
@dataclass(frozen=True, eq=False)
class Evidence:
    """Bootstrap of one direction's error.

    Arguments:
        error: Point estimate on held-out data.
        draws: Bootstrap draws, with shape `(R,)`.
        chance: Size of the chance level, in units of the data.
        moved: Chance level relative to the variance of the outputs.
        coverage: How far moved inputs are still like those fitted to.
        extent: Largest size with an error within the tolerance.
        charts: Error per chart, `(K,)`.
        inside: Share of moved inputs that lie within the range of the data; of single elements on vectors.
        first_order: Whether motions of every finite size leave the data, so that derivatives alone were judged.
    """

    error: float
    draws: Tensor
    chance: float
    moved: float
    coverage: float
    extent: float | None
    charts: Tensor
    inside: float = 1.0
    first_order: bool = False


def decide(evidence: Evidence, gates: Gates, tolerance: float, tests: int, control: float | None = None) -> Direction:
    """Compares bounds with the tolerance.

    Arguments:
        evidence: The bootstrap.
        gates: What must hold before any claim.
        tolerance: The largest error that counts.
        tests: Number of directions judged, for multiplicity.
        control: Error of the same direction for untrained predictors of the same kind.
    """
    level = 1 - 0.05 / max(tests, 1)
    upper = float(evidence.draws.quantile(level))
    lower = float(evidence.draws.quantile(1 - level))
    error = evidence.error
    refusal = gates.refusal()
    decision: Decision
    if refusal is not None:
        decision, reason = refusal
    elif evidence.moved < 1e-6:
        decision, reason = "not testable", "this direction neither moves the data nor is felt by the map"
    elif evidence.inside < _INSIDE:
        decision = "not testable"
        reason = f"{1 - evidence.inside:.0%} of the moved inputs lie beyond the range of the data"
    elif upper <= tolerance and control is not None and control <= tolerance:
        decision = "cannot tell"
        reason = f"an untrained predictor of the same kind commutes as well (error {control:.3f}): this is its design"
    elif upper <= tolerance:
        decision, reason = "symmetry", f"error at most {upper:.4f}, below the tolerance {tolerance:g}"
        if evidence.first_order:
            reason += "; at first order only, as motions of finite size leave the data"
    elif lower > tolerance and evidence.coverage >= 0.2:
        decision, reason = "broken", f"error at least {lower:.4f}, above the tolerance {tolerance:g}"
    elif lower > tolerance:
        decision = "cannot tell"
        reason = f"error {error:.4f}, but moved inputs leave what was fitted to (coverage {evidence.coverage:.2f})"
    else:
        decision, reason = (
            "cannot tell",
            f"bounds {lower:.4f} to {upper:.4f} hold the tolerance {tolerance:g}",
        )
    return Direction(
        error=error, upper=upper, lower=lower, chance=evidence.chance, tolerance=tolerance,
        decision=decision, reason=reason, extent=evidence.extent,
    )  # fmt: skip


def _bootstrap(
    miss: Tensor, chance: Tensor, sizes: Tensor, weights: Tensor, floor: Tensor, seed: torch.Generator
) -> Tensor:
    """Draws of the pooled error over samples and charts, with shape `(R,)`.

    Arguments:
        miss: With shape `(T, B, K)`.
        chance: With shape `(T, B, K)`.
        sizes: Weights of the sizes, `(T,)`.
        weights: Weights of the charts, `(K,)`.
        floor: Interpolation floor, relative, `(T,)`.
    """
    b, k = miss.shape[1:]
    sample = torch.randint(b, (RESAMPLES, b), generator=seed)
    counts = torch.zeros(RESAMPLES, b, dtype=torch.float64).scatter_add_(
        1, sample, torch.ones(RESAMPLES, b, dtype=torch.float64)
    )
    top = torch.einsum("rb,tbk->rtk", counts, miss)
    bottom = torch.einsum("rb,tbk->rtk", counts, chance).clamp_min(1e-300)
    errors = torch.einsum("t,rtk->rk", sizes, (top / bottom - floor[None, :, None]).clamp_min(0.0))
    chart = torch.randint(k, (RESAMPLES, k), generator=seed)
    share = torch.zeros(RESAMPLES, k, dtype=torch.float64).scatter_add_(
        1, chart, torch.ones(RESAMPLES, k, dtype=torch.float64)
    )
    share = share * weights
    # A draw without any trusted chart says nothing about them.
    share = torch.where(share.sum(1, keepdim=True) > 0, share, weights.expand_as(share))
    return (errors * share).sum(1) / share.sum(1)


def _floor(there_and_back: Tensor, chance: Tensor) -> Tensor:
    """What interpolation alone would miss at every size, relative to chance: half of a move there and back."""
    floors = (there_and_back / chance.mean(1).clamp_min(1e-300)).median(1).values
    # Never more than a small part of the tolerance: a floor must not hide a broken symmetry.
    return floors.clamp_max(0.02)


def known_inputs(problem: Problem, weights: Tensor) -> Coverage:
    """What the predictors of fields were fitted to, in the charts that count."""
    return Coverage.of(problem, problem.search[:64], weights.nonzero().flatten())


def field_evidence(
    problem: Problem,
    basis: Tensor,
    weights: Tensor,
    sizes: tuple[float, ...],
    tolerance: float,
    *,
    seed: torch.Generator,
    samples: int = 48,
    cover: Coverage | None = None,
) -> list[Evidence]:
    """Finite-size evidence for each generator on held-out samples."""
    cover = cover or known_inputs(problem, weights)
    criterion = ChartCriterion(problem, problem.test[:samples], sizes, cover)
    variance, rows = criterion.evidence([scaled(a) for a in basis])
    evidence = []
    for miss, chance, coverages, back in rows:
        share = weigh_sizes(coverages)
        floor = _floor(back, chance)
        ratio = (miss.mean(1) / chance.mean(1).clamp_min(1e-300) - floor[:, None]).clamp_min(0.0)  # (T, K)
        charts = share @ ratio
        by_size = (ratio @ weights / weights.sum()).reshape(len(sizes), 2).amax(-1)
        held = [s for s, e in zip(sizes, by_size.tolist(), strict=True) if e <= tolerance]
        evidence.append(
            Evidence(
                error=float(charts @ weights / weights.sum()),
                draws=_bootstrap(miss, chance, share, weights, floor, seed),
                chance=float((chance.mean(1) @ weights / weights.sum()).mean()),
                moved=float((chance.mean(1) / variance.clamp_min(1e-300)).mean()),
                coverage=float(coverages.max()),
                extent=max(held) if held else None,
                charts=charts,
            )
        )
    return evidence


def field_extent(
    problem: Problem,
    a: Tensor,
    weights: Tensor,
    sizes: tuple[float, ...],
    tolerance: float,
    *,
    samples: int = 96,
    between: int = 4,
) -> float | None:
    """The size |t| at which the error of one generator passes the tolerance, on held-out samples.

    Arguments:
        problem: Map, action and data.
        a: The generator.
        weights: Weights of the charts, `(K,)`.
        sizes: Sizes that are looked at first; the largest is the most that is ever claimed.
        tolerance: The largest error that counts.
        samples: Samples to look at.
        between: Sizes that are looked at between the last that holds and the first that does not.
    """
    index = problem.test[:samples]
    a = scaled(a)

    def errors(at: tuple[float, ...]) -> list[float]:
        criterion = ChartCriterion(problem, index, at)
        miss, chance = criterion.measure(a)
        floor = _floor(criterion.there_and_back(a), chance)
        ratio = (miss.mean(1) / chance.mean(1).clamp_min(1e-300) - floor[:, None]).clamp_min(0.0)
        return (ratio @ weights / weights.sum()).reshape(len(at), 2).mean(-1).tolist()

    rough = errors(sizes)
    first = next((k for k, e in enumerate(rough) if e > tolerance), None)
    if first is None:
        return max(sizes)
    if first == 0:
        return None
    low, high = sizes[first - 1], sizes[first]
    inner = tuple(low + (high - low) * k / (between + 1) for k in range(1, between + 1))
    places = [low, *inner, high]
    values = [rough[first - 1], *errors(inner), rough[first]]
    k = next(i for i, e in enumerate(values) if e > tolerance)
    share = (tolerance - values[k - 1]) / (values[k] - values[k - 1])
    return places[k - 1] + share * (places[k] - places[k - 1])


def vector_evidence(
    problem: Problem,
    basis: Tensor,
    sizes: tuple[float, ...],
    tolerance: float,
    *,
    seed: torch.Generator,
    samples: int = 2048,
) -> list[Evidence]:
    """First-order evidence on held-out data, and finite size on those inputs that stay where the data are."""
    sums = gram.accumulate(problem, "test", batch=512, shards=32, limit=2 * samples)
    _, level = sums.total()
    x = problem.patches(problem.test[:samples])
    known = problem.patches(problem.search[:samples])[:, 0]
    near, totals = Neighbours(known), Totals(known)
    with torch.no_grad():
        p = problem.psi(x)
    largest = float(level[0].diagonal().max())
    evidence = []
    kept = keeps_cone(problem.cone, basis, finite=False).double().tolist()
    for a, inside_cone in zip(basis, kept, strict=True):
        a = scaled(a)
        v = a.flatten()
        top = torch.einsum("skab,a,b->s", sums.residual, v, v) * sums.counts
        bottom = torch.einsum("skab,a,b->s", sums.chance, v, v) * sums.counts
        pick = torch.randint(len(top), (RESAMPLES, len(top)), generator=seed)
        draws = top[pick].sum(1) / bottom[pick].sum(1).clamp_min(1e-300)
        error = float(top.sum() / bottom.sum().clamp_min(1e-300))
        chance = float(v @ level[0] @ v)
        motion = problem.action.input_generator(a.to(x.dtype), x).double().square().flatten(1).sum(-1)
        coverages, extent = [], None
        for t in sizes:
            worst, covered, finite = 0.0, 1.0, torch.zeros(RESAMPLES, dtype=torch.float64)
            for sign in (1.0, -1.0):
                g = torch.matrix_exp(sign * t * a).to(x.dtype)
                with torch.no_grad():
                    moved = problem.action.on_input(g, x)
                    inside = near(moved[:, 0]) & totals(moved[:, 0])
                    covered = min(covered, float(inside.double().mean()))
                    if int(inside.sum()) < _FEW:
                        continue
                    left, right = problem.psi(moved[inside]), problem.action.on_output(g, p[inside])
                miss = (left - right).double().square().flatten(1).sum(-1).nan_to_num(float("inf"))
                spread = float((p[inside] - p[inside].mean(0)).double().square().flatten(1).sum(-1).mean())
                # Inputs that stay inside move less than the others; unrelated outputs differ by twice the variance.
                share = float(motion[inside].mean() / motion.mean().clamp_min(1e-300))
                unit = max(min(t * t * chance * share, 2 * spread), 1e-300)
                worst = max(worst, float(miss.mean()) / unit)
                again = torch.randint(len(miss), (RESAMPLES, len(miss)), generator=seed)
                finite = torch.maximum(finite, miss[again].mean(1) / unit)
            coverages.append(covered)
            if covered < _COVERED:
                continue
            if worst <= tolerance:
                extent = t
            if t <= 1.0:
                error, draws = max(error, worst), torch.maximum(draws, finite)
        evidence.append(
            Evidence(
                error,
                draws,
                chance,
                chance / max(largest, 1e-300),
                max(coverages),
                extent,
                torch.tensor([error]),
                inside_cone,
                first_order=max(coverages) < _COVERED,
            )
        )
    return evidence


def element_evidence(
    problem: Problem, elements: Tensor, weights: Tensor, *, seed: torch.Generator, samples: int = 48
) -> list[Evidence]:
    """Evidence for single group elements: the same criterion at one g."""
    if problem.is_field:
        cover = Coverage.of(problem, problem.search[:64])
        criterion = ChartCriterion(problem, problem.test[:samples], (), cover)
        rows = [
            (miss, torch.maximum(chance, 0.05 * spread.mean()), coverage, 1.0)
            for (miss, chance, spread), coverage in zip(*criterion.element_evidence(elements), strict=True)
        ]
    else:
        rows = _vector_elements(problem, elements)
    one, none = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    evidence = []
    for miss, chance, coverage, inside in rows:
        charts = miss.mean(0) / chance.mean(0).clamp_min(1e-300)
        evidence.append(
            Evidence(
                error=float(charts @ weights / weights.sum()),
                draws=_bootstrap(miss[None], chance[None], one, weights, none, seed),
                chance=float(chance.mean()),
                moved=1.0,
                coverage=coverage,
                extent=None,
                charts=charts,
                inside=inside,
            )
        )
    return evidence


def _vector_elements(
    problem: Problem, elements: Tensor, samples: int = 2048
) -> list[tuple[Tensor, Tensor, float, float]]:
    """Miss and chance `(B, 1)`, coverage and share within the range of the data, of every element."""
    x = problem.patches(problem.test[:samples])
    known = problem.patches(problem.search[:samples])
    cover, inside = Coverage(problem, known), Range(known[:, 0])
    with torch.no_grad():
        p = problem.psi(x)
        spread = (p - p.mean(0)).double().square()
        rows = []
        kept = keeps_cone(problem.cone, elements, finite=True).double().tolist()
        for g, inside_cone in zip(elements, kept, strict=True):
            moved = problem.action.on_input(g.to(x.dtype), x)
            miss = (problem.psi(moved) - problem.action.on_output(g.to(p.dtype), p)).double().square()
            miss = miss.flatten(2).sum(-1).nan_to_num(float("inf"))
            share = inside_cone * float(inside(moved[:, 0]).double().mean())
            rows.append((miss, (2 * spread.flatten(2).sum(-1).mean()).expand_as(miss), cover(moved), share))
    return rows
