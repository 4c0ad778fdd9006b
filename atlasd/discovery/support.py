r"""Where vectors lie: a cone that holds all of them says which motions they can be asked about.

Light-like momenta lie on :math:`p^T Q p = 0`. A map fitted to such data is not determined beside the cone, so
neither is its derivative across it: motions that lead off the cone cannot be tested, however smooth the map looks.
"""

from __future__ import annotations

__all__ = ["across", "find_cone", "keeps_cone", "onto_cone", "stabiliser"]

import torch
from torch import Tensor
from torch.func import vjp, vmap

from atlasd.discovery.problem import Problem

_THIN = 1e-4
"""Mean square of the best quadratic form on vectors, relative to the next best, below which it counts as zero."""
_SAMPLES = 2048


def gradients(problem: Problem, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs `(B, 1, O)`, gradients `(O, B, P, n)` and tokens `(B, P, n)` of inputs `(B, 1, *in)`; both in float64."""
    tokens = x if x.ndim == 4 else x.unsqueeze(2)  # (B, 1, P, n)

    def outputs(z: Tensor) -> Tensor:
        y = problem.psi(z if x.ndim == 4 else z.squeeze(2))
        return y.flatten(2) if y.ndim > 2 else y.unsqueeze(2)  # (B, 1, O)

    y, pull = vjp(outputs, tokens)[:2]
    count = y.shape[-1]
    seeds = torch.eye(count, dtype=y.dtype)[:, None, None, :].expand(count, *y.shape)
    (gradient,) = vmap(pull)(seeds)  # (O, B, 1, P, n)
    return y.detach(), gradient[:, :, 0].detach().double(), tokens[:, 0].detach().double()


def find_cone(problem: Problem, *, afar: bool = False) -> Tensor | None:
    """The form Q `(n, n)` that vanishes on all vectors that a map tells apart, if there is one and no other.

    A map of the sum of the tokens alone is asked about sums: those of light-like momenta lie on no cone.

    Arguments:
        problem: The map and its data.
        afar: Takes a cone to which vectors come the nearer the longer they are, as momenta with small masses do: what
            counts are the values of the form on the vectors as they are, and not on their directions.
    """
    n = problem.size
    if n < 3 or problem.is_field:
        return None
    x = problem.patches(problem.search[:_SAMPLES])
    _, gradient, tokens = gradients(problem, x[:64])
    spread = (gradient - gradient.mean(2, keepdim=True)).norm()
    vectors = x[:, 0].double() if x.ndim == 4 else x.double()
    if tokens.shape[1] > 1 and float(spread) < 1e-5 * float(gradient.norm()):
        vectors = vectors.sum(1, keepdim=True)
    vectors = vectors.reshape(-1, n)
    vectors = vectors[(vectors != 0).any(-1)]
    i, j = torch.triu_indices(n, n)
    if len(vectors) < 10 * len(i):
        return None
    size = vectors.square().mean().sqrt() if afar else vectors.norm(dim=-1, keepdim=True)
    unit = vectors / size
    products = unit[:, i] * unit[:, j] * torch.where(i == j, 1.0, 2**0.5)
    values, frame = torch.linalg.eigh(products.mT @ products / len(products))
    # Vectors in a subspace make many forms vanish: none of them is the shape of a cone.
    if float(values[0]) > _THIN * float(values[1]) or float(values[1]) < _THIN * float(values[-1]):
        return None
    form = torch.zeros(n, n, dtype=torch.float64)
    form[i, j] = frame[:, 0] * torch.where(i == j, 1.0, 0.5**0.5)
    form[j, i] = form[i, j]
    return form / form.norm()


def stabiliser(cone: Tensor) -> Tensor:
    r"""Orthonormal rows `(m, n^2)` of the matrices with :math:`A^T Q + Q A = c\, Q`: those that keep the cone.

    Example:
        >>> light = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0])).double()
        >>> len(stabiliser(light))  # three turns, three boosts, the scaling
        7
    """
    n = len(cone)
    basis = torch.eye(n * n, dtype=torch.float64).reshape(-1, n, n)
    images = (basis.mT @ cone + cone @ basis).flatten(1)
    q = cone.flatten() / cone.norm()
    images = images - (images @ q)[:, None] * q
    _, s, v = torch.linalg.svd(images.mT)
    rank = int((s > 1e-6 * s.max()).sum())
    return v[rank:]


def onto_cone(cone: Tensor, basis: Tensor, *, near: float) -> Tensor:
    """The nearest generators to `(k, n, n)` that keep the cone; the given ones where any is not `near` to it."""
    flat = basis.double().flatten(1)
    span = stabiliser(cone)
    moved = flat @ span.mT @ span
    close = (moved - flat).norm(dim=-1) <= near * flat.norm(dim=-1)
    return moved.reshape(basis.shape) if bool(close.all()) else basis


def keeps_cone(cone: Tensor | None, motions: Tensor, *, finite: bool, tolerance: float = 0.2) -> Tensor:
    """Whether each of several generators, or of elements if `finite`, `(M, n, n)`, maps the cone to itself, `(M,)`."""
    if cone is None:
        return torch.ones(len(motions), dtype=torch.bool)
    motions = motions.double()
    images = motions.mT @ cone @ motions if finite else motions.mT @ cone + cone @ motions
    q = cone.flatten() / cone.norm()
    images = images.flatten(1)
    outside = (images - (images @ q)[:, None] * q).norm(dim=-1)
    size = images.norm(dim=-1) if finite else motions.flatten(1).norm(dim=-1) * cone.norm()
    return outside <= tolerance * size.clamp_min(1e-300)


def across(cone: Tensor, tokens: Tensor) -> Tensor:
    """Unit normals of the cone at `tokens` `(B, P, n)`; zero where there is no token."""
    normal = tokens @ cone
    return normal / normal.norm(dim=-1, keepdim=True).clamp_min(1e-300)
