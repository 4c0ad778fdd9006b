"""The discrete part of a symmetry: candidates for the components of the group."""

from __future__ import annotations

__all__ = ["CosetCandidates", "CosetSearch"]

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import TOLERANCE, Membership
from atlasd.discovery.coset_gradient import descend_starts, draw_starts
from atlasd.discovery.coset_normalizer import (
    is_rigid,
    normalize_starts,
    pull_to_normalizer,
    random_starts,
    reduce_in_coset,
    unit_determinant,
)
from atlasd.discovery.descent import model
from atlasd.discovery.problem import Problem
from atlasd.discovery.residual import Residual
from atlasd.errors import InputError
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

_CONDITION = 30.0
"""Beyond this condition a matrix takes most of the data somewhere else."""
_PROMISING = 0.3
"""Relative residual, squared, beyond which a candidate is not worth a verdict."""
_STEP = 1e-3


@dataclass(frozen=True, eq=False)
class CosetCandidates:
    """What a search for cosets proposes, in standard units; the verdict is given elsewhere.

    Arguments:
        matrices: One representative per component, the identity first, then by residual, `(M, n, n)`.
        errors: Relative squared residuals, 0 for exact and 1 for chance, `(M,)`.
        raw: How many matrices were examined.
        curves: Training curves by name.
    """

    matrices: Tensor
    errors: Tensor
    raw: int
    curves: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.matrices)


@dataclass(frozen=True, kw_only=True)
class CosetSearch:
    r"""Finds matrices with :math:`|det| = 1` beyond the connected group that a map commutes with.

    `normalizer` uses that a symmetry C maps the algebra to itself: random starts are moved until
    :math:`C B_i = \sum_j a_{ij} B_j C`, and descend on the residual where that leaves more than isolated
    candidates. `gradient` is the paper's: each of many random matrices descends on its own.

    Arguments:
        method: `normalizer` or `gradient`.
        starts: Random matrices that descend; eight times as many are looked at.
        top: The most components that are kept.
        normalize: Scales to |det| = 1 in the gradient method; `False` is the paper's ablation.
        samples: Samples of vectors looked at; on fields an eighth of it, where each is a whole patch.
        steps: Batches of the gradient method.
        learning_rate: Of the gradient method.
    """

    method: Literal["normalizer", "gradient"] = "normalizer"
    starts: int = 64
    top: int = 64
    normalize: bool = True
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
        initial: Tensor | None = None,
        felt: Tensor | None = None,
    ) -> CosetCandidates:
        """Proposes one matrix per component.

        Arguments:
            problem: Maps, action and data.
            algebra: The algebra of the connected part, in standard units.
            seed: Seed of the random starts.
            progress: Progress display.
            initial: Starts in place of random ones, `(M, n, n)`.
            felt: Components that the map feels, `(n, m)`; others are left as they are. `None` for all.
        """
        if algebra.size != problem.size:
            raise InputError(f"`algebra` must have matrices of size {problem.size}, got {algebra.size}.")
        progress = progress or Silent()
        generator = stream(seed, "cosets", self.method)
        residual = Residual(problem, problem.pick(max(12, self.samples // 16) if problem.is_field else self.samples))
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
        else:
            count = self.starts if problem.is_field else 8 * self.starts
            begin = random_starts(count, problem.size, generator)
            begin = begin if initial is None else unit_determinant(draw_starts(0, problem.size, generator, initial))
            candidates = self._normalizing(residual, algebra, begin, progress)
        if felt is not None:
            inside = felt @ felt.mT
            candidates = inside @ candidates @ inside + torch.eye(problem.size, dtype=torch.float64) - inside
        return self._distinct(residual, algebra, candidates, len(begin), curves)

    def _normalizing(self, residual: Residual, algebra: LieAlgebra, begin: Tensor, progress: Progress) -> Tensor:
        starts, outside = normalize_starts(algebra, begin)
        starts = reduce_in_coset(algebra, starts[outside < 0.05])
        starts = starts[torch.linalg.cond(starts) < _CONDITION]
        if is_rigid(algebra) or not len(starts):
            return starts
        field = residual.problem.is_field
        few = residual.few(12 if field else 64)
        starts = starts[relative(few, starts).argsort()[: 16 if field else self.starts]]
        progress.say(f"descent of {len(starts)} candidates for cosets")
        starts = descend(few, starts, algebra, 4 if field else 12)
        if field:
            return starts
        errors = relative(few, starts)
        starts, errors = starts[errors <= _PROMISING], errors[errors <= _PROMISING]
        order = errors.argsort()
        kept, _ = _one_each(Membership(algebra), starts[order], errors[order], self.top)
        return descend(residual, kept, algebra, 12)

    def _distinct(
        self,
        residual: Residual,
        algebra: LieAlgebra,
        candidates: Tensor,
        raw: int,
        curves: dict[str, tuple[float, ...]],
    ) -> CosetCandidates:
        """One candidate per component, by residual."""
        identity = torch.eye(residual.problem.size, dtype=torch.float64)[None]
        candidates = candidates[torch.linalg.cond(candidates) < _CONDITION]
        errors = relative(residual, candidates)
        candidates, errors = candidates[errors <= _PROMISING], errors[errors <= _PROMISING]
        order = errors.argsort(stable=True)
        matrices = torch.cat([identity, candidates[order]])
        values = torch.cat([errors.new_zeros(1), errors[order]])
        kept, left = _one_each(Membership(algebra), matrices, values, self.top)
        return CosetCandidates(kept, left, raw, curves)


def relative(residual: Residual, elements: Tensor) -> Tensor:
    """Relative squared residuals of elements `(M, n, n)`, `(M,)`; the largest tenth of the samples counts less.

    A jump of the function, such as that of arctan, is not to decide.
    """
    if not len(elements):
        return elements.new_zeros(0)
    products, level = residual.inner(elements[:, None])
    errors = (products[..., 0, 0] / level.mean(1, keepdim=True).clamp_min(1e-300)).mean(-1)  # (M, B)
    return torch.minimum(errors, errors.quantile(0.9, dim=1, keepdim=True)).mean(1)


def descend(residual: Residual, c: Tensor, algebra: LieAlgebra, iterations: int) -> Tensor:
    """Lowers the residual of all candidates `(M, n, n)` together by Levenberg-Marquardt, near the normaliser."""
    n = c.shape[-1]
    c = unit_determinant(c)
    moves = torch.eye(n, dtype=torch.float64) + _STEP * torch.eye(n * n, dtype=torch.float64).view(-1, n, n)
    damping = torch.full((len(c),), 1e-2, dtype=torch.float64)
    cost = relative(residual, c)
    active = torch.ones(len(c), dtype=torch.bool)
    for _ in range(iterations):
        if not bool(active.any()):
            break
        now = c[active]
        near = torch.cat([now[:, None], unit_determinant(now[:, None] @ moves)], dim=1)  # (M, 1 + n^2, n, n)
        here = model(residual, near[:, None], _STEP)
        # Cauchy weights: a jump of the function pulls no more than a smooth residual.
        middle = here.error.flatten(1).median(1).values[:, None, None] * 9 + 1e-18
        weight = 1 / (1 + here.error / middle)
        gradient = (weight[..., None] * here.slope).mean((1, 2)) / 2
        curvature = (weight[..., None, None] * here.curve).mean((1, 2)) / 2
        gradient, curvature = pull_to_normalizer(algebra, now, gradient, curvature)
        trial = unit_determinant(now @ torch.matrix_exp(_damped(curvature, gradient, damping[active])))
        moved = relative(residual, trial)
        lower = moved < cost[active]
        gained = (cost[active] - moved) > 1e-3 * cost[active]
        c[active] = torch.where(lower[:, None, None], trial, now)
        cost[active] = torch.where(lower, moved, cost[active])
        damping[active] = torch.where(lower, damping[active] / 4, damping[active] * 6)
        # Exact to rounding, or stuck: nothing more to be had.
        done = (cost[active] < 1e-24) | (damping[active] > 1e4) | (lower & ~gained & (damping[active] > 10))
        active[active.clone()] = ~done
    return c


def _damped(curvature: Tensor, gradient: Tensor, damping: Tensor) -> Tensor:
    """Damped steps `(M, n, n)` that do not change the determinant and stay below size 0.5."""
    p = gradient.shape[-1]
    n = round(p**0.5)
    scale = curvature.diagonal(dim1=-2, dim2=-1).mean(-1).clamp_min(1e-12)
    ridge = (damping * scale)[:, None, None] * torch.eye(p, dtype=torch.float64)
    step = -torch.linalg.solve(curvature + ridge, gradient[..., None])[..., 0].unflatten(-1, (n, n))
    step = step - step.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None] * torch.eye(n, dtype=torch.float64)
    return step * (0.5 / torch.linalg.matrix_norm(step).clamp_min(0.5))[:, None, None]


def _one_each(membership: Membership, matrices: Tensor, errors: Tensor, limit: int) -> tuple[Tensor, Tensor]:
    """The first matrix of each component, at most `limit` of them."""
    kept, values = list[Tensor](), list[Tensor]()
    while len(matrices) and len(kept) < limit:
        kept.append(matrices[0])
        values.append(errors[0])
        new = membership.residuals(torch.linalg.solve(matrices[0], matrices)) > TOLERANCE
        new[0] = False
        matrices, errors = matrices[new], errors[new]
    if not kept:
        return matrices[:0], errors[:0]
    return torch.stack(kept), torch.stack(values)
