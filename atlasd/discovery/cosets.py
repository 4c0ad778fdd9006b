"""The discrete part of a symmetry: candidates for the components of the group."""

from __future__ import annotations

__all__ = ["CosetCandidates", "CosetSearch", "close_cosets"]

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from atlasd.algebra.closing import Accept
from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import TOLERANCE, Membership
from atlasd.discovery.coset_error import CosetError, unit_determinant
from atlasd.discovery.coset_gradient import descend_starts, draw_starts
from atlasd.discovery.coset_normalizer import (
    is_rigid,
    normalize_starts,
    plain_matrices,
    polish_starts,
    random_starts,
    reduce_in_coset,
)
from atlasd.discovery.problem import Problem
from atlasd.discovery.support import keeps_cone
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

_EXACT = 1e-9
_GAP = 3.0  # decades between rounding and a miss
_FEW = 32  # starts that are polished at least
# Beyond this condition a matrix takes most of the data somewhere else.
_CONDITION = 30.0


@dataclass(frozen=True, eq=False)
class CosetCandidates:
    """What a search for cosets proposes; the verdict is given elsewhere, on data the search has not seen.

    Arguments:
        matrices: One representative per component, the identity first, then by error, `(M, n, n)`.
        errors: Relative errors on the search split, 0 for exact and 1 for chance, `(M,)`.
        rejected: Components tried last and found wanting, best first, `(R, n, n)`.
        rejected_errors: Their errors, `(R,)`.
        raw: How many matrices were examined.
        curves: Training curves by name.
    """

    matrices: Tensor
    errors: Tensor
    rejected: Tensor
    rejected_errors: Tensor
    raw: int
    curves: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.matrices)


@dataclass(frozen=True, kw_only=True)
class CosetSearch:
    r"""Finds matrices with :math:`|det| = 1` beyond the connected group that a map commutes with.

    `normalizer` uses that a symmetry C maps the algebra to itself: starts are moved until
    :math:`C B_i = \sum_j a_{ij} B_j C`, and polished by Gauss-Newton where that leaves more than isolated
    candidates. `gradient` is the paper's: each of many random matrices descends on its own.

    Arguments:
        method: `normalizer` or `gradient`.
        starts: Random matrices to begin with.
        top: The most components that are kept.
        normalize: Scales to |det| = 1 in the gradient method; `False` is the paper's ablation.
        tolerance: The largest relative error of a candidate; `None` takes that of the search.
        contrast: The largest error relative to that of wrong matrices near by.
        samples: Samples of vectors looked at; on fields an eighth of it, where each is a whole patch.
        steps: Batches of the gradient method.
        learning_rate: Of the gradient method.

    Example:
        >>> from atlasd.geometry.actions import VectorAction
        >>> x = torch.randn(300, 1, 2, generator=torch.Generator().manual_seed(0))
        >>> index = torch.arange(300)
        >>> norm1 = lambda x: x.abs().sum(-1)
        >>> problem = Problem(norm1, VectorAction(), 2, lambda i: x[i], index, index, 1)
        >>> trivial = LieAlgebra(torch.zeros(0, 2, 2))
        >>> found = CosetSearch().find(problem, trivial, seed=0)
        >>> close_cosets(problem, trivial, found).name
        'D4'
    """

    method: Literal["normalizer", "gradient"] = "normalizer"
    starts: int = 64
    top: int = 64
    normalize: bool = True
    tolerance: float | None = None
    contrast: float = 0.25
    samples: int = 256
    steps: int = 400
    learning_rate: float = 0.03

    def __post_init__(self) -> None:
        if self.method not in ("normalizer", "gradient"):
            raise InputError(f"`method` must be 'normalizer' or 'gradient', got {self.method!r}.")
        for name in ("starts", "top", "samples", "steps"):
            if getattr(self, name) < 1:
                raise InputError(f"`{name}` must be positive, got {getattr(self, name)}; leave it at its default.")

    def find(
        self,
        problem: Problem,
        algebra: LieAlgebra,
        *,
        seed: int,
        progress: Progress | None = None,
        tolerance: float = 0.05,
        initial: Tensor | None = None,
    ) -> CosetCandidates:
        """Proposes one matrix per component.

        Arguments:
            problem: Map, action and data.
            algebra: The algebra of the connected part.
            seed: Seed of the random starts.
            progress: Who is told how far it is.
            tolerance: The tolerance of the search, used unless the configuration has its own.
            initial: Starts in place of random ones, `(M, n, n)`.
        """
        if algebra.size != problem.size:
            raise InputError(f"`algebra` must have matrices of size {problem.size}, got {algebra.size}.")
        progress = progress or Silent()
        generator = stream(seed, "cosets", self.method)
        error = CosetError(problem, max(16, self.samples // 8) if problem.is_field else self.samples)
        curves: dict[str, tuple[float, ...]] = {}
        if self.method == "gradient":
            begin = draw_starts(self.starts, problem.size, generator, initial)
            candidates, curve = descend_starts(
                problem,
                begin,
                normalize=self.normalize,
                steps=self.steps,
                batch=2 if problem.is_field else 64,
                learning_rate=self.learning_rate,
                samples=self.samples,
                generator=generator,
                progress=progress,
            )
            curves["coset error"] = curve
            raw = len(begin)
        else:
            begin = random_starts(self.starts, problem.size, generator)
            begin = begin if initial is None else unit_determinant(draw_starts(0, problem.size, generator, initial))
            candidates = self._normalizing(error, algebra, begin, progress)
            raw = len(candidates)
        return self._sorted(error, algebra, candidates, self.tolerance or tolerance, raw, curves)

    def _normalizing(self, error: CosetError, algebra: LieAlgebra, begin: Tensor, progress: Progress) -> Tensor:
        starts = torch.cat([plain_matrices(error.size), begin])
        starts, outside = normalize_starts(algebra, starts)
        starts = reduce_in_coset(algebra, starts[outside < 0.05])
        starts = starts[torch.linalg.cond(starts) < _CONDITION]
        # Where all data lie on a cone, what leads off it cannot be told from what commutes: polishing would go there.
        cone = error.problem.cone
        if cone is not None or is_rigid(algebra):
            return starts[keeps_cone(cone, starts, finite=True)]
        if error.problem.is_field:
            # Each step on a field costs seconds: only starts with a chance are polished.
            starts = _distinct(Membership(algebra), starts, error(starts), self.starts)[0][:16]
        elif (most := max(_FEW, 2 * len(starts) // error.tokens)) < len(starts):
            # A step costs as much as there are tokens: of large sets, the starts that do best are polished.
            starts = starts[error(starts).argsort(stable=True)[:most]]
        progress.say(f"polishing {len(starts)} candidates for cosets")
        polished, _ = polish_starts(error, starts, 6 if error.problem.is_field else 25, algebra)
        return polished

    def _sorted(
        self,
        error: CosetError,
        algebra: LieAlgebra,
        candidates: Tensor,
        tolerance: float,
        raw: int,
        curves: dict[str, tuple[float, ...]],
    ) -> CosetCandidates:
        """One candidate per component, the plainest that does as well, and what is to be rejected."""
        n = error.size
        identity = torch.eye(n, dtype=torch.float64)[None]
        candidates = candidates[torch.linalg.cond(candidates) < _CONDITION]
        membership = Membership(algebra)
        errors = error(candidates)
        candidates, errors = _distinct(
            membership,
            torch.cat([identity, candidates]),
            torch.cat([torch.full((1,), -1.0, dtype=torch.float64), errors]),
            4 * self.top,
        )
        candidates, errors = candidates[1:], errors[1:]
        candidates, errors = _plainer(error, membership, candidates, errors)
        contrasts = error.contrast(candidates, algebra) if len(candidates) else errors
        good = (errors <= tolerance) & (contrasts <= self.contrast)
        if not algebra.dimension:
            # Not the robust error: a piecewise function may miss on a few samples only.
            plain = error.plain(candidates)
            good &= plain <= _rounding_limit(plain)
        kept, bad = candidates[good][: self.top - 1], candidates[~good]
        return CosetCandidates(
            matrices=torch.cat([identity, kept]),
            errors=torch.cat([errors.new_zeros(1), errors[good][: self.top - 1]]),
            rejected=bad[: self.top],
            rejected_errors=errors[~good][: self.top],
            raw=raw,
            curves=curves,
        )


def _rounding_limit(errors: Tensor) -> float:
    """Where some of the errors `(M,)` are rounding, the largest of these; infinity where none is.

    Where some matrices hold to rounding, those that do not are no symmetries.
    """
    values = errors.sort().values
    decades = values.clamp_min(1e-16).log10()
    if not len(values) or float(values[0]) > _EXACT:
        return float("inf")
    steps = (decades.diff() > _GAP).nonzero().flatten()
    return float(values[int(steps[0])]) if len(steps) else float("inf")


def _distinct(membership: Membership, matrices: Tensor, errors: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """The best matrix of each component, in the order of their errors, at most `limit` of them."""
    order = errors.argsort(stable=True)
    left, kept = matrices[order], list[Tensor]()
    rest = errors[order]
    values = []
    while len(left) and len(kept) < limit:
        kept.append(left[0])
        values.append(rest[0])
        new = membership.residuals(torch.linalg.solve(left[0], left)) > TOLERANCE
        new[0] = False
        left, rest = left[new], rest[new]
    if not kept:
        return matrices[:0], errors[:0]
    return torch.stack(kept), torch.stack(values)


def _plainer(error: CosetError, membership: Membership, candidates: Tensor, errors: Tensor) -> tuple[Tensor, Tensor]:
    """Signed permutations in place of candidates in the same component, where they do as well on the data."""
    plain = plain_matrices(error.size)
    for index, (matrix, value) in enumerate(zip(candidates, errors, strict=True)):
        near = plain[membership.residuals(torch.linalg.solve(matrix, plain)) <= TOLERANCE][:1]
        if len(near) and float(error(near)) <= 1.05 * float(value) + 1e-6:
            candidates[index], errors[index] = near[0], error(near)[0]
    order = errors.argsort(stable=True)
    return candidates[order], errors[order]


def close_cosets(
    problem: Problem, algebra: LieAlgebra, candidates: CosetCandidates, accept: Accept | None = None
) -> Group:
    """The group that candidates generate, each product tested.

    Arguments:
        problem: Map, action and data.
        algebra: The algebra of the connected part.
        candidates: What a search proposed.
        accept: Tells which of `(M, n, n)` matrices are symmetries; by default those no worse on the search
            split than about twice the worst candidate.
    """
    if accept is None:
        error = CosetError(problem, 32 if problem.is_field else 256)
        limit = 4 * float(candidates.errors.max()) + 1e-6

        def accept(g: Tensor) -> Tensor:
            return error(g) <= limit

    return Group.close(algebra, candidates.matrices[1:], accept=accept)
