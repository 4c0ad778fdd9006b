"""First order in closed form: the Gram matrices of the residual over all generators at once.

The residual of a generator A, r_A(x) = DPsi(x)[A.x] - A.Psi(x), is linear in A. Its Gram matrix G over the
n^2 elementary matrices says how badly every direction commutes; D says what chance would give.
"""

from __future__ import annotations

__all__ = ["Gram", "accumulate", "pool", "solve"]

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jvp, vmap

from atlasd.discovery.problem import Problem, Split
from atlasd.discovery.support import across, gradients
from atlasd.runtime.executor import About, Shared, current_workers
from atlasd.runtime.progress import Progress


@dataclass(frozen=True, eq=False)
class Gram:
    """Residual and chance Gram matrices of every chart, per shard of samples.

    Arguments:
        residual: With shape `(shards, K, n^2, n^2)`.
        chance: With shape `(shards, K, n^2, n^2)`.
        counts: Samples in each shard, `(shards,)`.
    """

    residual: Tensor
    chance: Tensor
    counts: Tensor

    def total(self, shards: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean over shards (or over the shards named, with repetition): two `(K, n^2, n^2)`."""
        w = self.counts.double() if shards is None else torch.bincount(shards, minlength=len(self.counts)) * self.counts
        w = w.double() / w.sum()
        return torch.einsum("s,skab->kab", w, self.residual), torch.einsum("s,skab->kab", w, self.chance)


def elementary(n: int) -> Tensor:
    """The n^2 elementary matrices, with shape `(n^2, n, n)`."""
    return torch.eye(n * n, dtype=torch.float64).reshape(n * n, n, n)


def accumulate(
    problem: Problem,
    split: Split,
    *,
    limit: int | None = None,
    batch: int = 32,
    shards: int = 16,
    progress: Progress | None = None,
) -> Gram:
    """Streams one split of the data; memory does not grow with it.

    Arguments:
        problem: The map and the action.
        split: Which samples.
        limit: The most samples used.
        batch: Samples evaluated together.
        shards: Into how many parts the sums are kept, for the bootstrap.
        progress: Who is told how far it is.
    """
    index = problem.indices(split)
    index = index[: len(index) if limit is None else limit]
    parts = index.tensor_split(min(shards, len(index)))
    blocks = problem.blocks()
    shared = [Shared(problem.part(block)) for block in blocks]
    # Shard by shard: what arrives is small, and is put together in the same order whoever computed it.
    tasks = [(block, part, batch) for part in parts for block in shared]
    names = [About(block, shard) for shard in range(len(parts)) for block in blocks]
    done = current_workers().stream(
        shard_gram, tasks, names, progress=progress, label="first order", stage="first order", quick=problem.is_field
    )
    rows = list(zip(*[done] * len(blocks), strict=True))
    residual, chance = (torch.stack([torch.cat([pair[i] for pair in row]) for row in rows]) for i in range(2))
    return Gram(residual, chance, torch.tensor([len(part) for part in parts]))


def shard_gram(problem: Shared[Problem], index: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """Residual and chance of one shard of samples for one block of charts, each `(K, n^2, n^2)`."""
    one = _field_gram if problem.value.is_field else _vector_gram
    sums: tuple[Tensor, ...] | None = None
    for piece in index.split(batch):
        values = one(problem.value, problem.value.patches(piece))
        sums = values if sums is None else tuple(a + b for a, b in zip(sums, values, strict=True))
    assert sums is not None
    finish = _finish_field if problem.value.is_field else _finish_vector
    return finish(problem.value, sums, len(index))


def _field_gram(problem: Problem, x: Tensor) -> tuple[Tensor, ...]:
    """Sums over samples of the two Gram matrices, each `(K, n^2, n^2)`."""
    basis = elementary(problem.size).to(x.dtype)
    motions = torch.stack([problem.action.input_generator(a, x) for a in basis])  # (n^2, B, K, C, *S)
    y, pushed = push_forward(problem.outputs, x, motions)
    if problem.pointwise is not None:
        shape = tuple(y.shape[3:])
        y, pushed = y - problem.pointwise(x, shape), pushed - problem.pointwise.push(x, motions, shape)
    mask = problem.window(tuple(y.shape[3:])).to(y.dtype).sqrt()
    j = (pushed * mask).flatten(3)
    t = torch.stack([problem.action.output_generator(a, y) * mask for a in basis]).flatten(3)
    # Means of outputs are not removed: a constant output moves nowhere and adds nothing.
    r = (j - t).double()
    chance = torch.einsum("abkq,cbkq->kac", j.double(), j.double())
    chance = chance + torch.einsum("abkq,cbkq->kac", t.double(), t.double())
    return torch.einsum("abkq,cbkq->kac", r, r), chance


def _finish_field(problem: Problem, sums: tuple[Tensor, ...], count: int) -> tuple[Tensor, Tensor]:
    return sums[0] / count, sums[1] / count


def push_forward(function: Callable[[Tensor], Tensor], x: Tensor, tangents: Tensor) -> tuple[Tensor, Tensor]:
    """Value and derivatives of a function along a stack of tangents, batched where the function allows it."""
    with torch.no_grad():
        try:
            y = jvp(function, (x,), (tangents[0],))[0]
            return y, vmap(lambda v: jvp(function, (x,), (v,))[1])(tangents)
        except (RuntimeError, NotImplementedError):  # an operation without a forward derivative
            step = 1e-3 * float(x.std()) / max(float(tangents.std()), 1e-30)
            moved = [(function(x + step * v) - function(x - step * v)) / (2 * step) for v in tangents]
            return function(x), torch.stack(moved)


def _vector_gram(problem: Problem, x: Tensor) -> tuple[Tensor, ...]:
    """Sums over samples: residual Gram, moments of gradients and of inputs, Gram of the output motion."""
    y, gradient, p = gradients(problem, x)
    j = torch.einsum("obpi,bpj->boij", gradient, p).flatten(2)  # (B, O, n^2)
    basis = elementary(problem.size)
    t = torch.stack([problem.action.output_generator(a.to(y.dtype), y)[:, 0] for a in basis], dim=-1).double()
    r = j - t
    if problem.cone is not None:
        # Across the cone a fitted map may do anything, and would set the level of chance for what it does along it.
        # Vectors on a cone come in all sizes: a gradient meets the motion of another sample of its own size.
        normal, size = across(problem.cone, p), p.flatten(1).norm(dim=-1)[:, None, None].clamp_min(1e-300)
        gradient = (gradient - (gradient * normal).sum(-1, keepdim=True) * normal) * size
        p = p / size
    g = gradient.flatten(2)
    v = p.flatten(1)
    return (
        torch.einsum("boa,boc->ac", r, r)[None],
        torch.einsum("obu,obv->uv", g, g)[None],
        torch.einsum("bu,bv->uv", v, v)[None],
        torch.einsum("boa,boc->ac", t, t)[None],
    )


def _finish_vector(problem: Problem, sums: tuple[Tensor, ...], count: int) -> tuple[Tensor, Tensor]:
    """Chance: gradients of one sample met by motions of another."""
    n = problem.size
    residual, gradients, inputs, moved = (s[0] / count for s in sums)
    tokens = gradients.shape[0] // n
    g, v = gradients.reshape(tokens, n, tokens, n), inputs.reshape(tokens, n, tokens, n)
    chance = torch.einsum("piqk,pjql->ijkl", g, v).reshape(n * n, n * n)
    return residual[None], (chance + moved)[None]


def pool(residual: Tensor, chance: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted sums over charts, each chart in units of its own chance level.

    Arguments:
        residual: With shape `(K, m, m)`.
        chance: With shape `(K, m, m)`.
        weights: With shape `(K,)`.
    """
    unit = chance.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(1e-300)
    w = weights / unit
    return torch.einsum("k,kab->ab", w, residual), torch.einsum("k,kab->ab", w, chance)


def solve(residual: Tensor, chance: Tensor, *, testable: float = 1e-7) -> tuple[Tensor, Tensor, Tensor]:
    """The generalised eigenproblem `G v = lambda D v` on the directions that can be felt.

    Arguments:
        residual: G, with shape `(m, m)`.
        chance: D, with shape `(m, m)`.
        testable: Directions whose chance level is below this share of the largest are not testable.

    Returns:
        Eigenvalues ascending `(r,)`, directions `(r, m)` of unit Frobenius norm, and the directions that cannot
        be tested `(m - r, m)`.
    """
    size, frame = torch.linalg.eigh((chance + chance.mT) / 2)
    keep = size > testable * size.max().clamp_min(1e-300)
    white = frame[:, keep] / size[keep].sqrt()
    values, vectors = torch.linalg.eigh(white.mT @ ((residual + residual.mT) / 2) @ white)
    directions = (white @ vectors).mT
    directions = directions / directions.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    return values.clamp_min(0.0), directions, frame[:, ~keep].mT
