"""The named algebras of each matrix size, and the search for a conjugate of one near another algebra."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from atlasd.algebra import known
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.structure import commutator


@dataclass(frozen=True, eq=False)
class Entry:
    r"""One conjugacy class of algebras.

    Attributes:
        name: Its name, in ASCII.
        algebra: A representative.

    Example:
        >>> [entry.name for entry in catalogue(2, 1)]
        ['so(2)', 'so(1,1)', 'scaling', 'shear']
    """

    name: str
    algebra: LieAlgebra

    @cached_property
    def orbit(self) -> int:
        r"""Dimension of the set of its conjugates."""
        return int((orbit_rates(self.algebra) > 1e-8).sum())

    @property
    def codimension(self) -> int:
        r"""How many equations a span of this dimension must satisfy to be a conjugate."""
        k, n = self.algebra.dimension, self.algebra.size
        return k * (n * n - k) - self.orbit


@dataclass(frozen=True, eq=False)
class _Plan:
    r"""An algebra that is made where it is wanted: of large matrices there are thousands, each of megabytes.

    Attributes:
        name: Its name.
        size: Size of its matrices.
        dimension: Its dimension.
        make: Gives its basis.
    """

    name: str
    size: int
    dimension: int
    make: Callable[[], Tensor]


@lru_cache(maxsize=64)
def catalogue(n: int, dimension: int | None = None) -> tuple[Entry, ...]:
    r"""All entries of `n` x `n` matrices except the trivial algebra, or those of one dimension; no two are conjugate.

    Each algebra also appears acting on a block, the other coordinates fixed, and with the
    multiples of the identity added, as in `so(1,3)+R`.
    """
    plans = [*_blocks(n), *_on_all_coordinates(n)]
    found = {p.name: _embed(p.make(), n) for p in plans if dimension in (None, p.dimension)}
    eye = torch.eye(n, dtype=torch.float64)
    for plan in plans:
        # These two are there already, as borel(2) and gl(n); of two blocks that are scaled, one may be any of them.
        there = (plan.name, n) == ("affine(1)", 2) or plan.name == f"sl({n})" or "+scaling" in plan.name
        there = there or any(plan.name == f"scaling({m})" for m in range(n // 2 + 1, n))
        if not there and dimension in (None, plan.dimension + 1):
            basis = _embed(plan.make(), n)
            if not LieAlgebra(basis).contains(eye):
                found[plan.name + "+R"] = torch.cat([basis, eye[None]])
    return tuple(Entry(name, LieAlgebra(basis)) for name, basis in found.items())


def _blocks(n: int) -> list[_Plan]:
    r"""Algebras that act on some of the coordinates and fix the others."""
    metrics = [plan for m in range(2, n + 1) for plan in _metric_algebras(m)]
    found = list(metrics)
    for m in range(2, n + 1):
        found += [_plan(f"sl({m})", m, m * m - 1, known.sl, m), _plan(f"gl({m})", m, m * m, known.gl, m)]
    scalings = {m: _plan(f"scaling({m})", m, 1, known.scaling, m) for m in range(1, n)}
    if n >= 3:
        found += [_plan("heisenberg", 3, 3, known.heisenberg), *scalings.values()]
    for each in metrics:
        if each.size < n:
            found.append(_joined(each, scalings[each.size], torch.cat))
    if n >= 4:
        found += [
            _plan("sp(4)", 4, 10, known.sp, 4),
            _plan("u(2)", 4, 4, known.u, 2),
            _plan("su(2)", 4, 3, known.su, 2),
        ]
        found.append(_plan("u(1)", 4, 1, _complex_structure))
    for second, first in combinations_with_replacement(metrics, 2):
        if first.size + second.size <= n:
            found.append(_joined(first, second, _direct_sum))
    return found


def _on_all_coordinates(n: int) -> list[_Plan]:
    r"""Algebras that have their own meaning on the whole space."""
    found = [_plan("scaling", n, 1, known.scaling, n)]
    if n >= 2:
        found += [_plan("shear", n, 1, known.shear, n), _plan(f"borel({n})", n, n * (n + 1) // 2, known.borel, n)]
        found.append(_plan(f"affine({n - 1})", n, n * (n - 1), known.affine, n - 1))
    rotations = (n - 1) * (n - 2) // 2
    if n >= 3:
        found.append(_plan(f"euclidean({n - 1})", n, rotations + n - 1, known.euclidean, n - 1))
        found.append(_Plan(f"diagonal({n})", n, n, lambda: torch.diag_embed(torch.eye(n, dtype=torch.float64))))
        for p in range(1, (n - 1) // 2 + 1):
            found.append(_plan(f"iso({p},{n - 1 - p})", n, rotations + n - 1, _poincare, p, n - 1 - p))
    if n >= 4:
        found.append(_plan(f"galilei({n - 2})", n, rotations + n - 1, known.galilei, n - 2))
    return found


def _plan(name: str, size: int, dimension: int, make: Callable[..., LieAlgebra], *arguments: int) -> _Plan:
    return _Plan(name, size, dimension, lambda: make(*arguments).basis)


def _joined(first: _Plan, second: _Plan, join: Callable[[list[Tensor]], Tensor]) -> _Plan:
    r"""Two algebras of blocks that lie on each other, or beside each other."""
    size = first.size if join is torch.cat else first.size + second.size
    dimension = first.dimension + second.dimension
    return _Plan(f"{first.name}+{second.name}", size, dimension, lambda: join([first.make(), second.make()]))


def _metric_algebras(m: int) -> list[_Plan]:
    r"""so(m) and so(p, q) with p + q = m, each signature once."""
    dimension = m * (m - 1) // 2
    found = [_plan(f"so({m})", m, dimension, known.so, m)]
    return found + [_plan(f"so({p},{m - p})", m, dimension, known.so, p, m - p) for p in range(1, m // 2 + 1)]


def _embed(basis: Tensor, n: int) -> Tensor:
    rest = n - basis.shape[-1]
    return torch.nn.functional.pad(basis, (0, rest, 0, rest))


def _direct_sum(parts: list[Tensor]) -> Tensor:
    first, second = (part.shape[-1] for part in parts)
    upper = torch.nn.functional.pad(parts[0], (0, second, 0, second))
    lower = torch.nn.functional.pad(parts[1], (first, 0, first, 0))
    return torch.cat([upper, lower])


def _poincare(*signature: int) -> LieAlgebra:
    r"""Rotations and boosts of a metric, with all translations."""
    basis = known.so(*signature).basis
    d = basis.shape[-1]
    shifts = torch.zeros(d, d + 1, d + 1, dtype=basis.dtype)
    shifts[range(d), range(d), d] = 1.0
    return LieAlgebra(torch.cat([_embed(basis, d + 1), shifts]))


def _complex_structure() -> LieAlgebra:
    r"""Multiplication by i on C^2: a rotation by the same angle in two planes."""
    return LieAlgebra(torch.block_diag(*known.so(2).basis, *known.so(2).basis)[None])


def orbit_rates(algebra: LieAlgebra) -> Tensor:
    r"""How fast the span moves under conjugation by exp(tX), for orthonormal X: singular values, largest first."""
    n, frame = algebra.size, algebra.frame()
    rows = frame.flatten(1)
    units = torch.eye(n * n, dtype=torch.float64, device=frame.device).reshape(-1, n, n)
    moved = commutator(units[:, None], frame[None]).flatten(2)  # (n * n, k, n * n)
    moved = moved - (moved @ rows.mT) @ rows
    return torch.linalg.svdvals(moved.flatten(1))


# Weight of the squared logarithm of the singular values of S. Very unequal ones make different algebras
# alike (rotations contract to shears), and S is free up to the normaliser anyway.
_SHRINK = 1e-4
_POLISH = 8


@dataclass(frozen=True, eq=False)
class Conjugation:
    r"""The best conjugate of one algebra found near another.

    Attributes:
        matrix: S, with shape `(n, n)`.
        residual: Root sum of squares of the sines of the principal angles between the span sought
            and S (algebra) S^-1.
        frame: Orthonormal generators of that conjugate, with shape `(k, n, n)`.
    """

    matrix: Tensor
    residual: float
    frame: Tensor

    @property
    def spread(self) -> float:
        r"""Logarithm of the condition number of S."""
        values = torch.linalg.svdvals(self.matrix)
        return float((values[0] / values[-1]).log())


@dataclass(eq=False)
class _Batch:
    r"""Starts under way: which source each belongs to, S, its generators, and the state of the damping."""

    owner: Tensor
    matrices: Tensor
    generators: Tensor
    damping: Tensor

    def keep(self, index: Tensor) -> _Batch:
        return _Batch(self.owner[index], self.matrices[index], self.generators[index], self.damping[index])


def fit_conjugations(target: Tensor, sources: list[Tensor], starts: int = 8, iterations: int = 40) -> list[Conjugation]:
    r"""Conjugates each of `sources` as near to the span of `target` as it will go.

    Gauss-Newton with damping on the sum of squared sines of the principal angles, from `starts`
    orthogonal matrices each, all in one batch that is thinned as it goes. Under S -> (1 + X) S the
    frame E moves by [X, E], of which only the part outside the span counts.

    Arguments:
        target: Orthonormal generators, with shape `(k, n, n)`.
        sources: Generators of algebras of the same dimension, each with shape `(k, n, n)`.
        starts: Number of starts per source.

    Returns:
        The best conjugation of each source.
    """
    k, n, _ = target.shape
    normal = torch.linalg.qr(target.flatten(1).mT, mode="complete").Q.mT[k:]
    owner = torch.arange(len(sources)).repeat_interleave(starts)
    batch = _Batch(
        owner,
        _orthogonal(n, starts).to(target).repeat(len(sources), 1, 1),
        torch.stack(sources)[owner],
        torch.full((len(owner),), 1e-2, dtype=target.dtype, device=target.device),
    )
    for kept, steps, shrink in (
        (max(starts // 2, 1), 6, _SHRINK),
        (2, 6, _SHRINK),
        (1, max(iterations - 12 - _POLISH, 1), _SHRINK),
        (1, _POLISH, 0.0),
    ):
        if not shrink:
            batch.damping.clamp_(max=1e-6)
        batch, errors = _descend(batch, normal, steps, shrink)
        batch, errors = _thin(batch, errors, kept)
    frames = _conjugate(batch.matrices, batch.generators)
    residuals = _errors(frames, normal).sqrt()
    return [Conjugation(batch.matrices[i], float(residuals[i]), frames[i]) for i in range(len(sources))]


def _orthogonal(n: int, count: int) -> Tensor:
    generator = torch.Generator().manual_seed(n)
    random = torch.randn(count, n, n, generator=generator, dtype=torch.float64)
    matrices = torch.linalg.qr(random).Q
    matrices[0] = torch.eye(n, dtype=torch.float64)
    # No path joins the two orientations, and a complex structure has one: take both in turn.
    wanted = 1.0 - 2.0 * (torch.arange(count) % 2)
    matrices[:, 0] *= (wanted * torch.linalg.det(matrices).sign())[:, None]
    return matrices


def _descend(batch: _Batch, normal: Tensor, steps: int, shrink: float) -> tuple[_Batch, Tensor]:
    matrices, damping = batch.matrices, batch.damping
    frames, logs = _conjugate(matrices, batch.generators), _stretch(matrices)
    errors = _errors(frames, normal) + shrink * logs.square().sum(dim=(1, 2))
    for _ in range(steps):
        before = errors
        moved = _step(matrices, frames, logs, normal, damping, shrink)
        frames_moved, logs_moved = _conjugate(moved, batch.generators), _stretch(moved)
        errors_moved = _errors(frames_moved, normal) + shrink * logs_moved.square().sum(dim=(1, 2))
        better = errors_moved < errors
        choice = better[:, None, None]
        matrices = torch.where(choice, moved, matrices)
        logs = torch.where(choice, logs_moved, logs)
        frames = torch.where(choice[..., None], frames_moved, frames)
        errors = torch.where(better, errors_moved, errors)
        damping = torch.where(better, damping * 0.2, damping * 5.0).clamp(1e-9, 1e3)
        if bool((better & (errors > 0.999 * before) | (errors < 1e-26)).all()):
            break
    return _Batch(batch.owner, matrices, batch.generators, damping), errors


def _thin(batch: _Batch, errors: Tensor, kept: int) -> tuple[_Batch, Tensor]:
    r"""Keeps the best starts of every source."""
    chosen = []
    for owner in batch.owner.unique():
        mine = (batch.owner == owner).nonzero().flatten()
        chosen.append(mine[errors[mine].argsort()[:kept]])
    index = torch.cat(chosen)
    return batch.keep(index), errors[index]


def _conjugate(matrices: Tensor, generators: Tensor) -> Tensor:
    r"""Orthonormal frames `(b, k, n, n)` of the conjugates."""
    moved = matrices[:, None] @ generators @ torch.linalg.inv(matrices)[:, None]
    rows = torch.linalg.qr(moved.flatten(2).mT).Q.mT
    return rows.unflatten(2, moved.shape[2:])


def _stretch(matrices: Tensor) -> Tensor:
    r"""The symmetric logarithm of S S^T, halved: how far S is from orthogonal."""
    values, vectors = torch.linalg.eigh(matrices @ matrices.mT)
    logs = 0.5 * values.clamp(min=1e-12).log()
    return (vectors * logs[:, None]) @ vectors.mT


def _errors(frames: Tensor, normal: Tensor) -> Tensor:
    return (frames.flatten(2) @ normal.mT).square().sum(dim=(1, 2))


def _step(matrices: Tensor, frames: Tensor, logs: Tensor, normal: Tensor, damping: Tensor, shrink: float) -> Tensor:
    n = matrices.shape[-1]
    k, m = frames.shape[1], len(normal)
    rows = frames.flatten(2)  # (b, k, d)
    outside = rows @ normal.mT  # (b, k, m)
    free = (normal - outside.mT @ rows).unflatten(2, (n, n))  # (b, m, n, n)
    # <N, [X, E]> = <[N, E^T], X>; two large products in place of k * m small ones.
    stacked = frames.mT.permute(0, 2, 1, 3).flatten(2)  # (b, n, k * n)
    right = (free.flatten(1, 2) @ stacked).unflatten(1, (m, n)).unflatten(3, (k, n))  # (b, m, n, k, n)
    stacked = free.permute(0, 2, 1, 3).flatten(2)  # (b, n, m * n)
    left = (frames.mT.flatten(1, 2) @ stacked).unflatten(1, (k, n)).unflatten(3, (m, n))  # (b, k, n, m, n)
    jacobian = right.permute(0, 3, 1, 2, 4) - left.permute(0, 1, 3, 2, 4)
    jacobian = jacobian.reshape(len(frames), k * m, n * n)
    gram = jacobian.mT @ jacobian
    gram.diagonal(dim1=1, dim2=2).add_(damping[:, None] + shrink)
    downhill = -(jacobian.mT @ outside.flatten(1)[..., None]).squeeze(-1) - shrink * logs.flatten(1)
    direction = torch.linalg.solve(gram, downhill).unflatten(1, (n, n))
    size = torch.linalg.matrix_norm(direction)[:, None, None]
    return matrices + (direction * (0.6 / size.clamp(min=0.6))) @ matrices
