"""`discover`: from data, or from a function, to a group with a verdict."""

from __future__ import annotations

__all__ = ["discover", "discover_connected", "discover_cosets", "discover_generators"]

import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, is_dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.basis import standard_form
from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.cosets import CosetCandidates, CosetSearch
from atlasd.discovery.problem import Problem
from atlasd.discovery.result import ChartFinding, Direction, Discovery, PredictorSummary, Verdict
from atlasd.discovery.search import Found, Search
from atlasd.discovery.setup import Setup, prepare
from atlasd.discovery.spectral import SpectralSearch, closed
from atlasd.discovery.verdict import (
    Evidence,
    Gates,
    decide,
    element_evidence,
    field_evidence,
    vector_evidence,
)
from atlasd.geometry.actions import Action
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Progress, Silent, Terminal
from atlasd.runtime.random import stream

SIZES = (0.3, 0.6, 1.0, 1.5)


def discover(
    x: Any,
    y: Any = None,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    atlas: Atlas | None = None,
    action: Action | None = None,
    predictor: PredictorSpec | None = None,
    search: Search | None = None,
    cosets: CosetSearch | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress | bool = True,
) -> Discovery:
    """Finds the largest matrix group that a map commutes with, chart by chart, and says how sure that is.

    Arguments:
        x: Inputs: fields `(N, C, H, W)` or `(N, C, D, H, W)`, vectors `(N, n)`, or sets of vectors `(N, P, n)`.
        y: Targets: fields on the same grid, `(N,)`, `(N, outputs)`, or integer classes.
        function: A differentiable function in place of `y`.
        atlas: Where the charts lie; the whole field by default.
        action: How matrices move inputs and outputs.
        predictor: How the local map is learned.
        search: How generators are searched for; `SpectralSearch` by default, `GradientSearch` is the paper's.
        cosets: How the discrete part is searched for.
        seed: Seed of every random stream.
        executor: Where work may run in parallel; in this process by default.
        progress: Whether to show progress, or who is told.

    Returns:
        The group, the verdict on each generator and coset, and what every chart says.

    Example:
        >>> points = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
        >>> found = discover(points, function=lambda p: p.norm(dim=-1), progress=False)
        >>> found.group.name
        'O(2)'
    """
    shown = progress if not isinstance(progress, bool) else (Terminal() if progress else Silent())
    return _discover(
        x, y, function=function, atlas=atlas, action=action, predictor=predictor, search=search,
        cosets=CosetSearch() if cosets is None else cosets, seed=seed, shown=shown,
    )  # fmt: skip


def discover_connected(
    x: Any,
    y: Any = None,
    *,
    search: Search | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Discovery:
    """The continuous part with its verdict: `discover` without the search for cosets.

    Arguments:
        x: Inputs.
        y: Targets.
        search: How to search.
        seed: Seed of every random stream.
        progress: Who is told how far it is.
        options: `function`, `atlas`, `action` and `predictor`, as in `discover`.
    """
    return _discover(x, y, search=search, cosets=None, seed=seed, shown=progress or Silent(), **options)


def _discover(
    x: Any,
    y: Any,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    atlas: Atlas | None = None,
    action: Action | None = None,
    predictor: PredictorSpec | None = None,
    search: Search | None,
    cosets: CosetSearch | None,
    seed: int,
    shown: Progress,
) -> Discovery:
    seconds: dict[str, float] = {}
    search = SpectralSearch() if search is None else search

    started = time.perf_counter()
    setup = prepare(x, y, function=function, atlas=atlas, action=action, predictor=predictor, seed=seed, progress=shown)
    seconds["predictor"] = time.perf_counter() - started
    problem, gates = setup.problem, setup.gates

    started = time.perf_counter()
    empty = torch.zeros(0, problem.size, problem.size, dtype=torch.float64)
    found = Found(empty) if gates.refusal() is not None else search.find(problem, seed=seed, progress=shown)
    seconds["search"] = time.perf_counter() - started

    started = time.perf_counter()
    judged = _judge_generators(setup, found, search.tolerance, seed)
    seconds["verdict"] = time.perf_counter() - started

    started = time.perf_counter()
    group, coset_directions, rejected = _discrete_part(
        setup, judged.algebra, cosets, search.tolerance, judged.weights, seed, shown
    )
    seconds["cosets"] = time.perf_counter() - started

    verdict = _verdict(gates, judged, group, coset_directions, rejected, found)
    fitted = setup.predictor
    return Discovery(
        group=group,
        verdict=verdict,
        charts=_charts(setup, judged),
        spectrum=found.spectrum,
        predictor=PredictorSummary(fitted.kind, fitted.skill, fitted.samples, fitted.seconds),
        seconds=seconds,
        seed=seed,
        config={"search": _plain(search), "cosets": _plain(cosets), "predictor": _plain(predictor)},
        curves={**{f"predictor {k}": v for k, v in fitted.curves.items()}, **found.curves},
        chart_generators=found.chart_basis,
    )


def discover_generators(
    x: Any,
    y: Any = None,
    *,
    search: Search | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> LieAlgebra:
    """The continuous part alone, without verdict: a lower door for people who build on it.

    Arguments:
        x: Inputs.
        y: Targets.
        search: How to search.
        seed: Seed of every random stream.
        progress: Who is told how far it is.
        options: `function`, `atlas`, `action` and `predictor`, as in `discover`.
    """
    shown = progress or Silent()
    problem = prepare(x, y, seed=seed, progress=shown, **options).problem
    basis = (search or SpectralSearch()).find(problem, seed=seed, progress=shown).basis
    return LieAlgebra(standard_form(basis) if len(basis) else basis)


def discover_cosets(
    x: Any,
    y: Any = None,
    *,
    algebra: LieAlgebra,
    cosets: CosetSearch | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> CosetCandidates:
    """Candidates for the discrete part alone, given the continuous one.

    Arguments:
        x: Inputs.
        y: Targets.
        algebra: The continuous part.
        cosets: How to search.
        seed: Seed of every random stream.
        progress: Who is told how far it is.
        options: `function`, `atlas`, `action` and `predictor`, as in `discover`.
    """
    shown = progress or Silent()
    problem = prepare(x, y, seed=seed, progress=shown, **options).problem
    return (cosets or CosetSearch()).find(problem, algebra, seed=seed, progress=shown)


class _Judged:
    """Generators that passed, with their directions, those that did not, and the charts' errors."""

    def __init__(
        self,
        algebra: LieAlgebra,
        kept: list[Direction],
        dropped: list[Direction],
        evidence: list[Evidence],
        weights: Tensor,
    ) -> None:
        self.algebra, self.kept, self.dropped, self.evidence, self.weights = (
            algebra,
            kept,
            dropped,
            evidence,
            weights,
        )


def _judge_generators(setup: Setup, found: Found, tolerance: float, seed: int) -> _Judged:
    """Judges the basis in standard form; if some directions fail, the algebra inside the rest is judged again."""
    problem = setup.problem
    weights = problem.chart_weights() if found.weights is None else found.weights
    basis = found.basis
    dropped: list[Direction] = []
    while len(basis):
        basis = standard_form(basis)
        evidence = _evidence(problem, basis, weights, tolerance, seed)
        controls = _controls(setup, basis, weights, tolerance, seed)
        directions = [decide(e, setup.gates, tolerance, len(basis), c) for e, c in zip(evidence, controls, strict=True)]
        keep = [d.decision == "symmetry" for d in directions]
        if all(keep):
            return _Judged(LieAlgebra(basis), directions, dropped, evidence, weights)
        dropped += [d for d, k in zip(directions, keep, strict=True) if not k]
        order = sorted((e.error, i) for i, (e, k) in enumerate(zip(evidence, keep, strict=True)) if k)
        rest = basis[[i for _, i in order]]
        basis = closed(rest)[0] if len(rest) else rest
    return _Judged(LieAlgebra(basis), [], dropped, [], weights)


def _evidence(problem: Problem, basis: Tensor, weights: Tensor, tolerance: float, seed: int) -> list[Evidence]:
    draws = stream(seed, "verdict", "bootstrap")
    if problem.is_field:
        return field_evidence(problem, basis, weights, SIZES, tolerance, seed=draws)
    return vector_evidence(problem, basis, SIZES, tolerance, seed=draws)


def _controls(setup: Setup, basis: Tensor, weights: Tensor, tolerance: float, seed: int) -> list[float | None]:
    """Errors of the same generators for untrained predictors of the same kind; the larger of two draws."""
    if setup.untrained is None:
        return [None] * len(basis)
    worst = [0.0] * len(basis)
    for draw in range(2):
        problem = setup.untrained(stream(seed, "verdict", "untrained", draw))
        evidence = _evidence(problem, basis, weights, tolerance, seed)
        worst = [max(w, e.error) for w, e in zip(worst, evidence, strict=True)]
    return list(worst)


def _discrete_part(
    setup: Setup,
    algebra: LieAlgebra,
    cosets: CosetSearch | None,
    tolerance: float,
    weights: Tensor,
    seed: int,
    progress: Progress,
) -> tuple[Group, list[Direction], list[Direction]]:
    """Candidates, judged on held-out data like generators, then closed to a group whose products are tested."""
    n = setup.problem.size
    identity = torch.eye(n, dtype=torch.float64)[None]
    if cosets is None or setup.gates.refusal() is not None:
        return Group(algebra, identity), [], []
    limit = cosets.tolerance or tolerance
    problem = setup.problem.with_weights(weights)
    candidates = cosets.find(problem, algebra, seed=seed, progress=progress, tolerance=tolerance)

    def judge(elements: Tensor, tests: int) -> list[Direction]:
        draws = stream(seed, "verdict", "cosets")
        evidence = element_evidence(problem, elements, weights, seed=draws)
        return [decide(e, setup.gates, limit, tests) for e in evidence]

    matrices = candidates.matrices
    directions = judge(matrices, len(matrices))
    keep = torch.tensor([d.decision == "symmetry" for d in directions], dtype=torch.bool)
    keep[0] = True  # the identity
    rejected = [d for d, k in zip(directions, keep.tolist(), strict=True) if not k]

    def accept(elements: Tensor) -> Tensor:
        return torch.tensor([d.decision == "symmetry" for d in judge(elements, len(elements))], dtype=torch.bool)

    group = Group.close(algebra, matrices[keep], accept=accept)
    return group, judge(group.cosets, group.order), rejected


def _charts(setup: Setup, judged: _Judged) -> tuple[ChartFinding, ...]:
    """Every chart's error under the pooled group, and whether it stands apart."""
    skills = setup.predictor.chart_skill
    charts = setup.samples.atlas.charts
    if judged.evidence:
        errors = torch.stack([e.charts for e in judged.evidence]).amax(0)
    else:
        errors = torch.full((len(charts),), float("nan"), dtype=torch.float64)
    lone = setup.problem.apart(errors.nan_to_num(0.0)).tolist() if len(charts) > 1 else [False]
    findings = []
    for chart, error, skill, apart in zip(charts, errors.tolist(), skills.tolist(), lone, strict=True):
        reason = ""
        if apart and skill < 0.1:
            reason = f"its predictor has no skill ({skill:.2f})"
        elif apart:
            reason = f"error {error:.2f}, more than its predictor (skill {skill:.2f}) explains"
        findings.append(ChartFinding(tuple(chart.center), error, apart, skill, reason))
    return tuple(findings)


def _verdict(
    gates: Gates,
    judged: _Judged,
    group: Group,
    cosets: list[Direction],
    rejected: list[Direction],
    found: Found,
) -> Verdict:
    refusal = gates.refusal()
    symmetric = group.dimension > 0 or group.order > 1
    notes = "".join(f" Note: {n}." for n in found.notes)
    if found.not_testable:
        notes += f" {found.not_testable} direction(s) could not be tested: nothing in the data feels them."
    if refusal is not None:
        reason = f"{refusal[0].capitalize()}: {refusal[1]}."
    elif symmetric:
        worst = max((d.upper for d in (*judged.kept, *cosets)), default=0.0)
        reason = f"The map commutes with {group.name}: largest error bound {worst:.4f} on held-out data."
        extents = [d.extent for d in judged.kept if d.extent is not None]
        if extents and min(extents) < max(SIZES):
            reason += f" Seen to hold up to |t| about {min(extents):g}."
    elif any(d.decision == "cannot tell" for d in judged.dropped):
        reason = "Cannot tell: " + next(d.reason for d in judged.dropped if d.decision == "cannot tell") + "."
    else:
        lowest = f" (smallest first-order error {found.spectrum[0]:.3f})" if found.spectrum else ""
        reason = f"No symmetry: no direction commutes within the tolerance{lowest}."
    return Verdict(
        symmetric=symmetric and refusal is None,
        reason=reason + notes,
        directions=tuple(judged.kept),
        cosets=tuple(cosets),
        rejected=(*judged.dropped, *rejected),
        gates={"skill": gates.skill, "testable": gates.testable, "saturated": gates.saturated},
    )


def _plain(value: Any) -> Any:
    """A strategy object as plain values, with its name."""
    if not is_dataclass(value) or isinstance(value, type):
        return None if value is None else str(value)
    return {
        "kind": type(value).__name__,
        **{k: str(v) if not isinstance(v, int | float | bool | type(None)) else v for k, v in asdict(value).items()},
    }
