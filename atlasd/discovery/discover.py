"""`discover`: from data, or from a function, to a group with a verdict."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import asdict, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.group_names import fixed_point
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.attempt import Attempt, Clock, leading, more_with_translations, taken, without_lost_charts
from atlasd.discovery.conclude import Conclusion, promising, words
from atlasd.discovery.cosets import CosetCandidates, CosetSearch
from atlasd.discovery.frames import make_frames
from atlasd.discovery.learned import LearnedMap, PredictorSummary
from atlasd.discovery.locality import charts_by_default
from atlasd.discovery.prepare import pose, prepare
from atlasd.discovery.problem import Problem, Search
from atlasd.discovery.result import ChartFinding, Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.discovery.targets import (
    Question,
    Targets,
    at_first,
    check_targets,
    questions,
    say_rest,
    say_time,
    set_aside,
)
from atlasd.discovery.vector_fields import discover_fields
from atlasd.discovery.verdict import Judge
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.polynomial import PolynomialAction
from atlasd.limits import TOLERANCE
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.context import on_device
from atlasd.runtime.executor import About, TaskFailed, working
from atlasd.runtime.progress import LOG, Logged, Progress, Silent, Terminal
from atlasd.runtime.stages import current_stages, fingerprint


def discover(
    x: Any,
    y: Any = None,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    atlas: Atlas | None = None,
    action: Action | None = None,
    rho_out: Targets = "auto",
    predictor: PredictorSpec | None = None,
    search: Search | None = None,
    cosets: CosetSearch | bool | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    executor: Executor | None = None,
    progress: Progress | bool = True,
    device: str | torch.device | None = None,
    budget: float | None = None,
) -> Discovery:
    """Finds the largest matrix group that a map commutes with, chart by chart, and says how sure that is.

    Arguments:
        x: Inputs: fields `(N, C, H, W)` or `(N, C, D, H, W)`, vectors `(N, n)`, or sets of vectors `(N, P, n)`.
        y: Targets: fields on the same grid, `(N,)`, `(N, outputs)`, or integer classes.
        function: A function in place of `y`.
        atlas: Where the charts lie. By default they are placed where the local map can be learned (`survey_charts`);
            `Atlas.whole()` takes the whole field as one chart, as is done for a function, for classes, and where a
            predictor is given.
        action: How matrices transform inputs and outputs. `AffineAction` adds translations of vectors,
            `GridAction(translations=True)` those of fields; `PolynomialAction` asks for vector fields that are not
            linear, and gives a `FieldDiscovery`.
        rho_out: How targets transform: `trivial` (they are invariants), `vector` or `covector` (their components
            transform with the inputs), a function of matrices, or several names to be tried. `auto` tries those that
            fit the shape, takes the largest group, and says so; where an action is given, the action decides.
        predictor: How the local map is learned.
        search: How generators are searched for; `SpectralSearch` by default, `GradientSearch` is the paper's.
        cosets: How the discrete part is searched for; `False` for the continuous part alone.
        tolerance: The largest strength of a breaking that counts as a symmetry, a ratio of amplitudes: 0.2 means that
            a fifth of what could break may be broken.
        seed: Seed of every random stream.
        executor: Where work may run in parallel; in this process by default.
        progress: Whether to show progress, or a progress display.
        device: Where tensors live and networks are trained, such as `cuda`; by default where torch creates tensors,
            the CPU unless told otherwise. Not with an executor, whose workers use the CPU.
        budget: Seconds after which no further question is asked and no discrete part is looked for; what was left out
            is said. `None` for no limit.

    Returns:
        The group, the verdict on each generator and coset, and what every chart says.

    Example:
        >>> points = torch.randn(600, 2, generator=torch.Generator().manual_seed(0))
        >>> found = discover(points, function=lambda p: p.norm(dim=-1), progress=False)
        >>> found.group.name
        'O(2)'
    """
    shown: Progress = Logged(progress if not isinstance(progress, bool) else (Terminal() if progress else Silent()))
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 < tolerance < 1:
        raise InputError(f"`tolerance` must lie between 0 and 1, got {tolerance!r}; 0.2 is the default.")
    for name, given, kind, method in (
        ("predictor", predictor, "StencilPredictor()", "fit"),
        ("search", search, "SpectralSearch()", "find"),
        ("cosets", None if isinstance(cosets, bool) else cosets, "CosetSearch()", "find"),
    ):
        if given is not None and (isinstance(given, type | str) or not callable(getattr(given, method, None))):
            raise InputError(f"`{name}` must be an object like {kind}, got {given!r}; leave it out for the default.")
    if isinstance(action, PolynomialAction):
        if atlas is not None or search is not None:
            raise InputError("`atlas` and `search` must be left out for a PolynomialAction.")
        with working(executor):
            return discover_fields(
                x, y, action=action, function=function, predictor=predictor, tolerance=float(tolerance), seed=seed,
                progress=shown,
            )  # fmt: skip
    check_targets(rho_out)
    discrete = None if cosets is False else CosetSearch() if cosets is None or cosets is True else cosets
    with on_device(device) as where, working(executor):
        if executor is not None and where.type != "cpu":
            raise InputError(f"`executor` must be left out with device={str(where)!r}: workers use the CPU.")
        if atlas is None and function is None and predictor is None:
            atlas = charts_by_default(x, y, seed=seed, progress=shown)
        return discover_asking(
            x, y, function=function, atlas=atlas, action=action, rho_out=rho_out, predictor=predictor, search=search,
            cosets=discrete, tolerance=float(tolerance), seed=seed, shown=shown, budget=budget,
        )  # fmt: skip


def discover_asking(x: Any, y: Any, *, atlas: Atlas | None = None, shown: Progress, **rest: Any) -> Discovery:
    """Answers what `asking` asks of the fitted map; charts whose tasks fail for good are left out."""
    charts = list(range(len(atlas))) if atlas is not None else [0]
    lost: dict[int, str] = {}
    while True:
        try:
            part = atlas if atlas is None or not lost else atlas.select(charts)
            found = _on_charts(x, y, atlas=part, shown=shown, **rest)
            return found if atlas is None or not lost else without_lost_charts(found, atlas, lost)
        except TaskFailed as failure:
            about = failure.about
            if not isinstance(about, About) or len(about.charts) >= len(charts):
                raise
            gone = {charts[k]: failure.cause for k in about.charts}
            shown.say(f"charts {', '.join(map(str, gone))} are left out, {about} failed: {failure.cause}")
            lost |= gone
            charts = [k for k in charts if k not in lost]


def _on_charts(
    x: Any,
    y: Any,
    *,
    function: Callable[[Tensor], Tensor] | None = None,
    atlas: Atlas | None = None,
    action: Action | None = None,
    rho_out: Targets = "auto",
    predictor: PredictorSpec | None = None,
    search: Search | None,
    cosets: CosetSearch | None,
    tolerance: float,
    seed: int,
    shown: Progress,
    budget: float | None = None,
    asking: Callable[[Problem, Action | None, Targets], list[Question]] = questions,
) -> Discovery:
    clock = Clock(budget)
    search = SpectralSearch() if search is None else search
    action = _with_targets(x, action, rho_out)
    stages = current_stages()
    stages.enter(fingerprint(x, y, seed, atlas, action, predictor, search, cosets, tolerance, check_targets(rho_out)))
    if getattr(action, "homogeneous", False) and not isinstance(search, SpectralSearch):
        raise InputError(f"`search` must be a SpectralSearch with translations, got {type(search).__name__}.")
    problem, fitted = prepare(
        x, y, function=function, atlas=atlas, action=action, predictor=predictor, seed=seed, progress=shown
    )
    clock("predictor")
    learned = LearnedMap(problem) if problem.common is None else None
    asked = asking(problem, action, rho_out) or [Question("given", problem.action, "")]
    posed = [problem if q.action is problem.action else pose(problem, q.action) for q in asked]
    least = at_first(problem, posed)
    order = sorted(range(len(posed)), key=least.__getitem__)
    if problem.is_field and not problem.classes:
        say_time([posed[i] for i in order if not set_aside(least[i], least[order[0]], confirmed=False)], shown)
    tried: dict[int, Attempt] = {}
    skipped: list[tuple[Question, str]] = []
    for place, i in enumerate(order):
        confirmed = any(t.generators.kept for t in tried.values())
        why = set_aside(least[i], least[order[0]], confirmed=confirmed)
        why = why or ("the budget of time was used up" if tried and clock.over else "")
        if why:
            skipped.append((asked[i], why))
        else:
            # A symmetry of some charts is no answer beside one of all.
            started = time.perf_counter()
            tried[i] = Attempt(asked[i], posed[i], search, tolerance, seed, shown, clock, some=not confirmed)
            confirmed = confirmed or bool(tried[i].generators.kept)
            rest = [j for j in order[place + 1 :] if not set_aside(least[j], least[order[0]], confirmed=confirmed)]
            say_rest(time.perf_counter() - started, len(rest), problem.is_field, shown)
    attempts = [tried[i] for i in sorted(tried)]
    if len(attempts) > 1:
        shown.say("; ".join(f"targets as {t.question.words}: {t.brief}" for t in attempts))
    chosen = leading(attempts)
    for attempt in chosen:
        attempt.add_cosets(cosets, clock)
    best = max(chosen, key=lambda t: t.rank)
    problem, generators, found = best.problem, best.generators, best.found
    group, centre = _in_raw_units(problem, generators, best.elements.matrices)
    frames = make_frames(problem, group, best.judge.weights, testable=best.testable)
    group = Group(LieAlgebra(group.algebra.basis.cpu()), group.cosets.cpu()) if group.algebra.basis.is_cuda else group
    clock("frames")
    for stage, seconds in clock.seconds.items():
        LOG.info("%s: %.1f s", stage, seconds)
    notes = [*_notes(problem, best), *taken(best, attempts, skipped), *centre, *_somewhere(best.judge.weights)]
    if action is None and isinstance(search, SpectralSearch) and not clock.over:
        notes += more_with_translations(best, search)
        clock("translations")
    return Discovery(
        group=group,
        verdict=words(group, generators, best.elements, untested=found.untested, tolerance=tolerance, notes=notes),
        charts=_chart_findings(problem, generators, best.judge.weights, fitted.chart_skill),
        spectrum=found.spectrum,
        predictor=PredictorSummary(fitted.kind, fitted.skill, fitted.samples, fitted.seconds, learned),
        seconds=clock.seconds,
        seed=seed,
        config={
            "search": _plain(search),
            "cosets": _plain(cosets),
            "predictor": _plain(predictor),
            "tolerance": tolerance,
            "targets": best.question.words or "as the action says",
        },
        curves={**{f"predictor {k}": v for k, v in fitted.curves.items()}, **found.curves},
        chart_generators=found.chart_basis,
        proposed=problem.units.to_raw(found.basis).cpu(),
        proposed_cosets=None if best.proposal is None else problem.units.to_raw(best.proposal.matrices).cpu(),
        frames=frames,
        sizes=None if problem.is_field else _sizes(problem),
    )


def _sizes(problem: Problem) -> Tensor:
    """Sizes of the terms `d/dx_i` and `x_j d/dx_i` in units of the spread of x_i, `(n, 1 + n)`."""
    n = problem.samples.size
    spread = torch.linalg.inv(problem.units.frame[:n, :n]).norm(dim=1)
    return torch.cat([torch.ones(1, dtype=torch.float64), spread]) / spread[:, None]


def _in_raw_units(problem: Problem, generators: Conclusion, cosets: Tensor) -> tuple[Group, list[str]]:
    """The group of generators and cosets in standard units, as it acts on raw data, and where its centre is."""
    algebra = LieAlgebra(generators.matrices)
    standard = Group(algebra, cosets, affine=problem.homogeneous, noise=generators.noise)
    group = standard.conjugate(torch.linalg.inv(problem.units.frame))
    if not problem.homogeneous:
        return group, []
    ambient = problem.ambient
    basis, elements = ambient.tidy_generators(group.algebra.basis), ambient.tidy_elements(group.cosets)
    tidied = Group(LieAlgebra(basis), elements, tolerance=group.tolerance, affine=True)
    tidied.__dict__["identification"] = group.identification
    point = fixed_point(standard)
    if point is None:
        return tidied, []
    raw = problem.units.raw_inputs(point).tolist()
    return tidied, [f"the centre is ({', '.join(f'{v:.3g}' for v in raw)})"]


def _with_targets(x: Any, action: Action | None, rho_out: Targets) -> Action | None:
    """The action, with the representation of the targets where it was given as a function of matrices."""
    if getattr(action, "rho_out", None) is not None and rho_out not in ("auto", None):
        raise InputError("`rho_out` must be left out where `action` has one of its own; give it once.")
    if not callable(rho_out):
        return action
    if action is None:
        axes = len(getattr(x, "shape", ()))
        action = GridAction(dimensions=axes - 2) if axes > 3 else VectorAction()
    if not isinstance(action, GridAction | VectorAction):
        raise InputError("`rho_out` must be left out where `action` is neither a GridAction nor a VectorAction.")
    return replace(action, rho_out=rho_out)


def _notes(problem: Problem, best: Attempt) -> list[str]:
    """What a reader should know about the question that was asked."""
    outputs = 0 if problem.classes else len(problem.units.outputs)
    fixed = isinstance(problem.action, VectorAction | GridAction) and problem.action.rho_out is None
    if (
        best.question.kind == "given"
        and outputs > 1
        and fixed
        and (problem.is_field or outputs % problem.samples.size == 0)
    ):
        kind = "channels" if problem.is_field else "numbers"
        return [
            f"the {outputs} {kind} of the targets were taken as {outputs} invariants; where they are components of a "
            "vector that transforms with the inputs, pass rho_out='vector'"
        ]
    return []


def _somewhere(weights: Tensor) -> list[str]:
    """Says so where a symmetry is one of some charts only."""
    held = int((weights > 0).sum())
    note = f"this is said of {held} of {len(weights)} charts; the others are outlier charts"
    return [] if held == len(weights) else [note]


def _chart_findings(
    problem: Problem, generators: Conclusion, weights: Tensor, skills: Tensor
) -> tuple[ChartFinding, ...]:
    """The strength of the breaking on every chart under the pooled group, and whether it is an outlier."""
    charts = problem.samples.atlas.charts
    strengths = torch.full((len(charts),), math.nan, dtype=torch.float64)
    if generators.kept:
        strengths = torch.stack([f.charts for f in generators.kept]).amax(0)
    shape = tuple(problem.samples.x.shape[2:])
    findings = []
    for chart, strength, skill, weight in zip(
        charts, strengths.tolist(), skills.tolist(), weights.tolist(), strict=True
    ):
        outlier = weight == 0
        known = f"a breaking of {strength:.0%}" if strength == strength else "another law"
        reason = f"{known}, where other charts share a symmetry" if outlier else ""
        findings.append(ChartFinding(tuple(chart.locate(shape)), strength, outlier, skill, reason))
    return tuple(findings)


def discover_generators(
    x: Any, y: Any = None, *, search: Search | None = None, seed: int = 0, **options: Any
) -> LieAlgebra:
    """The continuous part alone, without verdict: a lower door for people who build on it.

    Arguments:
        x: Inputs.
        y: Targets.
        search: How to search.
        seed: Seed of every random stream.
        options: `function`, `atlas`, `action`, `predictor` and `progress`, as in `discover`.
    """
    options["progress"] = shown = options.get("progress") or Silent()
    problem, _ = prepare(x, y, seed=seed, **options)
    found = (search or SpectralSearch()).find(problem, seed=seed, progress=shown)
    judge = Judge(problem, TOLERANCE, seed=seed, progress=shown, weights=found.weights)
    nothing = torch.zeros(0, problem.size, problem.size, dtype=torch.float64)
    basis, _ = next(promising(judge, found), (nothing, ()))
    return LieAlgebra(problem.units.to_raw(basis))


def discover_cosets(
    x: Any, y: Any = None, *, algebra: LieAlgebra, cosets: CosetSearch | None = None, seed: int = 0, **options: Any
) -> CosetCandidates:
    """Candidates for the discrete part alone, given the continuous one.

    Arguments:
        x: Inputs.
        y: Targets.
        algebra: The continuous part.
        cosets: How to search.
        seed: Seed of every random stream.
        options: `function`, `atlas`, `action`, `predictor` and `progress`, as in `discover`.
    """
    options["progress"] = shown = options.get("progress") or Silent()
    problem, _ = prepare(x, y, seed=seed, **options)
    units = problem.units
    inside = LieAlgebra(units.to_standard(algebra.basis))
    found = (cosets or CosetSearch()).find(problem, inside, seed=seed, progress=shown)
    return replace(found, matrices=units.to_raw(found.matrices))


def _plain(value: Any) -> Any:
    """A strategy object as plain values, with its name."""
    if not is_dataclass(value) or isinstance(value, type):
        return None if value is None else str(value)
    return {
        "kind": type(value).__name__,
        **{k: str(v) if not isinstance(v, int | float | bool | type(None)) else v for k, v in asdict(value).items()},
    }
