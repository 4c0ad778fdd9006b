"""abs(x) + abs(y): no continuous symmetry, and the eight elements of D4."""

from __future__ import annotations

from atlasd.discovery.result import Discovery
from atlasd.runtime.progress import Progress
from atlasd.studies.record import Extras
from atlasd.studies.toys.functions import toy
from atlasd.studies.toys.run import FunctionConfig, discover_toy, element_errors

CONFIG = FunctionConfig
REPORTED = {"elements": 8, "starts": 256, "top": 128}
"""What the paper reports, for comparison only."""


def run(config: FunctionConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Finds the elements and measures how far each lies from the nearest true one."""
    square = toy("d4")
    found = discover_toy(square, config, seed, progress)
    errors, nearest = element_errors(found.cosets, square.group.cosets)
    metrics = {
        "group": found.answer,
        "dimension": found.group.dimension,
        "elements": found.group.components,
        "distinct": len(set(nearest)),
        "largest_error_deg": max(errors),
        "errors_deg": errors,
    }
    if found.proposed_cosets is not None:
        errors, nearest = element_errors(found.proposed_cosets, square.group.cosets)
        metrics |= {"proposed": len(errors), "proposed_distinct": len(set(nearest)), "proposed_deg": max(errors)}
    return found, Extras(metrics, REPORTED)
