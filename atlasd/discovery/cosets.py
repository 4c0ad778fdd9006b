"""The discrete part of a symmetry: candidates for the components of the group."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import TOLERANCE, Membership
from atlasd.discovery.coset_gradient import (
    damped_steps,
    descend_starts,
    draw_starts,
    is_rigid,
    normalize_starts,
    pull_to_normalizer,
    reduce_in_coset,
    start_losses,
)
from atlasd.discovery.descent import model
from atlasd.discovery.objective import LOSSES, Charts, Frame, Loss, Objective, Window
from atlasd.discovery.problem import Problem
from atlasd.discovery.residual import Residual
from atlasd.errors import InputError
from atlasd.geometry.resample import Interpolation
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

_CONDITION = 30.0
"""Beyond this condition a matrix takes most of the data somewhere else."""
_PROMISING = 0.3
"""Relative residual, squared, beyond which a candidate is not worth a verdict."""
_STEP = 1e-3


@storable()
@dataclass(frozen=True, eq=False)
class CosetCandidates:
    """What a search for cosets proposes, in standard units; the verdict is given elsewhere.

    Arguments:
        matrices: One representative per component, the identity first, then by residual, `(M, n, n)`. The paper's
            search proposes what it came to, by its loss, and adds no identity.
        errors: Relative squared residuals, 0 for exact and 1 for the null level, `(M,)`; losses for the paper's search.
        raw: How many matrices were examined.
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
        samples: Samples of vectors looked at, `None` for all; on fields an eighth of it, where each is a whole patch.
        steps: Batches of the gradient method, if `epochs` is `None`.
        learning_rate: Of the gradient method.
        epochs: Passes of the gradient method over its samples.
        batch: Samples in a batch of the gradient method; by default 64 vectors, or 2 fields.
        loss: What the gradient method lowers; cross-entropy for classes in the paper.
        charts: Whether that is the `sum` over charts, as in the paper, or the `mean`.
        units: Whether matrices and losses are those of `raw` data, as in the paper, or of `standard` units.
        interpolation: How the gradient method reads fields between their pixels; see `GradientSearch`.
        window: Outputs of fields that count in the gradient method; see `GradientSearch`.
        anneal: Lets the learning rate fall along a cosine; constant in the paper.
        held_out: Looks only at samples that the predictor was not fitted to; the paper looks at all.
        regardless: Proposes the distinct ones among the best `top` matrices by loss, whatever they are, as the paper
            does; otherwise the identity comes first, and what is far from a symmetry is left out before.

    Example:
        >>> CosetSearch.published(starts=256, top=128).regardless
        True
    """

    method: Literal["normalizer", "gradient"] = "normalizer"
    starts: int = 64
    top: int = 64
    normalize: bool = True
    samples: int | None = 256
    steps: int = 400
    learning_rate: float = 0.03
    epochs: int | None = None
    batch: int | None = None
    loss: Loss = "mae"
    charts: Charts = "mean"
    units: Frame = "standard"
    interpolation: Interpolation = "spline"
    window: Window = "disc"
    anneal: bool = True
    held_out: bool = True
    regardless: bool = False

    def __post_init__(self) -> None:
        if self.method not in ("normalizer", "gradient"):
            raise InputError(f"`method` must be 'normalizer' or 'gradient', got {self.method!r}.")
        if self.loss not in LOSSES:
            raise InputError(f"`loss` must be one of {', '.join(LOSSES)}, got {self.loss!r}.")
        if self.regardless and self.method != "gradient":
            raise InputError("`regardless` must be left out for method='normalizer'; use CosetSearch.published().")
        for name in ("starts", "top", "samples", "steps", "epochs", "batch"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise InputError(f"`{name}` must be positive, got {getattr(self, name)}; leave it at its default.")

    @classmethod
    def published(cls, **changes: Any) -> CosetSearch:
        """The search as the paper describes it, at its settings for heat.

        K random matrices descend with a constant rate on the sum over charts in the units of the data; of the best q by
        loss the duplicates are removed. Nothing is filtered or snapped, and the identity has to be found like the
        others. The verdict is given beside. |det| = 1 is `normalize`.

        Arguments:
            changes: Settings that differ, such as `starts=64`, `top=16`, `loss="cross_entropy"` for jets.
        """
        paper = cls(
            method="gradient", starts=16, top=8, samples=None, epochs=10, batch=16, learning_rate=1e-3,
            charts="sum", units="raw", interpolation="bilinear", anneal=False, held_out=False, regardless=True,
        )  # fmt: skip
        return replace(paper, **changes)

    def find(
        self,
        problem: Problem,
        algebra: LieAlgebra,
        *,
        seed: int,
        progress: Progress | None = None,
        initial: Tensor | None = None,
        relevant: Tensor | None = None,
    ) -> CosetCandidates:
        """Proposes one matrix per component.

        Arguments:
            problem: Maps, action and data.
            algebra: The algebra of the connected part, in standard units.
            seed: Seed of the random starts.
            progress: Progress display.
            initial: Starts in place of random ones, `(M, n, n)`.
            relevant: Components on which the map depends, `(n, m)`; others are left as they are. `None` for all.
        """
        if algebra.size != problem.size:
            raise InputError(f"`algebra` must have matrices of size {problem.size}, got {algebra.size}.")
        progress = progress or Silent()
        generator = stream(seed, "cosets", self.method)
        if self.regardless:
            return self._published(problem, algebra, generator, progress, initial)
        most = len(problem.samples) if self.samples is None else self.samples
        asked = problem.elsewhere(most)
        residual = Residual(asked, asked.pick(max(12, most // 16) if problem.is_field else most))
        curves: dict[str, tuple[float, ...]] = {}
        if self.method == "gradient":
            begin = draw_starts(self.starts, problem.size, generator, initial)
            candidates, curve, _ = self._descended(problem, begin, generator, progress)
            curves["coset error"] = curve
        else:
            count = self.starts if problem.is_field else 8 * self.starts
            ambient = problem.ambient
            begin = ambient.random(count, generator)
            if initial is not None:
                begin = ambient.unit_determinant(draw_starts(0, problem.size, generator, initial))
            candidates = self._normalizing(residual, algebra, begin, progress)
        if relevant is not None:
            inside = relevant @ relevant.mT
            candidates = inside @ candidates @ inside + torch.eye(problem.size, dtype=torch.float64) - inside
        return self._distinct(residual, algebra, candidates, len(begin), curves)

    def _descended(
        self, problem: Problem, begin: Tensor, generator: torch.Generator, progress: Progress
    ) -> tuple[Tensor, tuple[float, ...], Tensor]:
        """Matrices that descended from starts in the units of the search, `(M, n, n)`, in standard units.

        Returns:
            The matrices, the curve of the better half, and the final losses of all, `(M,)`.
        """
        index = problem.search if self.held_out else torch.arange(len(problem.samples))
        index = index if self.samples is None else index[: self.samples]
        batch = self.batch or (2 if problem.is_field else 64)
        steps = self.steps if self.epochs is None else self.epochs * math.ceil(len(index) / batch)
        kind: dict[str, Any] = {"loss": self.loss, "units": self.units, "charts": self.charts}
        objective = Objective(problem, interpolation=self.interpolation, window=self.window, **kind)
        found, curve = descend_starts(
            objective, begin, index, normalize=self.normalize, steps=steps, batch=batch,
            learning_rate=self.learning_rate, anneal=self.anneal, generator=generator, progress=progress,
        )  # fmt: skip
        with torch.no_grad():
            # The loss after convergence: on as many samples as tell the candidates apart, batch by batch.
            some = index[torch.randperm(len(index), generator=generator)[: 16 * batch]]
            losses = [start_losses(objective, found, part) * len(part) for part in some.split(batch)]
        return objective.standard(found), curve, torch.stack(losses).sum(0) / len(some)

    def _published(
        self,
        problem: Problem,
        algebra: LieAlgebra,
        generator: torch.Generator,
        progress: Progress,
        initial: Tensor | None,
    ) -> CosetCandidates:
        """The `top` matrices with the least loss, one for each component."""
        begin = draw_starts(self.starts, problem.size, generator, initial)
        candidates, curve, losses = self._descended(problem, begin, generator, progress)
        order = losses.argsort(stable=True)[: self.top]
        kept, left = _one_each(Membership(algebra), candidates[order], losses[order], self.top)
        return CosetCandidates(kept, left, len(begin), {"coset error": curve})

    def _normalizing(self, residual: Residual, algebra: LieAlgebra, begin: Tensor, progress: Progress) -> Tensor:
        ambient = residual.problem.ambient
        starts, outside = normalize_starts(algebra, begin, ambient)
        starts = reduce_in_coset(algebra, starts[outside < 0.05], ambient)
        starts = starts[torch.linalg.cond(starts) < _CONDITION]
        if is_rigid(algebra, ambient) or not len(starts):
            return starts
        field = residual.problem.is_field
        few = residual.few(12 if field else 64)
        starts = _best_of_each_kind(starts, relative(few, starts), algebra, 16 if field else self.starts)
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


@dataclass(frozen=True, eq=False)
class Proposed:
    """Candidates that were found before, in the place of a search: they are judged as they are.

    Arguments:
        candidates: From `CosetSearch.find`.
    """

    candidates: CosetCandidates

    def find(self, problem: Problem, *_: Any, **__: Any) -> CosetCandidates:
        """The candidates, with the identity before them."""
        identity = torch.eye(problem.size, dtype=torch.float64)[None]
        matrices = torch.cat([identity, self.candidates.matrices])
        return replace(self.candidates, matrices=matrices, errors=torch.cat([torch.zeros(1), self.candidates.errors]))


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
    ambient = residual.problem.ambient
    c = ambient.unit_determinant(c)
    moves = torch.eye(c.shape[-1], dtype=torch.float64) + _STEP * ambient.directions
    damping = torch.full((len(c),), 1e-2, dtype=torch.float64)
    cost = relative(residual, c)
    active = torch.ones(len(c), dtype=torch.bool)
    for _ in range(iterations):
        if not bool(active.any()):
            break
        now = c[active]
        near = torch.cat([now[:, None], ambient.unit_determinant(now[:, None] @ moves)], dim=1)  # (M, 1 + m, n, n)
        here = model(residual, near[:, None], _STEP)
        # Cauchy weights: a jump of the function pulls no more than a smooth residual.
        middle = here.error.flatten(1).median(1).values[:, None, None] * 9 + 1e-18
        weight = 1 / (1 + here.error / middle)
        gradient = (weight[..., None] * here.slope).mean((1, 2)) / 2
        curvature = (weight[..., None, None] * here.curve).mean((1, 2)) / 2
        gradient, curvature = pull_to_normalizer(algebra, ambient, now, gradient, curvature)
        steps = damped_steps(ambient, curvature, gradient, damping[active])
        trial = ambient.unit_determinant(now @ torch.matrix_exp(steps))
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


def _best_of_each_kind(starts: Tensor, errors: Tensor, algebra: LieAlgebra, count: int) -> Tensor:
    """The best of starts `(M, n, n)` in the normaliser, as many of each kind: kinds lie in different components.

    A kind is told by the sign of the determinant, and by that of the trace of what a start does to the algebra.
    """
    frame = algebra.frame()
    moved = starts[:, None] @ frame @ torch.linalg.inv(starts)[:, None]
    trace = (moved * frame).sum((-2, -1)).sum(-1)
    kind = 2 * (torch.linalg.det(starts) > 0).long() + (trace > 0).long()
    order = errors.argsort()
    kinds = [order[kind[order] == k] for k in kind.unique()]
    return starts[torch.cat([mine[: -(-count // len(kinds))] for mine in kinds])]


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
