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
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import chart_findings, conclude, without_lost_charts
from atlasd.discovery.cosets import CosetCandidates, CosetSearch
from atlasd.discovery.film import film
from atlasd.discovery.judge import judge_cosets, judge_generators
from atlasd.discovery.result import Discovery, PredictorSummary
from atlasd.discovery.search import Found, Search
from atlasd.discovery.setup import prepare
from atlasd.discovery.spectral import SpectralSearch
from atlasd.errors import InputError
from atlasd.geometry.actions import Action
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.executor import About, TaskFailed, working
from atlasd.runtime.progress import Progress, Silent, Terminal
from atlasd.runtime.stages import current_stages, fingerprint


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
    for name, given, kind, method in (
        ("predictor", predictor, "StencilPredictor()", "fit"),
        ("search", search, "SpectralSearch()", "find"),
        ("cosets", cosets, "CosetSearch()", "find"),
    ):
        if given is not None and (isinstance(given, type | str) or not callable(getattr(given, method, None))):
            raise InputError(f"`{name}` must be an object like {kind}, got {given!r}; leave it out for the default.")
    with working(executor):
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


def _discover(x: Any, y: Any, *, atlas: Atlas | None = None, shown: Progress, **rest: Any) -> Discovery:
    """Discovers; charts whose tasks fail for good are left out, and the answer is given from the others."""
    charts = list(range(len(atlas))) if atlas is not None else [0]
    lost: dict[int, str] = {}
    while True:
        try:
            part = atlas if atlas is None or not lost else atlas.select(charts)
            found = _attempt(x, y, atlas=part, shown=shown, **rest)
            return found if atlas is None or not lost else without_lost_charts(found, atlas, lost)
        except TaskFailed as failure:
            about = failure.about
            if not isinstance(about, About) or len(about.charts) >= len(charts):
                raise
            gone = {charts[k]: failure.cause for k in about.charts}
            shown.say(f"charts {', '.join(map(str, gone))} are left out, {about} failed: {failure.cause}")
            lost |= gone
            charts = [k for k in charts if k not in lost]


def _attempt(
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
    stages = current_stages()
    stages.enter(fingerprint(x, y, seed, atlas, action, predictor, search, cosets))

    started = time.perf_counter()
    setup = prepare(x, y, function=function, atlas=atlas, action=action, predictor=predictor, seed=seed, progress=shown)
    seconds["predictor"] = time.perf_counter() - started
    problem, gates = setup.problem, setup.gates

    started = time.perf_counter()
    empty = torch.zeros(0, problem.size, problem.size, dtype=torch.float64)
    refused = gates.refusal() is not None
    found = Found(empty) if refused else stages.do("search", lambda: search.find(problem, seed=seed, progress=shown))
    seconds["search"] = time.perf_counter() - started

    started = time.perf_counter()
    judged = stages.do("verdict", lambda: judge_generators(setup, found, search.tolerance, seed))
    seconds["verdict"] = time.perf_counter() - started

    started = time.perf_counter()
    group, coset_directions, rejected = stages.do(
        "cosets",
        lambda: judge_cosets(
            setup,
            judged.algebra,
            None if judged.withheld else cosets,
            search.tolerance,
            judged.weights,
            seed,
            shown,
            undecided=any(d.decision == "cannot tell" for d in judged.dropped),
        ),
    )
    seconds["cosets"] = time.perf_counter() - started

    started = time.perf_counter()
    frames = film(setup, group, judged.weights)
    seconds["frames"] = time.perf_counter() - started

    verdict = conclude(gates, judged, group, coset_directions, rejected, found)
    fitted = setup.predictor
    return Discovery(
        group=group,
        verdict=verdict,
        charts=chart_findings(setup, judged),
        spectrum=found.spectrum,
        predictor=PredictorSummary(fitted.kind, fitted.skill, fitted.samples, fitted.seconds),
        seconds=seconds,
        seed=seed,
        config={"search": _plain(search), "cosets": _plain(cosets), "predictor": _plain(predictor)},
        curves={**{f"predictor {k}": v for k, v in fitted.curves.items()}, **found.curves},
        chart_generators=found.chart_basis,
        proposed=found.basis,
        frames=frames,
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


def _plain(value: Any) -> Any:
    """A strategy object as plain values, with its name."""
    if not is_dataclass(value) or isinstance(value, type):
        return None if value is None else str(value)
    return {
        "kind": type(value).__name__,
        **{k: str(v) if not isinstance(v, int | float | bool | type(None)) else v for k, v in asdict(value).items()},
    }
