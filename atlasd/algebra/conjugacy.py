r"""The search for a matrix that conjugates one algebra into another."""

from __future__ import annotations

__all__ = ["Conjugation", "fit_conjugations"]

from dataclasses import dataclass

import torch
from torch import Tensor

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
        iterations: Number of steps.

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
