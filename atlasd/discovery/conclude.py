"""From proposals to a group: what passes is closed from the best, judged, and put into words."""

from __future__ import annotations

__all__ = ["Settled", "describe_extent", "promising", "settle_cosets", "settle_generators", "words"]

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from atlasd.algebra.basis import standard_form
from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.result import Direction, Verdict
from atlasd.discovery.search import Found
from atlasd.discovery.verdict import Court, Finding, approximate, exact_class
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

_NEAR = 0.25
"""Closure error beyond which a span is not taken for a noisy algebra."""


@storable()
@dataclass(frozen=True, eq=False)
class Settled:
    """Generators or coset representatives after the verdict, in standard units.

    Arguments:
        matrices: Those that passed, `(k, n, n)`.
        kept: Their findings.
        dropped: Findings of the others.
        notes: What a reader should know.
    """

    matrices: Tensor
    kept: list[Finding]
    dropped: list[Finding]
    notes: tuple[str, ...] = field(default=())


def promising(court: Court, found: Found) -> Tensor:
    """Candidates that a quick look finds near the tolerance, best first, as far as they close."""
    quick = court.strengths(found.basis)
    order = quick.argsort()
    basis = found.basis[order][: int((quick <= 2 * court.tolerance).sum())]
    return closed(basis)[0] if len(basis) else basis


def settle_generators(court: Court, found: Found) -> Settled:
    """The largest algebra that the best candidates span and that passes the verdict; a worse one never drives out a
    better one."""
    basis, notes = found.basis.double(), found.notes
    dropped: list[Finding] = []
    if len(basis) and not found.fixed:
        quick = court.strengths(basis)
        order = quick.argsort()
        basis = basis[order][: int((quick <= 2 * court.tolerance).sum())]
        if not len(basis):
            # Nothing comes near: the best says by how much.
            return Settled(basis, [], court.generators(found.basis[order][:1]), notes)
    while len(basis):
        basis, said = closed(basis, fixed=found.fixed)
        notes = tuple(dict.fromkeys((*notes, *said)))
        basis = in_standard_form(court, basis)
        findings = court.generators(basis)
        order = sorted(range(len(findings)), key=lambda i: _rank(findings[i]))
        passed = [i for i in order if findings[i].passed]
        if len(passed) == len(findings):
            count = exact_class([findings[i] for i in order], court.tolerance)
            best = basis[order[:count]]
            if count < len(order) and LieAlgebra(best).closure_error() < _NEAR:
                dropped += [approximate(findings[i]) for i in order[count:]]
                return Settled(best, [findings[i] for i in order[:count]], dropped, notes)
            return Settled(basis, findings, dropped, notes)
        dropped += [findings[i] for i in order if i not in passed]
        basis = basis[passed]
    return Settled(basis, [], dropped, notes)


def _rank(finding: Finding) -> float:
    upper = finding.direction.upper
    return math.inf if math.isnan(upper) else upper


def in_standard_form(court: Court, basis: Tensor) -> Tensor:
    """Generators that read best in raw units, spanning the same algebra, in standard units."""
    if not len(basis):
        return basis
    units = court.problem.units
    return units.to_standard(standard_form(units.to_raw(basis)))


def closed(basis: Tensor, *, fixed: bool = False) -> tuple[Tensor, tuple[str, ...]]:
    """The largest algebra that the leading generators span, moved to exact closure.

    Arguments:
        basis: Candidates, best first, with shape `(k, n, n)`.
        fixed: Keeps the span as it is.
    """
    notes: tuple[str, ...] = ()
    for k in range(len(basis), 0, -1):
        algebra = LieAlgebra(basis[:k])
        error = algebra.closure_error()
        if fixed or k == 1 or error < 1e-9:
            return algebra.basis, notes
        if error < _NEAR:
            moved = algebra.nearest_algebra()
            if moved.dimension == k and moved.closure_error() < 1e-3 and moved.distance(algebra) < _NEAR:
                return moved.basis, notes
        notes = ("some candidates were left out: their brackets leave the span",)
    return basis[:0], notes


def settle_cosets(
    court: Court, algebra: LieAlgebra, search: CosetSearch, *, seed: int, progress: Progress
) -> Settled:
    """Candidates for components, judged like generators, then closed to a group whose products are judged, too."""
    identity = torch.eye(court.problem.size, dtype=torch.float64)[None]
    candidates = search.find(court.problem, algebra, seed=seed, progress=progress).matrices[1:]
    findings = court.elements(candidates)
    order = sorted(range(len(findings)), key=lambda i: _rank(findings[i]))
    passed = [i for i in order if findings[i].passed]
    dropped = [findings[i] for i in order if i not in passed]
    count = exact_class([findings[i] for i in passed], court.tolerance)
    dropped += [approximate(findings[i]) for i in passed[count:]]
    good = candidates[passed[:count]]

    def accept(elements: Tensor) -> Tensor:
        return torch.tensor([f.passed for f in court.elements(elements)], dtype=torch.bool)

    group = Group.close(algebra, torch.cat([identity, good]), accept=accept)
    return Settled(group.cosets, court.elements(group.cosets[1:]), dropped)


def describe_extent(a: Tensor, extent: float) -> str:
    """How far a generator was judged: in degrees for rotations, as |t| for others.

    Example:
        >>> describe_extent(torch.tensor([[0.0, -1.0], [1.0, 0.0]]), 1.05)
        'rotations up to about 60 degrees'
        >>> describe_extent(torch.eye(2), 0.4)
        'sizes up to |t| about 0.4'
    """
    # A rotation in one plane: antisymmetric, of rank 2. Within about 6 degrees of one is near enough for the word.
    largest = torch.linalg.svdvals(a)
    plane = float((a + a.mT).norm()) < 0.2 * float(a.norm()) and bool((largest[2:] < 0.1 * largest[0]).all())
    if plane:
        return f"rotations up to about {5 * round(math.degrees(extent) / 5)} degrees"
    return f"sizes up to |t| about {extent:.2g}"


def words(
    group: Group, generators: Settled, cosets: Settled, *, unfelt: int, tolerance: float, notes: Sequence[str] = ()
) -> Verdict:
    """The sentence that carries the answer, with the evidence."""
    symmetric = group.dimension > 0 or len(group.cosets) > 1
    kept, dropped = generators.kept, [*generators.dropped, *cosets.dropped]
    directions = [f.direction for f in kept]
    elements = [f.direction for f in cosets.kept]
    open_ones = [f.direction for f in dropped if f.direction.decision == "cannot tell"]
    broken = [f.direction for f in dropped if f.direction.decision == "broken"]
    near = [f.direction for f in dropped if f.direction.decision == "approximate"]
    if symmetric:
        worst = max((d.upper for d in (*directions, *elements)), default=0.0)
        reason = f"The map commutes with {group.name}: the breaking is at most {worst:.1%} on held-out data."
        extents = [(d.extent, k) for k, d in enumerate(directions) if d.extent is not None]
        if extents and min(extents)[0] < 1.0:
            extent, k = min(extents)
            reason += f" Judged for {describe_extent(generators.matrices[k], extent)}."
        if near:
            listed = ", ".join(f"{d.strength:.0%}" for d in near[:4])
            reason += f" Approximately, it commutes with more: {len(near)} direction(s) with a breaking of {listed}."
        if open_ones:
            reason += f" {len(open_ones)} more could not be decided: {open_ones[0].reason}."
    elif open_ones:
        reason = f"Cannot tell: {open_ones[0].reason}."
    elif broken:
        least = min(d.lower for d in broken)
        reason = f"No symmetry: every direction is broken, the least by at least {least:.0%}; the tolerance is {tolerance:.0%}."
    elif unfelt or any(f.unfelt for f in dropped):
        reason = "Not testable: nothing in the data feels the transformations that could be symmetries."
    else:
        reason = "No symmetry: no transformation comes near."
    if unfelt:
        reason += f" {unfelt} direction(s) could not be tested: nothing in the data feels them."
    reason += "".join(f" Note: {note}." for note in dict.fromkeys((*notes, *generators.notes)))
    return Verdict(
        symmetric=symmetric,
        reason=reason,
        directions=tuple(directions),
        cosets=(_identity(tolerance), *elements),
        rejected=tuple(f.direction for f in dropped),
    )


def _identity(tolerance: float) -> Direction:
    return Direction(0.0, 0.0, 0.0, 1.0, 1.0, "symmetry", "the identity", tolerance)
