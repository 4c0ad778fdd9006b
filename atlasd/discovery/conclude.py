"""From proposed generators and elements to a closed group, best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from atlasd.algebra.basis import standard_form
from atlasd.algebra.group import Group
from atlasd.algebra.group_names import spoken
from atlasd.algebra.identify import identify
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.structure import spans
from atlasd.discovery.cosets import CosetSearch, Proposed
from atlasd.discovery.decide import Finding, approximate, exact_class
from atlasd.discovery.problem import Proposal
from atlasd.discovery.result import Direction, Verdict
from atlasd.discovery.verdict import Judge
from atlasd.limits import APART, EXACT, MOST
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress

_NEAR = 0.25
"""Closure error beyond which a span is not taken for a noisy algebra."""


@storable()
@dataclass(frozen=True, eq=False)
class Conclusion:
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

    @property
    def undecided(self) -> bool:
        """Whether some generator or element could not be decided."""
        return any(f.direction.decision == "cannot tell" for f in self.dropped)


class Kind(NamedTuple):
    """How spans are closed, `None` if far from it; how they are written; the strength up to which all are exact."""

    close: Callable[[Tensor], Tensor | None]
    read: Callable[[Judge, Tensor], Tensor]
    floor: float


def promising(judge: Judge, found: Proposal, kind: Kind | None = None) -> Iterator[tuple[Tensor, tuple[str, ...]]]:
    """Algebras that the best candidates span, the largest first, in standard form.

    A span that is nearly closed is moved to exact closure, but not where that spoils what was better: a worse candidate
    never drives out a better one. Algebras are closed under brackets; `kind` may ask for other spans.
    """
    kind = kind or Kind(closed, in_standard_form, judge.floor)
    if not len(found.basis):
        return
    if found.fixed:
        yield kind.read(judge, found.basis.double()), ()
        return
    quick, error = judge.strengths(found.basis)
    order = quick.argsort()
    quick, error, basis = quick[order], error[order], found.basis[order].double()
    near = int((quick <= 2 * judge.tolerance).sum())
    least = (quick.square() - error.square()).clamp_min(0.0).sqrt()
    best = next((k for k in range(1, near) if apart(quick[:k], least[k], error[:k].max(), kind.floor)), near)
    notes: tuple[str, ...] = ()
    for k in range(best, 0, -1):
        made, clearly = None, math.inf
        for span in spans(basis, k, best if kind.close is closed else 0):
            algebra = kind.close(span)
            if algebra is not None:
                read = kind.read(judge, algebra)
                moved, unsure = judge.strengths(read)
                worst = float((moved.square() - unsure.square()).max().clamp_min(0.0).sqrt())
                made, clearly = (read, worst) if worst < clearly else (made, clearly)
        spoiled = clearly > max(1.5 * math.hypot(float(quick[k - 1]), float(error[k - 1])), judge.tolerance / 4)
        if made is not None and (not spoiled or k == 1):
            yield made, notes
        else:
            notes = ("some candidates were left out: their brackets leave the span",)


def apart(better: Tensor, worse: Tensor, error: Tensor, floor: float) -> bool:
    """Whether a strength is clearly of another class than better ones `(k,)`, which are known up to an error."""
    return float(worse) > APART * max(float(better.max()), float(error), floor)


def conclude_generators(judge: Judge, found: Proposal, kind: Kind | None = None) -> Conclusion:
    """The largest algebra that passes the verdict, of promising candidates or of those among them that pass."""
    kind = kind or Kind(closed, in_standard_form, judge.floor)
    dropped: dict[int, Finding] = {}
    notes = found.notes
    part: Conclusion | None = None
    for basis, said in promising(judge, found, kind):
        if part is not None and len(part.matrices) >= len(basis):
            return part
        findings = judge.generators(basis)
        order = sorted(range(len(findings)), key=lambda i: _rank(findings[i]))
        if not all(f.passed for f in findings):
            # The span with the least broken direction says most about what fails, and the smallest of such spans.
            failed = {i: findings[i] for i in order if not findings[i].passed}
            if not dropped or _lowest(failed) <= _lowest(dropped):
                dropped = failed
            kept = [i for i in order if findings[i].passed]
            inside = kind.close(basis[kept]) if kept else None
            if inside is None:
                continue
            inside = kind.read(judge, inside)
            again = judge.generators(inside)
            if all(f.passed for f in again):
                part = max(part, Conclusion(inside, again, list(dropped.values()), (*notes, *said)), key=_size)
            continue
        count = exact_class([findings[i] for i in order], kind.floor)
        best = kind.close(basis[order[:count]])
        others = list(dropped.values())
        if count < len(order) and best is not None:
            others += [approximate(findings[i]) for i in order[count:]]
            return Conclusion(basis[order[:count]], [findings[i] for i in order[:count]], others, (*notes, *said))
        return Conclusion(basis, findings, others, (*notes, *said))
    if part is not None:
        return part
    n = judge.problem.size
    nothing = torch.zeros(0, n, n, dtype=torch.float64)
    if not dropped and len(found.basis):
        # Nothing comes near: the best says by how much.
        best = found.basis[judge.strengths(found.basis)[0].argsort()[:1]]
        return Conclusion(nothing, [], judge.generators(best), notes)
    return Conclusion(nothing, [], list(dropped.values()), notes)


def _size(conclusion: Conclusion | None) -> int:
    return 0 if conclusion is None else len(conclusion.matrices)


def _lowest(findings: Mapping[int, Finding]) -> float:
    """The lower end of the least broken of some directions; 0 where one was not measured."""
    return min(0.0 if math.isnan(f.direction.lower) else f.direction.lower for f in findings.values())


def _rank(finding: Finding) -> float:
    upper = finding.direction.upper
    return math.inf if math.isnan(upper) else upper


def in_standard_form(judge: Judge, basis: Tensor) -> Tensor:
    """Generators that read best along raw axes, spanning the same algebra, in standard units.

    Entries are compared in units of the spread along each axis: in raw units a small one may be rounding of a large
    one.
    """
    if not len(basis):
        return basis
    units, ambient = judge.problem.units, judge.problem.ambient
    tidy = ambient.tidy_generators
    spread = torch.linalg.inv(units.frame)[:, : ambient.block].norm(dim=1)
    spread[ambient.block :] = 1.0
    change = spread / spread[:, None]
    raw = standard_form(tidy(units.to_raw(basis)) * change) / change
    return tidy(units.to_standard(raw / raw.abs().amax((1, 2), keepdim=True)))


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


def conclude_cosets(
    judge: Judge,
    algebra: LieAlgebra,
    most: float,
    *,
    search: CosetSearch | Proposed,
    relevant: Tensor | None,
    seed: int,
    progress: Progress,
) -> Conclusion:
    """Candidates for components, judged like generators, then closed to a group whose products are judged, too.

    Arguments:
        most: The largest strength of those that are looked for.
    """
    identity = torch.eye(judge.problem.size, dtype=torch.float64)[None]
    candidates = search.find(judge.problem, algebra, relevant=relevant, seed=seed, progress=progress).matrices[1:]
    if most < 1:
        # All rotations are candidates where a map is nearly round: a verdict on each would take minutes.
        candidates = candidates[judge.lowest(candidates) <= most]
    findings = judge.elements(candidates, algebra.basis)
    order = sorted(range(len(findings)), key=lambda i: _rank(findings[i]))
    passed = [i for i in order if findings[i].passed]
    dropped = [findings[i] for i in order if i not in passed]
    count = exact_class([findings[i] for i in passed], judge.floor)
    dropped += [approximate(findings[i]) for i in passed[count:]]
    good = candidates[passed[:count]]

    def accept(elements: Tensor) -> Tensor:
        return torch.tensor([f.passed for f in judge.elements(elements, algebra.basis)], dtype=torch.bool)

    group = Group.close(algebra, torch.cat([identity, good]), accept=accept)
    cosets = judge.problem.ambient.tidy_elements(group.cosets)
    return Conclusion(cosets, judge.elements(cosets[1:], algebra.basis), dropped)


def exact_first(
    judge: Judge, generators: Conclusion, discrete: Callable[[LieAlgebra, float], Conclusion]
) -> tuple[Conclusion, Conclusion]:
    """Generators with their cosets, or exact elements alone where every generator is clearly worse than they.

    A polygon with many corners is nearly round: its rotations pass the tolerance, but a few of them are exact. What a
    map of fields gets wrong may have the symmetry of the grid, and makes its elements look better.
    """
    kept = generators.kept
    undecided = not kept and generators.undecided
    nothing, near = generators.matrices[:0], dict(enumerate(generators.dropped if undecided else kept))
    least = _lowest(near) if near else 0.0
    if least > APART * judge.floor and not (judge.problem.is_field and least <= judge.hidden):
        alone = discrete(LieAlgebra(nothing), least / APART)
        worst = max((f.direction.upper for f in alone.kept), default=math.inf)
        if APART * worst < least:
            others = [*generators.dropped, *(approximate(f) for f in kept)]
            return Conclusion(nothing, [], others, generators.notes), alone
    if undecided:
        # Elements of a continuous part that could not be decided are not to be claimed one by one.
        return generators, Conclusion(torch.eye(judge.problem.size, dtype=torch.float64)[None], [], [])
    # An error of a generator takes away what its algebra has in common with others: equal stretches become unequal.
    named = LieAlgebra(generators.matrices if generators.named is None else generators.named)
    return generators, discrete(named, 1.0)


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
        judged: Its generators and elements, all of them symmetries within the tolerance.
    """
    worst = max((d.upper for d in judged), default=0.0)
    least = max((d.lower for d in judged if d.lower > EXACT * d.tolerance), default=0.0)
    if least:
        return (
            f"The map commutes approximately with {spoken(name)}: a breaking of {least:.1%} to {worst:.1%} on held-out "
            "data, within the tolerance."
        )
    return f"The map commutes with {spoken(name)}: the breaking is at most {worst:.1%} on held-out data."


def words(
    group: Group,
    generators: Conclusion,
    cosets: Conclusion,
    *,
    untested: int,
    tolerance: float,
    notes: Sequence[str] = (),
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
    elif generators.undecided or (open_ones and not broken):
        reason = f"Cannot tell: {open_ones[0].reason}."
    elif broken:
        parts = [f.direction.lower for f in generators.dropped if f.direction.decision == "broken"]
        least = min(parts or [d.lower for d in broken])
        breaking = f"the least broken direction has a breaking of at least {least:.0%}"
        # "No symmetry" would be said of a question that most of the data cannot answer.
        most = 2 * untested > group.algebra.size**2
        kind = "Not testable: of what could be tested," if most else "No symmetry:"
        # What is clearly broken, by however little, is no exact symmetry; what may be exact leaves the question open.
        if any(d.coverage >= MOST and d.lower <= EXACT * tolerance for d in open_ones) and not most:
            kind = "Cannot tell: no continuous symmetry;"
        reason = f"{kind} {breaking}."
        if open_ones:
            reason += f" Of single elements, {len(open_ones)} could not be decided: {open_ones[0].reason}."
    elif untested or any(f.untested for f in dropped):
        reason = "Not testable: the outputs are constant, or depend on the same pixel or on too few components only."
    else:
        reason = "Cannot tell: no transformation could be judged."
    if untested and group.dimension + len(dropped):
        reason += f" {untested} direction(s) could not be tested: nothing in the data depends on them."
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


_NOISE = (0.03, 0.1)
"""Errors of generators that are allowed for, the smaller first; whether the data agree is for the verdict to say."""


def consistent(judge: Judge, conclusion: Conclusion) -> Conclusion:
    """Says which algebra with a name is nearest, and how far away, where the data cannot tell the two apart.

    A measured generator is never exact: a rotation comes out as a spiral of a few per mille. Generators stay as they
    were measured. The data agree with the named algebra if its breaking lies within the interval of the measured one.

    Arguments:
        conclusion: Generators that passed, in standard units.
    """
    if not conclusion.kept:
        return conclusion
    measured = LieAlgebra(judge.problem.units.to_raw(conclusion.matrices))
    for noise in _NOISE:
        found = identify(measured, noise)
        if found.algebra is None or found.algebra.dimension != len(conclusion.matrices):
            continue
        apart = measured.distance(found.algebra)
        if apart < 1e-6:
            return conclusion
        basis = in_standard_form(judge, judge.problem.units.to_standard(found.algebra.basis))
        findings = judge.generators(basis)
        limit = max(max(f.direction.upper for f in conclusion.kept), judge.floor)
        if all(f.passed and f.direction.strength <= limit for f in findings):
            degrees = math.degrees(math.asin(min(apart, 1.0)))
            note = f"consistent with an exact {found.name}, {degrees:.1f} degrees from what was measured"
            notes = (*conclusion.notes, note) if degrees >= 0.05 else conclusion.notes
            return replace(conclusion, notes=notes, noise=noise, named=basis)
    return conclusion
