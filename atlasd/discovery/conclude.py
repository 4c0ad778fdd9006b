"""From proposals to a group: what passes is closed from the best, judged, and put into words."""

from __future__ import annotations

__all__ = [
    "Settled",
    "commuting",
    "describe_extent",
    "exact_first",
    "promising",
    "settle_cosets",
    "settle_generators",
    "words",
]

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from atlasd.algebra.basis import standard_form
from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.cosets import CosetSearch, Proposed
from atlasd.discovery.decide import Finding, approximate, exact_class
from atlasd.discovery.result import Direction, Verdict
from atlasd.discovery.search import Found
from atlasd.discovery.verdict import Court
from atlasd.limits import APART, EXACT
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
        noise: Error of a generator, relative to its size, within which the data agree with the one that gives the name.
        named: Generators of the algebra with a name that the data agree with, `(k, n, n)`; `None` where there is none.
    """

    matrices: Tensor
    kept: list[Finding]
    dropped: list[Finding]
    notes: tuple[str, ...] = field(default=())
    noise: float = 0.03
    named: Tensor | None = None


def promising(court: Court, found: Found) -> Iterator[tuple[Tensor, tuple[str, ...]]]:
    """Algebras that the best candidates span, the largest first, in standard form.

    A span that is nearly closed is moved to exact closure, but not where that spoils what was better: a worse candidate
    never drives out a better one.
    """
    if not len(found.basis):
        return
    if found.fixed:
        yield in_standard_form(court, found.basis.double()), ()
        return
    quick, error = court.strengths(found.basis)
    order = quick.argsort()
    quick, error, basis = quick[order], error[order], found.basis[order].double()
    near = int((quick <= 2 * court.tolerance).sum())
    best = next((k for k in range(1, near) if apart(quick[:k], quick[k], error[:k].max(), court.floor)), near)
    notes: tuple[str, ...] = ()
    for k in range(best, 0, -1):
        algebra = closed(basis[:k])
        if algebra is not None:
            made = in_standard_form(court, algebra)
            moved, unsure = court.strengths(made)
            clearly = float((moved.square() - unsure.square()).max().clamp_min(0.0).sqrt())
            if clearly <= max(1.5 * float(quick[k - 1]), court.tolerance / 4) or k == 1:
                yield made, notes
                continue
        notes = ("some candidates were left out: their brackets leave the span",)


def apart(better: Tensor, worse: Tensor, error: Tensor, floor: float) -> bool:
    """Whether a strength is clearly of another class than better ones `(k,)`, which are known up to an error."""
    return float(worse) > APART * max(float(better.max()), float(error), floor)


def settle_generators(court: Court, found: Found) -> Settled:
    """The largest algebra that passes the verdict, of promising candidates or of those among them that pass."""
    dropped: dict[int, Finding] = {}
    notes = found.notes
    part: Settled | None = None
    for basis, said in promising(court, found):
        if part is not None and len(part.matrices) >= len(basis):
            return part
        findings = court.generators(basis)
        order = sorted(range(len(findings)), key=lambda i: _rank(findings[i]))
        if not all(f.passed for f in findings):
            # The smallest of nested spans says most about what fails.
            dropped = {i: findings[i] for i in order if not findings[i].passed}
            kept = [i for i in order if findings[i].passed]
            inside = closed(basis[kept]) if kept else None
            if inside is None:
                continue
            inside = in_standard_form(court, inside)
            again = court.generators(inside)
            if all(f.passed for f in again):
                part = max(part, Settled(inside, again, list(dropped.values()), (*notes, *said)), key=_size)
            continue
        count = exact_class([findings[i] for i in order], court.floor)
        best = closed(basis[order[:count]])
        others = list(dropped.values())
        if count < len(order) and best is not None:
            others += [approximate(findings[i]) for i in order[count:]]
            return Settled(basis[order[:count]], [findings[i] for i in order[:count]], others, (*notes, *said))
        return Settled(basis, findings, others, (*notes, *said))
    if part is not None:
        return part
    n = court.problem.size
    nothing = torch.zeros(0, n, n, dtype=torch.float64)
    if not dropped and len(found.basis):
        # Nothing comes near: the best says by how much.
        best = found.basis[court.strengths(found.basis)[0].argsort()[:1]]
        return Settled(nothing, [], court.generators(best), notes)
    return Settled(nothing, [], list(dropped.values()), notes)


def _size(settled: Settled | None) -> int:
    return 0 if settled is None else len(settled.matrices)


def _rank(finding: Finding) -> float:
    upper = finding.direction.upper
    return math.inf if math.isnan(upper) else upper


def in_standard_form(court: Court, basis: Tensor) -> Tensor:
    """Generators that read best in raw units, spanning the same algebra, in standard units."""
    if not len(basis):
        return basis
    units, tidy = court.problem.units, court.problem.ambient.tidy_generators
    return tidy(units.to_standard(standard_form(tidy(units.to_raw(basis)))))


def closed(basis: Tensor) -> Tensor | None:
    """The algebra that generators `(k, n, n)` span, moved to exact closure; `None` where they are far from one."""
    algebra = LieAlgebra(basis)
    error = algebra.closure_error()
    if len(basis) == 1 or error < 1e-9:
        return algebra.basis
    if error >= _NEAR:
        return None
    moved = algebra.nearest_algebra()
    good = moved.dimension == len(basis) and moved.closure_error() < 1e-3 and moved.distance(algebra) < _NEAR
    return moved.basis if good else None


def settle_cosets(
    court: Court,
    algebra: LieAlgebra,
    search: CosetSearch | Proposed,
    felt: Tensor | None,
    *,
    seed: int,
    progress: Progress,
) -> Settled:
    """Candidates for components, judged like generators, then closed to a group whose products are judged, too."""
    identity = torch.eye(court.problem.size, dtype=torch.float64)[None]
    candidates = search.find(court.problem, algebra, felt=felt, seed=seed, progress=progress).matrices[1:]
    findings = court.elements(candidates, algebra.basis)
    order = sorted(range(len(findings)), key=lambda i: _rank(findings[i]))
    passed = [i for i in order if findings[i].passed]
    dropped = [findings[i] for i in order if i not in passed]
    count = exact_class([findings[i] for i in passed], court.floor)
    dropped += [approximate(findings[i]) for i in passed[count:]]
    good = candidates[passed[:count]]

    def accept(elements: Tensor) -> Tensor:
        return torch.tensor([f.passed for f in court.elements(elements, algebra.basis)], dtype=torch.bool)

    group = Group.close(algebra, torch.cat([identity, good]), accept=accept)
    cosets = court.problem.ambient.tidy_elements(group.cosets)
    return Settled(cosets, court.elements(cosets[1:], algebra.basis), dropped)


def exact_first(
    court: Court, generators: Settled, discrete: Callable[[LieAlgebra], Settled]
) -> tuple[Settled, Settled]:
    """Generators with their cosets, or exact elements alone where every generator is clearly only approximate.

    A polygon with many corners is nearly round: its rotations pass the tolerance, but a few of them are exact.
    """
    kept = generators.kept
    least = min((f.direction.lower for f in kept), default=0.0)
    if least > APART * court.floor:
        alone = discrete(LieAlgebra(generators.matrices[:0]))
        worst = max((f.direction.upper for f in alone.kept), default=math.inf)
        if APART * worst < least:
            others = [*generators.dropped, *(approximate(f) for f in kept)]
            return Settled(generators.matrices[:0], [], others, generators.notes), alone
    # An error of a generator takes away what its algebra has in common with others: equal stretches become unequal.
    return generators, discrete(LieAlgebra(generators.matrices if generators.named is None else generators.named))


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


def commuting(name: str, judged: Sequence[Direction]) -> str:
    """The first sentence of an answer; a breaking that is clearly there is not passed over.

    Arguments:
        name: The name of the group.
        judged: Its generators and elements, all of them symmetries within the tolerance.
    """
    worst = max((d.upper for d in judged), default=0.0)
    least = max((d.lower for d in judged if d.lower > EXACT * d.tolerance), default=0.0)
    if least:
        return (
            f"The map commutes approximately with {name}: a breaking of {least:.1%} to {worst:.1%} on held-out data, "
            "within the tolerance."
        )
    return f"The map commutes with {name}: the breaking is at most {worst:.1%} on held-out data."


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
        reason = commuting(group.name, (*directions, *elements))
        extents = [(d.extent, k) for k, d in enumerate(directions) if d.extent is not None]
        if extents and min(extents)[0] < 1.0:
            extent, k = min(extents)
            reason += f" Judged for {describe_extent(generators.matrices[k], extent)}."
        if near:
            listed = ", ".join(f"{d.strength:.0%}" for d in near[:4])
            reason += f" Approximately, it commutes with more: {len(near)} direction(s) with a breaking of {listed}."
        if open_ones:
            reason += f" {len(open_ones)} more could not be decided: {open_ones[0].reason}."
    elif any(d in open_ones for d in (f.direction for f in generators.dropped)) or (open_ones and not broken):
        reason = f"Cannot tell: {open_ones[0].reason}."
    elif broken:
        least = min(d.lower for d in broken)
        # "No symmetry" would be said of a question that most of the data cannot answer.
        kind = "Not testable" if 2 * unfelt > group.algebra.size**2 else "No symmetry"
        reason = f"{kind}: the least broken direction has a breaking of at least {least:.0%}."
        if open_ones:
            reason += f" Of single elements, {len(open_ones)} could not be decided: {open_ones[0].reason}."
    elif unfelt or any(f.unfelt for f in dropped):
        reason = "Not testable: the outputs are constant, or depend on the same pixel or on too few components only."
    else:
        reason = "Cannot tell: no transformation could be judged."
    if unfelt and group.dimension + len(dropped):
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
