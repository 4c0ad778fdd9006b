"""arctan((y + 0.1) / x): the identity is exact, the half-turn only nearly a symmetry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.result import Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.runtime.progress import Progress
from atlasd.studies.config import option
from atlasd.studies.record import Extras
from atlasd.studies.toys.functions import toy
from atlasd.studies.toys.run import FunctionConfig, discover_toy, element_errors

# An element this far from the half-turn is another one.
_NEAR_DEG = 20.0


@dataclass(frozen=True, kw_only=True)
class ArctanConfig(FunctionConfig):
    """Settings of the arctan experiment."""

    # The paper gives the top 24 and no K; twice as many, as for heat and D4.
    PAPER: ClassVar[Mapping[str, Any]] = {"published": True, "cosets": "gradient", "starts": 48, "top": 24}

    samples: int = option(4000, "random inputs", least=8)
    top: int = option(24, "most components that are kept", least=1)

    def make_search(self) -> SpectralSearch | GradientSearch:
        """None for generators: as in the paper, the discrete part is asked for.

        Scaling is another approximate symmetry of this function, with a breaking near the usual tolerance; whether it
        counts would decide between C2 and R+ with two components.
        """
        if self.search == "spectral":
            return SpectralSearch(generators=0)
        return super().make_search()


CONFIG = ArctanConfig
REPORTED = {"identity": True, "half_turn": True, "top": 24, "note": "some variability between runs"}
"""What the paper reports, for comparison only."""


def run(config: ArctanConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Finds both elements, the half-turn with its larger breaking."""
    function = toy("arctan")
    found = discover_toy(function, config, seed, progress)
    identity = torch.eye(2, dtype=torch.float64)
    errors, nearest = element_errors(found.cosets, torch.stack([identity, -identity]))
    half_turns = [k for k, place in enumerate(nearest) if place == 1 and errors[k] <= _NEAR_DEG]
    best = min(half_turns, key=lambda k: errors[k], default=None)
    verdicts = found.verdict.cosets
    known = best is not None and len(verdicts) == len(found.cosets)
    metrics = {
        "group": found.answer,
        "dimension": found.group.dimension,
        "elements": found.group.components,
        "identity": any(place == 0 and errors[k] <= _NEAR_DEG for k, place in enumerate(nearest)),
        "half_turn": best is not None,
        "half_turn_deg": None if best is None else errors[best],
        "half_turn_strength": verdicts[best].strength if known and best is not None else None,
    }
    if found.proposed_cosets is not None:
        errors, nearest = element_errors(found.proposed_cosets, torch.stack([identity, -identity]))
        near = {place for place, error in zip(nearest, errors, strict=True) if error <= _NEAR_DEG}
        metrics |= {"proposed": len(errors), "proposed_identity": 0 in near, "proposed_half_turn": 1 in near}
    return found, Extras(metrics, REPORTED)
