"""Held-out data judge what the searches propose: generators first, then the discrete part."""

from __future__ import annotations

__all__ = ["SIZES", "Judged", "judge_cosets", "judge_generators"]

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlasd.algebra.basis import standard_form
from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import TOLERANCE, Membership
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.coverage import Coverage
from atlasd.discovery.problem import Problem
from atlasd.discovery.result import Direction
from atlasd.discovery.search import Found
from atlasd.discovery.setup import Setup
from atlasd.discovery.spectral import closed
from atlasd.discovery.verdict import (
    Evidence,
    decide,
    element_evidence,
    field_evidence,
    field_extent,
    known_inputs,
    vector_evidence,
)
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

SIZES = (0.3, 0.6, 1.0, 1.5)
"""Sizes |t| at which generators are judged."""
_MOST_BESIDE_DOUBT = 8
"""The largest finite group that is claimed beside a generator that could not be decided."""
_DOUBT = "seen at first order only, beside generators that could not be decided"
_MORE = 192
"""Held-out samples of fields that are looked at where the usual ones leave a generator open."""
_LISTED = 8
"""The most rejected components that are looked at again, to tell what is broken from what cannot be tested."""


@storable()
@dataclass(frozen=True, eq=False)
class Judged:
    """Generators that passed, with their directions, those that did not, the charts' errors, and the controls.

    `withheld` says that what passed was seen at first order only, beside generators that could not be decided, and
    is not claimed.
    """

    algebra: LieAlgebra
    kept: list[Direction]
    dropped: list[Direction]
    evidence: list[Evidence]
    weights: Tensor
    controls: tuple[float, ...] = ()
    withheld: bool = False


@dataclass(frozen=True, eq=False)
class _Trial:
    """How generators are judged, the found ones and those of the controls alike.

    Arguments:
        weights: Weights of the charts, `(K,)`.
        sizes: Sizes |t|.
        tolerance: The largest error that counts.
        seed: Seed of the bootstrap and of the controls.
        cover: What fields were fitted to; `None` for vectors.
    """

    weights: Tensor
    sizes: tuple[float, ...]
    tolerance: float
    seed: int
    cover: Coverage | None

    def evidence(self, problem: Problem, basis: Tensor, samples: int | None = None) -> list[Evidence]:
        """Evidence for every generator on held-out samples, the usual number of them by default."""
        draws = stream(self.seed, "verdict", "bootstrap")
        if not problem.is_field:
            return vector_evidence(problem, basis, self.sizes, self.tolerance, seed=draws)
        options: dict[str, int] = {} if samples is None else {"samples": samples}
        return field_evidence(
            problem, basis, self.weights, self.sizes, self.tolerance, seed=draws, cover=self.cover, **options
        )

    def controls(self, setup: Setup, basis: Tensor) -> list[float | None]:
        """Errors of the same generators for untrained predictors of the same kind; the larger of two draws."""
        if setup.untrained is None:
            return [None] * len(basis)
        worst = [0.0] * len(basis)
        for draw in range(2):
            problem = setup.untrained(stream(self.seed, "verdict", "untrained", draw))
            worst = [max(w, e.error) for w, e in zip(worst, self.evidence(problem, basis), strict=True)]
        return list(worst)


def judge_generators(setup: Setup, found: Found, tolerance: float, seed: int) -> Judged:
    """Judges the basis in standard form; if some directions fail, the algebra inside the rest is judged again."""
    problem = setup.problem
    weights = problem.chart_weights() if found.weights is None else found.weights
    basis = found.basis
    sizes = found.sizes or SIZES
    dropped: list[Direction] = []
    cover = known_inputs(problem, weights) if problem.is_field and len(basis) else None
    trial = _Trial(weights, sizes, tolerance, seed, cover)
    while len(basis):
        basis = standard_form(basis)
        evidence = trial.evidence(problem, basis, found.samples)
        controls = trial.controls(setup, basis)
        directions = [decide(e, setup.gates, tolerance, len(basis), c) for e, c in zip(evidence, controls, strict=True)]
        if problem.is_field and found.samples is None and any(_open(d) for d in directions):
            # One wild sample among few leaves it open; the level is then that of two looks.
            evidence = trial.evidence(problem, basis, _MORE)
            pairs = zip(evidence, controls, strict=True)
            directions = [decide(e, setup.gates, tolerance, 2 * len(basis), c) for e, c in pairs]
        keep = [d.decision == "symmetry" for d in directions]
        if all(keep) and _in_doubt(evidence, dropped):
            directions = [replace(d, decision="cannot tell", reason=_DOUBT) for d in directions]
            return Judged(LieAlgebra(basis[:0]), [], dropped + directions, [], weights, withheld=True)
        if all(keep):
            measured = tuple(c for c in controls if c is not None)
            directions = [_with_extent(problem, *pair, weights) for pair in zip(basis, directions, strict=True)]
            return Judged(LieAlgebra(basis), directions, dropped, evidence, weights, measured)
        dropped += [d for d, k in zip(directions, keep, strict=True) if not k]
        order = sorted((e.error, i) for i, (e, k) in enumerate(zip(evidence, keep, strict=True)) if k)
        rest = basis[[i for _, i in order]]
        basis = closed(rest)[0] if len(rest) else rest
    return Judged(LieAlgebra(basis), [], dropped, [], weights)


def _open(direction: Direction) -> bool:
    """Whether the bounds hold the tolerance, so that more samples may decide."""
    return direction.decision == "cannot tell" and direction.lower <= direction.tolerance < direction.upper


def _in_doubt(evidence: list[Evidence], dropped: list[Direction]) -> bool:
    """Whether all that is left rests on derivatives, while finite motions along others could not be decided."""
    return all(e.first_order for e in evidence) and any(d.decision == "cannot tell" for d in dropped)


def _with_extent(problem: Problem, a: Tensor, direction: Direction, weights: Tensor) -> Direction:
    """On fields, the size up to which a generator holds is looked for between those at which it was judged."""
    if not problem.is_field or direction.extent is None or direction.extent >= max(SIZES):
        return direction
    return replace(direction, extent=field_extent(problem, a, weights, SIZES, direction.tolerance))


def judge_cosets(
    setup: Setup,
    algebra: LieAlgebra,
    cosets: CosetSearch | None,
    tolerance: float,
    weights: Tensor,
    seed: int,
    progress: Progress,
    *,
    undecided: bool = False,
) -> tuple[Group, list[Direction], list[Direction]]:
    """Candidates, judged on held-out data like generators, then closed to a group whose products are tested.

    With `undecided`, a generator could not be told from chance; many elements alone are then not claimed either.
    """
    n = setup.problem.size
    identity = torch.eye(n, dtype=torch.float64)[None]
    if cosets is None or setup.gates.refusal() is not None:
        return Group(algebra, identity), [], []
    limit = cosets.tolerance or tolerance
    problem = setup.problem.with_weights(weights)
    candidates = cosets.find(problem, algebra, seed=seed, progress=progress, tolerance=tolerance)

    def judge(elements: Tensor, tests: int) -> list[Direction]:
        draws = stream(seed, "verdict", "cosets")
        evidence = element_evidence(problem, elements, weights, seed=draws)
        return [decide(e, setup.gates, limit, tests) for e in evidence]

    matrices = candidates.matrices
    directions = judge(matrices, len(matrices))
    keep = torch.tensor([d.decision == "symmetry" for d in directions], dtype=torch.bool)
    keep[0] = True  # the identity
    membership = Membership(algebra)
    rejected = [_named(d, m, membership) for d, m, k in zip(directions, matrices, keep.tolist(), strict=True) if not k]
    # What misses because the data do not reach there is not broken; that is worth saying.
    others = candidates.rejected[: 0 if problem.is_field else _LISTED]
    again = judge(others, len(others)) if len(others) else []
    rejected += [_named(d, m, membership) for d, m in zip(again, others, strict=True) if d.decision == "not testable"]

    def accept(elements: Tensor) -> Tensor:
        return torch.tensor([d.decision == "symmetry" for d in judge(elements, len(elements))], dtype=torch.bool)

    group = Group.close(algebra, matrices[keep], accept=accept)
    directions = judge(group.cosets, group.order)
    if undecided and group.dimension == 0 and group.order > _MOST_BESIDE_DOUBT:
        # So many elements are samples of a continuous group that the data could not settle, not a group of their own.
        return Group(algebra, identity), directions[:1], rejected + directions[1:]
    return group, directions, rejected


def _named(direction: Direction, element: Tensor, membership: Membership) -> Direction:
    """The same with the element in the reason, where its component holds a matrix of signs."""
    if direction.decision != "not testable":
        return direction
    n = len(element)
    signs = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0], dtype=torch.float64)] * n).reshape(-1, n)
    same = membership.residuals(torch.linalg.solve(element, torch.diag_embed(signs))) <= TOLERANCE
    if not bool(same.any()):
        return direction
    plainest = signs[same][int(signs[same].sum(-1).argmax())]
    words = ", ".join(f"{value:g}" for value in plainest.tolist())
    return replace(direction, reason=f"diag({words}): {direction.reason}")
