"""The simplest algebra that the data are consistent with: a named one near what was measured, if it is no worse."""

from __future__ import annotations

__all__ = ["consistent"]

import math
from dataclasses import replace

from atlasd.algebra.identify import identify
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import Settled, in_standard_form
from atlasd.discovery.verdict import Court

_NOISE = (0.03, 0.1)
"""Errors of generators that are allowed for, the smaller first; whether the data agree is for the verdict to say."""


def consistent(court: Court, settled: Settled) -> Settled:
    """Says which algebra with a name is nearest, and how far away, where the data cannot tell the two apart.

    A measured generator is never exact: a rotation comes out as a spiral of a few per mille. Generators stay as they
    were measured. The data agree with the named algebra if its breaking lies within the interval of the measured one.

    Arguments:
        court: Where it is judged.
        settled: Generators that passed, in standard units.
    """
    if not settled.kept:
        return settled
    measured = LieAlgebra(court.problem.units.to_raw(settled.matrices))
    for noise in _NOISE:
        found = identify(measured, noise)
        if found.algebra is None or found.algebra.dimension != len(settled.matrices):
            continue
        apart = measured.distance(found.algebra)
        if apart < 1e-6:
            return settled
        basis = in_standard_form(court, court.problem.units.to_standard(found.algebra.basis))
        findings = court.generators(basis)
        limit = max(max(f.direction.upper for f in settled.kept), court.floor)
        if all(f.passed and f.direction.strength <= limit for f in findings):
            degrees = math.degrees(math.asin(min(apart, 1.0)))
            note = f"consistent with an exact {found.name}, {degrees:.1f} degrees from what was measured"
            notes = (*settled.notes, note) if degrees >= 0.05 else settled.notes
            return replace(settled, notes=notes, noise=noise, named=basis)
    return settled
