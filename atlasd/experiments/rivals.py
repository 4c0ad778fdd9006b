"""How rivals are asked: their own claim is kept, and our verdict is asked after the clock has stopped."""

from __future__ import annotations

__all__ = ["ask_data", "ask_map"]

from typing import Any

from atlasd.algebra.lie import LieAlgebra
from atlasd.baselines.liegan import LieGAN
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.judge import judge_generators
from atlasd.discovery.search import Found, Search
from atlasd.discovery.setup import Setup, prepare
from atlasd.experiments.compare import Answer
from atlasd.runtime.progress import Silent


def ask_map(
    search: Search, x: Any, y: Any = None, *, seed: int, cosets: CosetSearch | None = None, **options: Any
) -> Answer:
    """Asks a search that looks at a predictor, or at the exact map.

    Arguments:
        search: The rival.
        x: Inputs.
        y: Targets.
        seed: Seed of every random stream.
        cosets: The rival's search for the discrete part, if it has one.
        options: `function`, `atlas`, `action` and `predictor`, as in `discover`.
    """
    setup = prepare(x, y, seed=seed, progress=Silent(), **options)
    # A rival has no gates: it is asked even where the predictor has no skill.
    found = search.find(setup.problem, seed=seed, progress=Silent())
    components = 1
    if cosets is not None:
        components = len(cosets.find(setup.problem, LieAlgebra(found.basis), seed=seed, tolerance=search.tolerance))
    return Answer(
        found.basis,
        components,
        confirm=lambda: _confirmed(setup, found, search.tolerance, seed),
        note="; ".join(found.notes),
    )


def ask_data(
    search: LieGAN,
    x: Any,
    y: Any,
    *,
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
        seed: Seed of every random stream.
        judged: Inputs and targets for the verdict, where they are others.
        whole: Whether LieGAN is given whole fields, and charts serve the verdict only.
        options: `atlas`, `action` and `predictor`, as in `discover`, for the verdict.
    """
    found = search.find_in_data(x, y, atlas=None if whole else options.get("atlas"), seed=seed)

    def confirm() -> int:
        setup = prepare(*(judged or (x, y)), seed=seed, progress=Silent(), **options)
        return _confirmed(setup, found, search.tolerance, seed)

    return Answer(found.basis, confirm=confirm, note="; ".join(found.notes))


def _confirmed(setup: Setup, found: Found, tolerance: float, seed: int) -> int:
    return judge_generators(setup, found, tolerance, seed).algebra.dimension
