"""How rivals are asked: their own claim is kept, and our verdict is asked after the clock has stopped."""

from __future__ import annotations

__all__ = ["ask_data", "ask_map", "published_on_charts"]

from dataclasses import replace
from typing import Any

from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import settle_generators
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.prepare import prepare
from atlasd.discovery.problem import Problem
from atlasd.discovery.search import Found, Search
from atlasd.discovery.verdict import Court
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Silent
from atlasd.studies.rivals.compare import Answer
from atlasd.studies.rivals.liegan import LieGAN


def published_on_charts(**changes: Any) -> GradientSearch:
    """The paper's search with growth counted once for each chart, and its code's limit on entries.

    Word by word, with the sum over charts, its generators collapse to zero on heat; the authors' do not.
    """
    return GradientSearch.published(charts="mean", clip="entries", **changes)


def ask_map(
    search: Search,
    x: Any,
    y: Any = None,
    *,
    tolerance: float,
    seed: int,
    cosets: CosetSearch | None = None,
    network: PredictorSpec | None = None,
    **options: Any,
) -> Answer:
    """Asks a search that looks at a predictor, or at the exact map.

    Arguments:
        search: The rival.
        x: Inputs.
        y: Targets.
        tolerance: That of our verdict.
        seed: Seed of every random stream.
        cosets: The rival's search for the discrete part, if it has one.
        network: Recipe of networks that learn with the generators, for the paper's search; the predictor of `options`
            then serves our verdict only.
        options: `function`, `atlas`, `action` and `predictor`, as in `discover`.
    """
    if network is None:
        problem, _ = prepare(x, y, seed=seed, progress=Silent(), **options)
        found = search.find(problem, seed=seed, progress=Silent())
    else:
        assert isinstance(search, GradientSearch)
        kind = {name: options[name] for name in ("atlas", "action") if name in options}
        problem, found = search.find_in_data(x, y, predictor=network, seed=seed, **kind)

    def judged() -> Tensor:
        fitted = problem if network is None else prepare(x, y, seed=seed, progress=Silent(), **options)[0]
        return _judged(fitted, found if network is None else replace(found, function=None), tolerance, seed)

    components = 1
    if cosets is not None:
        candidates = cosets.find(problem, LieAlgebra(found.basis), seed=seed)
        # The published search claims all that it proposes, ours those near a symmetry; a residual is a square.
        components = len(candidates) if cosets.regardless else int((candidates.errors <= tolerance**2).sum())
    return Answer(problem.units.to_raw(found.basis), components, judged=judged, note="; ".join(found.notes))


def ask_data(
    search: LieGAN,
    x: Any,
    y: Any,
    *,
    tolerance: float,
    seed: int,
    judged: tuple[Any, Any] | None = None,
    whole: bool = False,
    **options: Any,
) -> Answer:
    """Asks LieGAN, which looks at the data alone; a predictor is fitted for our verdict only.

    Arguments:
        search: The settings of the game.
        x: Inputs that LieGAN looks at.
        y: Targets.
        tolerance: That of our verdict.
        seed: Seed of every random stream.
        judged: Inputs and targets for the verdict, where they are others.
        whole: Whether LieGAN is given whole fields, and charts serve the verdict only.
        options: `atlas`, `action` and `predictor`, as in `discover`, for the verdict.
    """
    charts = None if whole else options.get("atlas")
    found = search.find_in_data(x, y, atlas=charts, action=options.get("action"), seed=seed)

    def left() -> Tensor:
        problem, _ = prepare(*(judged or (x, y)), seed=seed, progress=Silent(), **options)
        return _judged(problem, replace(found, basis=problem.units.to_standard(found.basis)), tolerance, seed)

    return Answer(found.basis, judged=left, note="; ".join(found.notes))


def _judged(problem: Problem, found: Found, tolerance: float, seed: int) -> Tensor:
    """What our verdict leaves of a rival's generators, in raw units."""
    court = Court(problem, tolerance, seed=seed, progress=Silent(), weights=found.weights)
    return problem.units.to_raw(settle_generators(court, found).matrices)
