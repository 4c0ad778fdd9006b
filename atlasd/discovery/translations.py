"""Whether translations would add to a group of matrices: asked of the same maps, and said beside the answer."""

from __future__ import annotations

__all__ = ["more_with_translations"]

from dataclasses import replace

import torch

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import settle_generators
from atlasd.discovery.problem import Problem
from atlasd.discovery.spectral import SpectralSearch
from atlasd.discovery.trial import Trial
from atlasd.discovery.verdict import Court
from atlasd.geometry.actions import VectorAction
from atlasd.geometry.affine import AffineAction


def more_with_translations(best: Trial, search: SpectralSearch) -> list[str]:
    """A note, where affine maps make up a larger group than linear ones.

    Asked where outputs are invariant and the map feels every component; a full search and verdict follow only where
    first order leaves room for more generators than were found.

    Arguments:
        best: The question about linear maps, with its answer.
        search: How generators are searched for.
    """
    problem, court = best.problem, best.court
    if problem.is_field or problem.action != VectorAction() or not best.testable or best.found.felt is not None:
        return []
    posed = _with_translations(problem)
    found = search.find(posed, seed=best.seed, progress=best.shown)
    known = len(best.generators.matrices)
    room = [v for v in found.spectrum if v <= court.tolerance**2]
    if len(room) <= known:
        return []
    wider = settle_generators(Court(posed, court.tolerance, seed=best.seed, progress=best.shown), found)
    if len(wider.matrices) <= known:
        return []
    group = Group(LieAlgebra(wider.matrices), affine=True, noise=wider.noise)
    count = len(wider.matrices)
    return [
        f"with translations there is more: {count} generator{'s' * (count > 1)} in place of {known}, {group.name}; "
        "pass action=ad.AffineAction()"
    ]


def _with_translations(problem: Problem) -> Problem:
    """The same maps and data, with translations beside linear maps."""
    frame = torch.block_diag(problem.units.frame, torch.ones(1, 1, dtype=torch.float64))
    samples = replace(problem.samples, units=replace(problem.units, frame=frame))
    return replace(problem, samples=samples, action=AffineAction())
