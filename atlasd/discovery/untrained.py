"""The question without maps, for a search that trains its own networks."""

from __future__ import annotations

__all__ = ["prepare_untrained"]

from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.checked_action import checked_action
from atlasd.discovery.problem import Problem, counted_radius
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.predictor import PredictorSpec
from atlasd.prediction.samples import Samples
from atlasd.prediction.sources import gather


def prepare_untrained(
    x: Any, y: Any, *, predictor: PredictorSpec, atlas: Atlas | None = None, action: Action | None = None
) -> Problem:
    """The question without maps, for a search that trains its own networks.

    Arguments:
        x: Inputs.
        y: Targets.
        predictor: The recipe of the networks.
        atlas: Where the charts lie.
        action: How matrices transform inputs and outputs.
    """
    samples = Samples.check(*gather(x, y), atlas, minimum=20)
    action = checked_action(samples, action)
    plain = not isinstance(action, GridAction | VectorAction)
    samples = samples.plain() if plain else samples.standard()
    assert samples.units is not None
    plan = getattr(predictor, "blueprint", None)
    reach = 0.0 if plan is None else plan(samples).reach
    return Problem(
        functions=(_untrained,),
        fold=torch.zeros(len(samples), dtype=torch.long),
        action=action if plain else samples.units.action(action),
        samples=samples,
        known=False,
        radius=counted_radius(samples, reach, known=False),
        reach=reach,
        classes=samples.classes,
        recipe=predictor,
    )


def _untrained(x: Tensor) -> Tensor:
    raise AssertionError("the search trains its own networks")
