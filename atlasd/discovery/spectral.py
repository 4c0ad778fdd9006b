"""The default search: first order in closed form, then finite size."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.discovery.coverage import quadric
from atlasd.discovery.descent import FieldSearch, model, orthogonal_complement
from atlasd.discovery.problem import Problem, Proposal, solve
from atlasd.discovery.residual import Residual, known_inputs, scaled
from atlasd.errors import InputError
from atlasd.geometry.monomials import Monomials
from atlasd.geometry.polynomial import PolynomialAction
from atlasd.limits import LEVEL, MOST
from atlasd.runtime.progress import Progress

_UNFELT = 0.1
"""Strength of swapping components between samples below which a fitted map does not feel them."""
_NEAR = 0.3
"""Residual at first order, as a ratio of squares, up to which a direction is worth refining."""
_REACHED = (math.pi / 2, 0.5, 0.15, 0.05)
"""Sizes at which directions are refined: the largest at which half of the transformed samples lie where data are."""
_STEP, _STEPS, _LOOKED = 1e-3, 8, 384
_SPAN = 4096
"""Samples that tell in which subspace the data lie."""
_RANK = 1e-6
"""Second moment of standard vectors, relative to the largest, below which a direction holds only rounding."""


@dataclass(frozen=True, kw_only=True)
class SpectralSearch:
    """Generators from a generalised eigenproblem, refined at finite size where the map is fitted.

    Arguments:
        generators: The number of generators, or `None` to find it.
        samples: Samples at finite size on fields.
        slopes: The most samples at first order.
        starts: Random starts at finite size.
        derivatives: Whether the map's derivatives mean something; `False` starts from random directions alone, for
            networks that were fitted to classes.
    """

    generators: int | None = None
    samples: int = 40
    slopes: int = 4096
    starts: int = 16
    derivatives: bool = True

    def __post_init__(self) -> None:
        if self.generators is not None and self.generators < 0:
            raise InputError(f"`generators` must not be negative, got {self.generators}.")

    def find(self, problem: Problem, *, seed: int, progress: Progress, weights: Tensor | None = None) -> Proposal:
        """Proposes generators, the most promising first; with weights of the charts `(K,)`, those of some of them."""
        if problem.is_field:
            index = problem.pick(max(self.samples, 96))
            first = Residual(problem, index[:48], weights=weights).slopes() if self.derivatives else None
            search = FieldSearch(problem, index, self.samples, self.starts, seed, progress, weights)
            return search.find(first, self.generators)
        return self.refined(problem, self.at_first_order(problem))

    def at_first_order(self, problem: Problem) -> Proposal:
        """The answer of the eigenproblem for vectors."""
        n = problem.size
        asked = Residual(problem, problem.pick(self.slopes))
        residual, null = (m[0] for m in asked.slopes())
        relevant = relevant_components(asked.few(1024), null)  # (n, m)
        if getattr(problem.action, "rho_out", None) is not None:
            relevant = moved_with_targets(problem)
        felt = _inside(problem, relevant)
        inside = along_surfaces(problem, relevant, felt)
        values, directions, blind = solve(inside @ residual @ inside.mT, inside @ null @ inside.mT)
        basis = (directions @ inside).reshape(-1, n, n)
        untested = problem.samples.size * n - len(felt) + len(blind)
        return Proposal(
            basis if self.generators is None else basis[: self.generators], tuple(values.tolist()), untested=untested,
            fixed=self.generators is not None, relevant=None if relevant.shape[1] == len(relevant) else relevant,
            notes=() if len(inside) == len(felt) else ("the data lie on a quadric, and only what keeps it was asked",),
        )  # fmt: skip

    def refined(self, problem: Problem, found: Proposal) -> Proposal:
        """The same with generators that come near moved to where a fitted map commutes best at finite size."""
        if problem.known:
            return found
        basis, n = found.basis, problem.size
        near = sum(value < _NEAR for value in found.spectrum[: len(basis)])
        components = problem.samples.size + problem.homogeneous
        relevant = torch.eye(components, dtype=torch.float64) if found.relevant is None else found.relevant
        inside = along_surfaces(problem, relevant, _inside(problem, relevant)).reshape(-1, n, n)
        return replace(found, basis=torch.cat([at_finite_size(problem, basis[:near], inside), basis[near:]]))


def relevant_components(residual: Residual, null: Tensor) -> Tensor:
    """Orthonormal components of standard vectors that the map feels, `(n, m)`; of homogeneous ones with the last, 1.

    Components are ordered by the mean square of the derivative along them. The least ones are left out together as long
    as swapping them between samples costs nothing.

    Arguments:
        residual: The residual on some samples.
        null: Gram matrix of gradients met by inputs of other samples, `(n^2, n^2)`.
    """
    n, size = residual.problem.samples.size, residual.problem.size
    slopes = torch.einsum("ijkj->ik", null.reshape([size] * 4)[:n, :, :n])
    # Where data lie in a subspace, what a predictor says across it is an accident of its fit.
    span = data_span(residual.problem, centred=not residual.problem.known)
    slopes = span @ slopes @ span
    _, frame = torch.linalg.eigh((slopes + slopes.mT) / 2)
    spans = [frame[:, :k] @ frame[:, :k].mT for k in range(1, n)]
    limit = 1e-6 if residual.problem.known else _UNFELT
    costs = residual.permuted(torch.stack(spans)).tolist() if spans else []
    count = next((k for k, cost in enumerate(costs) if cost > limit), len(spans))
    relevant = frame[:, count:]
    return (
        torch.block_diag(relevant, torch.ones(1, 1, dtype=relevant.dtype)) if residual.problem.homogeneous else relevant
    )


def data_span(problem: Problem, centred: bool = False) -> Tensor:
    """The projection of standard vectors onto the least subspace that holds the data, or their spread, `(n, n)`."""
    x = problem.inputs(problem.pick(_SPAN)).reshape(-1, problem.samples.size).double()
    x = x - x.mean(0) if centred else x
    values, vectors = torch.linalg.eigh(x.mT @ x / len(x))
    inside = vectors[:, values > _RANK * values[-1]]
    return inside @ inside.mT


def along_surfaces(problem: Problem, relevant: Tensor, inside: Tensor) -> Tensor:
    """Those generators `(m, n^2)` that leave no quadric on which all vectors lie, orthonormal.

    Vectors of one mass, or of one length, say nothing about a map beside them: only what keeps the surface can be
    asked. One half of the vectors proposes surfaces, and the other half confirms them.

    Arguments:
        relevant: Components that the map feels, `(n, r)`; what it does not feel ties nothing down.
        inside: Generators, orthonormal.
    """
    if problem.known:
        return inside
    n = problem.samples.size
    x = problem.inputs(problem.pick(_SPAN)).reshape(-1, n).double()
    x = x[(x != 0).any(-1)][: 2 * _SPAN]
    frame = relevant[:n, : relevant.shape[1] - problem.homogeneous]

    def terms(z: Tensor) -> Tensor:
        return quadric(z @ frame)

    first, second = (terms(part) for part in (x[::2], x[1::2]))
    size = torch.cat([first, second]).std(0)
    kept = size > _RANK**0.5 * size.max()
    mean, size = first.mean(0)[kept], size[kept]
    if len(first) <= 2 * len(size):
        return inside
    (first, second) = ((part[:, kept] - mean) / size for part in (first, second))
    values, vectors = torch.linalg.eigh(first.mT @ first / len(first))
    flat = (values < LEVEL**2) & ((second @ vectors).square().mean(0) < LEVEL**2)
    if not bool(flat.any()):
        return inside
    # How a surface's level changes along every generator, where vectors are and as vectors of other samples would.
    steep = torch.func.vmap(torch.func.jacrev(terms))(x)[:, kept] / size[:, None]
    steep = torch.einsum("bfi,fw->bwi", steep, vectors[:, flat])
    along = problem.action.columns(x) if problem.shifts else x  # type: ignore[attr-defined]
    shape = len(inside), problem.size, along.shape[-1]
    moves = inside.reshape(shape)[:, :n]
    change = torch.einsum("bwi,aij,bj->abw", steep, moves, along).flatten(1)
    null = torch.einsum("bwi,bwk,aij,ckl,jl->ac", steep, steep, moves, moves, along.mT @ along / len(x))
    values, directions, blind = solve(change @ change.mT / len(x), null / len(x))
    stay = torch.cat([directions[values < LEVEL**2], blind])
    return torch.linalg.qr((stay @ inside).mT).Q.mT


def moved_with_targets(problem: Problem) -> Tensor:
    """Components that a map feels whose targets transform as well, `(n, m)`: all in which data lie."""
    n, span = problem.samples.size, data_span(problem)
    values, vectors = torch.linalg.eigh(span)
    if bool((values > 0.5).all()):
        return torch.eye(problem.size, dtype=torch.float64)
    inside = vectors[:, values > 0.5]
    return torch.block_diag(inside, torch.eye(problem.size - n, dtype=inside.dtype))


def at_finite_size(problem: Problem, basis: Tensor, inside: Tensor) -> Tensor:
    """Generators `(k, n, n)`, best first, moved to where a fitted map commutes best at finite size.

    First order rests on derivatives of the map, which are known worse than its values. Each moves along all directions
    but those of better ones.

    Arguments:
        inside: Orthonormal directions among which they may move, `(s, n, n)`.
    """
    if not len(basis):
        return basis
    residual = Residual(problem, problem.pick(_LOOKED), known_inputs(problem))

    def near(a: Tensor, size: float, span: Tensor) -> Tensor:
        along = torch.cat([a[:, None], a[:, None] + _STEP * span], dim=1)  # (k, 1 + s, n, n)
        both = torch.stack([size * along, -size * along], dim=1)
        return problem.exponential(both.flatten(0, 2)).nan_to_num(1e30, 1e30, -1e30).unflatten(0, both.shape[:3])

    refined: list[Tensor] = []
    for a in scaled(basis)[:, None]:
        span = orthogonal_complement(inside, [*refined, a[0]])
        for size in _REACHED:
            covered = residual.losses(near(a, size, span[:0])[0, :, 0]).covered
            if float(covered.mean()) >= MOST:
                break
        best, damping, here = math.inf, 1e-3, a
        shares = covered / covered.sum((1, 2), keepdim=True).clamp_min(1.0)
        for _ in range(_STEPS if len(span) else 0):
            there = model(residual, near(here, size, span), _STEP, shares)
            error = float(there.error[0].sum())
            damping *= 0.1 if error < best else 100.0
            if error < best:
                best, a = error, here
                slope, curve = (z[0].sum((0, 1)) for z in (there.slope, there.curve))
            # Where data cover no transformed sample, nothing is known and nothing is changed.
            steep = curve.diagonal().clamp_min(1e-9 * curve.diagonal().max().clamp_min(1e-300))
            step = torch.linalg.solve(curve + damping * steep.diag(), slope)
            here = a - torch.einsum("s,sij->ij", step * (0.3 / step.norm().clamp_min(0.3)), span)
        refined.append(a[0])
    return torch.stack(refined)


def _inside(problem: Problem, relevant: Tensor) -> Tensor:
    """Generators `(m, n^2)` that neither read nor change what nothing feels.

    Translations may change it: whether a map feels a component is what a translation along it asks.
    """
    both = torch.einsum("ia,jb->abij", relevant, relevant)
    return _with_shifts(problem, relevant) if problem.shifts else both.flatten(0, 1).flatten(1)


def _with_shifts(problem: Problem, relevant: Tensor) -> Tensor:
    """Generators `(m, n^2)` that read and change what the map feels, and translations."""
    n, size = problem.samples.size, problem.size
    if problem.homogeneous:
        linear = torch.einsum("ia,jb->abij", relevant[:, :-1], relevant[:, :-1]).reshape(-1, size * size)
        return torch.cat([linear, problem.ambient.directions[n::size].flatten(1)])
    action = problem.action
    assert isinstance(action, PolynomialAction)
    points = torch.randn(4 * size, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # Monomials of the relevant components, written in monomials of all.
    terms = Monomials(relevant.shape[1], action.degree)(points @ relevant)
    rows = torch.linalg.lstsq(action.columns(points), terms).solution.mT  # (t, m)
    fields = torch.einsum("ia,tj->atij", relevant, rows).flatten(0, 1)
    return functional.pad(fields, (0, 0, 0, size - n)).flatten(1)
