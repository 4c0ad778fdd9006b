"""How rivals are asked: their own claim is kept, and our verdict is asked after the clock has stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import conclude_generators
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.prepare import prepare
from atlasd.discovery.verdict import Judge
from atlasd.geometry.actions import as_inputs
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Silent
from atlasd.studies.rivals.augmentation import AugmentationLearning
from atlasd.studies.rivals.compare import Answer, Method
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG


@dataclass(frozen=True, eq=False)
class Side:
    """Inputs, targets, and the exact map where it is known."""

    x: Tensor
    y: Tensor
    function: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """How the methods that look for matrices are asked about some data.

    Arguments:
        shared: `atlas`, `action` and `predictor`, as in `discover`, of all that look at predictors, and of the verdict.
        network: Networks that learn with its generators; by default it looks at the shared predictor.
        cosets: The paper's search for the discrete part, if it is asked for.
        liegg: LieGG, or `None` where it cannot answer.
        liegan: LieGAN, which looks at the data alone, and has no charts.
        seen: What LieGAN looks at, if that is a part of the data.
        augmentation: Augmentation learning, if it takes part.
        given: Generators that it learns the widths of, and their names.
        own: Options of single methods in place of the shared ones, by the method's name.
    """

    side: Side
    shared: Mapping[str, Any] = field(default_factory=dict)
    search: GradientSearch
    network: PredictorSpec | None = None
    cosets: CosetSearch | None = None
    liegg: LieGG | None = field(default_factory=LieGG)
    liegan: LieGAN
    seen: Side | None = None
    augmentation: AugmentationLearning | None = None
    given: tuple[Tensor, list[str]] | None = None
    own: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def published_on_charts(**changes: Any) -> GradientSearch:
    """The paper's search with growth counted once for each chart, and its code's limit on entries.

    Word by word, with the sum over charts, its generators collapse to zero on heat; the authors' do not.
    """
    return GradientSearch.published(charts="mean", clip="entries", **changes)


def ask(name: str, plan: Plan, *, tolerance: float, seed: int) -> Answer:
    """The answer of a method to a plan.

    Arguments:
        name: `AtlasD`, `LieGG`, `LieGAN` or `augmentation`.
        plan: The data, and how they are asked about.
    """
    if name == "augmentation":
        return _augmented(plan, seed)
    side, options = plan.side, {**plan.shared, **plan.own.get(name, {})}
    exact = options.pop("exact", side.y is None)

    def fitted(**kind: Any) -> Any:
        truth = {"function": side.function} if exact else {"y": side.y}
        return prepare(side.x, **truth, seed=seed, progress=Silent(), **kind)[0]

    components, problem = 1, None
    if name == "LieGAN":
        assert plan.liegan is not None
        seen = plan.seen or side
        found = plan.liegan.find_in_data(seen.x, seen.y, action=options.get("action"), seed=seed)
        raw = found.basis
    elif name == "AtlasD" and plan.network is not None:
        kind = {key: options[key] for key in ("atlas", "action") if key in options}
        learned, found = plan.search.find_in_data(side.x, side.y, predictor=plan.network, seed=seed, **kind)
        raw = learned.units.to_raw(found.basis)
    else:
        search = plan.search if name == "AtlasD" else plan.liegg
        assert search is not None
        learned = problem = fitted(**options)
        found = search.find(problem, seed=seed, progress=Silent())
        raw = problem.units.to_raw(found.basis)
    if name == "AtlasD" and plan.cosets is not None:
        components = len(plan.cosets.find(learned, LieAlgebra(found.basis), seed=seed))

    def judged() -> Tensor:
        """What our verdict leaves, in raw units."""
        asked = problem or fitted(**{**options, "predictor": plan.shared.get("predictor")})
        judge = Judge(asked, tolerance, seed=seed, progress=Silent(), weights=found.weights)
        claim = replace(found, basis=asked.units.to_standard(raw), function=None)
        return asked.units.to_raw(conclude_generators(judge, claim).matrices)

    return Answer(raw, components, judged=judged, note="; ".join(found.notes))


def _augmented(plan: Plan, seed: int) -> Answer:
    """Augmentation learning, with its widths as a remark."""
    assert plan.augmentation is not None and plan.given is not None
    matrices, names = plan.given
    output = as_inputs if "action" in plan.shared else None
    found, widths = plan.augmentation.find(plan.side.x, plan.side.y, matrices, seed=seed, output=output)
    named = zip(names, widths.tolist(), strict=True)
    shown = [f"{name} {width:.2g}" for name, width in named if width >= plan.augmentation.threshold]
    return Answer(found, note=f"widths: {', '.join(shown) or 'none'}")


def rival_methods(
    plans: Callable[[Any, Any], Sequence[Plan]],
    names: Sequence[str],
    answer: Callable[[Any, Any, int, list[Answer]], Answer] = lambda data, config, seed, parts: parts[0],
) -> dict[str, Method]:
    """Methods that look for matrices, as rows of a table.

    Arguments:
        plans: From data and settings to a plan for every part of the data.
        names: The methods that can answer.
        answer: From data, settings, a seed and the answers for all parts to the answer of the task.
    """

    def method(name: str, data: Any, config: Any, seed: int) -> Answer:
        parts = [ask(name, plan, tolerance=config.tolerance, seed=seed) for plan in plans(data, config)]
        return answer(data, config, seed, parts)

    return {name: partial(method, name) for name in names}
