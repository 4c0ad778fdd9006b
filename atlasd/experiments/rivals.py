"""How rivals are asked: their own claim is kept, and our verdict is asked after the clock has stopped."""

from __future__ import annotations

__all__ = ["ask_data", "ask_map"]

from dataclasses import replace
from typing import Any

from atlasd.algebra.lie import LieAlgebra
from atlasd.baselines.liegan import LieGAN
from atlasd.discovery.conclude import settle_generators
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.problem import Problem, prepare
from atlasd.discovery.search import Found, Search
from atlasd.discovery.verdict import Court
from atlasd.experiments.compare import Answer
from atlasd.runtime.progress import Silent


def ask_map(
    search: Search,
    x: Any,
    y: Any = None,
    *,
    tolerance: float,
    seed: int,
    cosets: CosetSearch | None = None,
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
        options: `function`, `atlas`, `action` and `predictor`, as in `discover`.
    """
    problem, _ = prepare(x, y, seed=seed, progress=Silent(), **options)
    found = search.find(problem, seed=seed, progress=Silent())
    components = 1
    if cosets is not None:
        candidates = cosets.find(problem, LieAlgebra(found.basis), seed=seed)
        # A residual is a square, a tolerance an amplitude.
        components = int((candidates.errors <= tolerance**2).sum())
    return Answer(
        problem.units.to_raw(found.basis),
        components,
        confirm=lambda: _confirmed(problem, found, tolerance, seed),
        note="; ".join(found.notes),
    )


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
    found = search.find_in_data(x, y, atlas=None if whole else options.get("atlas"), seed=seed)

    def confirm() -> int:
        problem, _ = prepare(*(judged or (x, y)), seed=seed, progress=Silent(), **options)
        inside = replace(found, basis=problem.units.to_standard(found.basis))
        return _confirmed(problem, inside, tolerance, seed)

    return Answer(found.basis, confirm=confirm, note="; ".join(found.notes))


def _confirmed(problem: Problem, found: Found, tolerance: float, seed: int) -> int:
    """How many of a rival's generators pass our verdict."""
    court = Court(problem, tolerance, seed=seed, progress=Silent(), weights=found.weights)
    return len(settle_generators(court, found).matrices)
