r"""The name of an algebra up to conjugation, with the evidence for it: numbers that conjugation does not change."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from math import exp, inf, log, nan, pi
from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.catalogue import Conjugation, Entry, catalogue, fit_conjugations, orbit_rates
from atlasd.algebra.invariants import invariant_forms, well_conditioned
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.structure import null_rows
from atlasd.errors import InputError

# A span with more of its brackets outside is near no algebra; 3 % of noise gives at most about 0.15.
_LARGEST_CLOSURE_ERROR, _CLOSED = 0.3, 0.15
_STARTS, _MORE_STARTS = 8, 24
# Prior on the logarithm of the condition number of the conjugation, and the noise that rounding leaves.
_SPREAD_WEIGHT = 1.0
_LEAST_NOISE = 1e-8
# Misfit in a well-conditioned frame above which the frame may be an accident of noise.
_ACCIDENT = 0.002
# Log-odds below which two names are not told apart, and the largest that are given.
_LEAST_MARGIN, _LARGEST_MARGIN = 2.0, 999.0


def is_described(name: str) -> bool:
    r"""Whether a name only says what is known of an algebra or a group that has none of its own."""
    return name.startswith("unknown") or bool({"algebra", "group"} & set(name.split()))


@dataclass(frozen=True, eq=False)
class Identification:
    r"""A name and why.

    Attributes:
        name: The name, `trivial`, what is known of its structure ("abelian algebra of dimension 2"), or `unknown (...)`
            where a span is closed too badly or fits two names.
        dimension: Dimension of the algebra.
        closure_error: Share of the brackets outside the span, as given.
        signature: Killing form: numbers of positive, negative and zero eigenvalues.
        forms: What is preserved, in words.
        residual: Root-mean-square sine between the span and the named algebra's nearest conjugate.
        second: The second-best name of the same dimension, empty if there is none.
        margin: Log-odds of the name against `second`, at most 999; 0 if unknown.
        confidence: From 0 (unknown) to 1.
        invariants: Numbers that conjugation does not change; see :mod:`atlasd.algebra.identify`.
        algebra: The named algebra's conjugate nearest to the span, free of noise; `None` if unknown.
        conjugation: S with `algebra` = S (catalogue) S^-1, with shape `(n, n)`; `None` if unknown.

    Example:
        >>> from atlasd.algebra.known import so
        >>> found = identify(so(1, 3))
        >>> found.name, found.signature, found.forms
        ('so(1,3)', (3, 3, 0), '1 symmetric, 0 antisymmetric')
    """

    name: str
    dimension: int
    closure_error: float
    signature: tuple[int, int, int]
    forms: str = ""
    residual: float = 0.0
    second: str = ""
    margin: float = 0.0
    confidence: float = 0.0
    invariants: dict[str, Any] = field(default_factory=dict)
    algebra: LieAlgebra | None = None
    conjugation: torch.Tensor | None = None

    @property
    def known(self) -> bool:
        r"""Whether a name was found."""
        return not is_described(self.name)

    def __str__(self) -> str:
        lines = [
            f"{self.name}  (confidence {self.confidence:.2f})",
            f"  dimension {self.dimension}, closure error {self.closure_error:.3g}, "
            f"Killing signature {self.signature}, invariant forms: {self.forms or 'none'}",
        ]
        fixed = self.invariants.get("fixed_vectors", 0)
        if fixed:
            lines.append(f"  fixed vectors: {fixed}")
        if self.second:
            lines.append(f"  residual {self.residual:.3g}, log-odds {self.margin:.1f} against {self.second}")
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class _Candidate:
    r"""An entry of the catalogue, fitted."""

    entry: Entry
    fit: Conjugation

    def evidence(self, noise: float) -> float:
        r"""Log evidence: that noise of unknown size explains the misfit in `codimension` directions.

        The size has a log-uniform prior up to somewhat more than `noise`. The more special an algebra, the
        more directions in which it risks a misfit, and the more it gains by fitting. A very unequal
        conjugation is unlikely beforehand; but where many of them lead to nearly the same span, as rotations along
        long ellipses do, they count together.
        """
        codimension, largest = self.entry.codimension, log(1.5 * noise / self.entry.algebra.size)
        sizes = torch.linspace(log(_LEAST_NOISE), largest, 100, dtype=torch.float64)
        misfit = self.fit.residual**2 * (-2 * sizes).exp() / 2
        likelihood = torch.logsumexp(-codimension * (sizes + log(2 * pi) / 2) - misfit, dim=0)
        return float(likelihood) - _SPREAD_WEIGHT * self.fit.spread**2 - self._volume

    @cached_property
    def _volume(self) -> float:
        r"""Log-volume of spans that a unit volume of conjugations leads to here, against that in the usual frame."""
        algebras = (LieAlgebra(self.fit.frame), self.entry.algebra)
        here, usual = (orbit_rates(algebra)[: self.entry.orbit] for algebra in algebras)
        return float((here.clamp(min=1e-12).log() - usual.to(here).log()).sum())

    def contests(self, best: _Candidate, noise: float) -> bool:
        r"""Whether this name fits so much closer than `best` that the noise may be smaller than thought."""
        return self.fit.residual < 0.3 * best.fit.residual and self.excess(noise) <= 1

    def excess(self, noise: float) -> float:
        r"""Misfit in units of the largest that `noise` explains; above 1 the name is refused."""
        codimension = self.entry.codimension
        if codimension == 0:
            return 0.0
        # With few equations to satisfy, a random span satisfies them by chance: be strict there.
        factor = {1: 4 / 3, 2: 2.3}.get(codimension, 3.0)
        limit = factor * noise / self.entry.algebra.size * codimension**0.5
        # With S this ill-conditioned the algebra cannot be told from one it contracts to.
        contraction = self.fit.residual * exp(2 * self.fit.spread) / 2
        return max(self.fit.residual / limit, contraction, self.fit.spread / log(100.0))


def identify(value: Any, noise: float = 0.03) -> Identification:
    r"""Names an algebra, or a group, up to conjugation in GL(n, R).

    Ill-conditioned reductive algebras are first brought into a well-conditioned frame. Every catalogue entry of the
    right dimension is then conjugated as near to the span as it will go. The name is
    that of the entry with the best evidence, if `noise` explains its misfit; otherwise `unknown`.

    Arguments:
        value: A :class:`LieAlgebra` or a `Group`.
        noise: Relative Frobenius error to expect in each generator. Larger values name more and
            risk more: a single random 2 x 2 matrix is within 3 % of a traceless one now and then.

    Returns:
        The name with its evidence.

    Example:
        >>> from atlasd.algebra.known import so
        >>> torch.manual_seed(0)
        <torch._C.Generator object at ...>
        >>> identify(so(1, 2).adjoint(torch.eye(3) + 0.3 * torch.randn(3, 3))).name
        'so(1,2)'
    """
    if not 0 < noise < 0.3:
        raise InputError(f"`noise` must lie between 0 and 0.3, got {noise}; 0.03 means 3 per cent.")
    if hasattr(value, "algebra"):
        from atlasd.algebra.group_names import identify_affine, identify_group

        if value.affine:
            return identify_affine(value, noise)
        return identify_group(value, identify(value.algebra, noise))
    if not isinstance(value, LieAlgebra):
        raise InputError(
            f"`value` must be a LieAlgebra or a Group, got {type(value).__name__}; wrap the basis in LieAlgebra."
        )
    if value.dimension == 0:
        return Identification("trivial", 0, 0.0, (0, 0, 0), forms="all", confidence=1.0)
    if value.dimension * value.size**4 > _MOST_NUMBERS:
        why = f"unknown (dim {value.dimension}, of {value.size} x {value.size} matrices, which are too large to name)"
        return Identification(why, value.dimension, nan, (0, 0, 0), forms="unknown")
    change = well_conditioned(value).to(value.basis.device)
    found = _identify(value.adjoint(change), noise)
    if found.algebra is None or found.conjugation is None:
        return found
    if found.residual > _ACCIDENT:
        # A noisy shear is nearly a rotation along a very long ellipse: the frame given must not have another name.
        plain = _identify(value, noise)
        if plain.known and plain.name != found.name:
            why = f"unknown (dim {found.dimension}, {plain.name} or {found.name})"
            return replace(plain, name=why, confidence=0.0, margin=0.0, algebra=None, conjugation=None)
        if " or " in plain.name:
            return plain
    back = torch.linalg.inv(change)
    return replace(found, algebra=found.algebra.adjoint(back), conjugation=back @ found.conjugation)


def _identify(value: LieAlgebra, noise: float) -> Identification:
    r"""The name of an algebra in a well-conditioned frame."""
    closure_error = value.closure_error()
    candidates = _ranked(value, noise, closure_error)
    accepted = [candidate for candidate in candidates[:1] if candidate.excess(noise) <= 1]
    if not accepted:
        return _unknown(value, closure_error, candidates)
    best, margin = candidates[0], _margin(candidates, noise)
    rivals = [rival for rival in candidates[1:] if rival.contests(best, noise)]
    if rivals or margin < _LEAST_MARGIN:
        return _unknown(value, closure_error, [best, *(rivals or candidates[1:])], ambiguous=True)
    invariants = _entry_invariants(best.entry)
    return Identification(
        name=best.entry.name,
        dimension=value.dimension,
        closure_error=closure_error,
        signature=invariants["killing_signature"],
        forms=_describe_forms(invariants),
        residual=best.fit.residual / value.dimension**0.5,
        second=candidates[1].entry.name if len(candidates) > 1 else "",
        margin=margin,
        confidence=(1 - best.excess(noise) ** 2 / 2) * (1 - exp(-margin)),
        invariants=dict(invariants),
        algebra=LieAlgebra(best.fit.frame),
        conjugation=best.fit.matrix,
    )


def _ranked(algebra: LieAlgebra, noise: float, closure_error: float) -> list[_Candidate]:
    r"""The entries of the same dimension, fitted, the best evidence first."""
    entries = catalogue(algebra.size, algebra.dimension) if closure_error <= _LARGEST_CLOSURE_ERROR else ()
    if not entries:
        return []
    candidates: list[_Candidate] = []
    for starts in (_STARTS, _MORE_STARTS):
        sources = [entry.algebra.frame().to(algebra.basis.device) for entry in entries]
        fits = fit_conjugations(algebra.frame(), sources, starts)
        candidates = [_Candidate(entry, fit) for entry, fit in zip(entries, fits, strict=True)]
        candidates.sort(key=lambda candidate: -candidate.evidence(noise))
        if candidates[0].excess(noise) <= 1:
            break
    return candidates


def _margin(candidates: list[_Candidate], noise: float) -> float:
    if len(candidates) < 2:
        return _LARGEST_MARGIN
    return min(candidates[0].evidence(noise) - candidates[1].evidence(noise), _LARGEST_MARGIN)


def _unknown(
    algebra: LieAlgebra, closure_error: float, candidates: list[_Candidate], ambiguous: bool = False
) -> Identification:
    closed = closure_error <= _LARGEST_CLOSURE_ERROR
    # Far from closed, the nearest algebra is nobody's claim, and the span has no structure.
    invariants = gather(algebra.nearest_algebra() if closed else algebra, structure=closed)
    if ambiguous:
        why = f"{candidates[0].entry.name} or {candidates[1].entry.name}"
    elif closure_error > _CLOSED:
        why = f"closure error {closure_error:.2f}"
    else:
        why = ""
    nearest = candidates[0] if candidates else None
    return Identification(
        name=f"unknown (dim {algebra.dimension}, {why})" if why else _structure(algebra.dimension, invariants),
        dimension=algebra.dimension,
        closure_error=closure_error,
        signature=invariants["killing_signature"],
        forms=_describe_forms(invariants),
        residual=nearest.fit.residual / algebra.dimension**0.5 if nearest else inf,
        second=nearest.entry.name if nearest else "",
        invariants=invariants,
    )


def _structure(dimension: int, invariants: dict[str, Any]) -> str:
    r"""What is told of an algebra without a name of its own."""
    if dimension == 1:
        values = invariants["eigenvalues"]
        listed = ", ".join(_show(value) for value in values)
        return f"one-parameter algebra ({describe_eigenvalues(values)}, eigenvalues {listed})"
    inner, centre = invariants["derived_series"][-1], invariants["centre"]
    kinds = {"abelian": centre == dimension, "solvable": not inner, "reductive": inner + centre == dimension}
    return f"{next((kind + ' ' for kind, holds in kinds.items() if holds), '')}algebra of dimension {dimension}"


@lru_cache(maxsize=512)
def _entry_invariants(entry: Entry) -> dict[str, Any]:
    return gather(entry.algebra)


def _describe_forms(invariants: dict[str, Any]) -> str:
    return f"{invariants['symmetric_forms']} symmetric, {invariants['antisymmetric_forms']} antisymmetric"


def _show(value: complex) -> str:
    if value.imag == 0:
        return f"{value.real:.3g}"
    return f"{value.real:.3g}{value.imag:+.3g}i"


_TOLERANCE = 0.1
_MOST_NUMBERS = 1 << 24
"""Of a matrix that is decomposed on the way to a name."""


def gather(algebra: LieAlgebra, structure: bool = True) -> dict[str, Any]:
    r"""Dimensions of the parts of `algebra`, and of the vectors and forms that it leaves as they are.

    Arguments:
        structure: Whether to look inside; a span that is not closed has no structure.

    Example:
        >>> from atlasd.algebra.known import euclidean
        >>> found = gather(euclidean(2))
        >>> found["derived_series"], found["centre"], found["fixed_vectors"]
        ([3, 2, 0], 0, 0)
    """
    frame = algebra.frame()
    found: dict[str, Any] = {
        "killing_signature": algebra.killing_signature(),
        "fixed_vectors": len(null_rows(frame.flatten(0, 1), _TOLERANCE * max(algebra.dimension, 1) ** 0.5)),
        "symmetric_forms": int((invariant_forms(algebra)[1] <= _TOLERANCE).sum()),
        "antisymmetric_forms": int((invariant_forms(algebra, symmetric=False)[1] <= _TOLERANCE).sum()),
    }
    if structure:
        found["derived_series"] = [part.dimension for part in algebra.derived_series()]
        found["centre"] = algebra.centre().dimension
    if algebra.dimension == 1:
        found["eigenvalues"] = _eigenvalues(frame[0])
    return found


def describe_eigenvalues(values: list[complex]) -> str:
    r"""A word for the one-parameter group with these eigenvalues, the largest of absolute value 1."""
    rotating = [value for value in values if abs(value.imag) > 0.01]
    stretching = [value for value in values if abs(value.real) > 0.01]
    if rotating and stretching:
        return "spiral"
    if rotating:
        return "rotations at unequal rates"
    return "unequal stretches" if stretching else "nilpotent"


def _eigenvalues(matrix: Tensor) -> list[complex]:
    values = torch.linalg.eigvals(matrix)
    # Rounding spreads the zero eigenvalues of a nilpotent matrix by the n-th root of its size.
    values = values / values.abs().max().clamp(min=1e-3)
    listed = [complex(round(float(v.real), 4) + 0.0, round(float(v.imag), 4) + 0.0) for v in values]
    return sorted(listed, key=lambda value: (-abs(value), -value.real, -value.imag))
