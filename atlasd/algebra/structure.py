r"""The structure of a Lie algebra, computed from the structure constants of an orthonormal frame.

Subspaces of the algebra are orthonormal rows of coordinates `(m, k)` in that frame. Ranks are decided on
singular values divided by :math:`\sqrt k`, so that the same tolerance suits every dimension.
"""

from __future__ import annotations

__all__ = [
    "centre",
    "common_rows",
    "commutator",
    "derived",
    "killing_form",
    "null_rows",
    "orthonormal_rows",
    "principal_angles",
    "radical",
    "series",
    "significant_rows",
    "split_ideals",
    "structure_constants",
]

import torch
from torch import Tensor


def commutator(a: Tensor, b: Tensor) -> Tensor:
    r"""The bracket :math:`ab - ba` of matrices with shapes `(*, n, n)`."""
    return a @ b - b @ a


def orthonormal_rows(rows: Tensor, tolerance: float) -> Tensor:
    r"""Orthonormal rows with the span of `rows` `(m, d)`, each counted at unit length."""
    norms = rows.norm(dim=1)
    kept = rows[norms > 0] / norms[norms > 0, None]
    return significant_rows(kept, tolerance, relative=True)


def significant_rows(rows: Tensor, tolerance: float, relative: bool = False) -> Tensor:
    r"""Right singular vectors of `rows` `(m, d)` whose singular value exceeds `tolerance`, as rows."""
    if rows.numel() == 0:
        return rows.new_zeros(0, rows.shape[1])
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    limit = tolerance * values[0] if relative else torch.as_tensor(tolerance, dtype=values.dtype)
    return vectors[values > limit]


def null_rows(matrix: Tensor, tolerance: float) -> Tensor:
    r"""Right singular vectors of `matrix` `(m, d)` whose singular value is at most `tolerance`, as rows."""
    if matrix.shape[0] == 0 or matrix.shape[1] == 0:
        return torch.eye(matrix.shape[1], dtype=matrix.dtype, device=matrix.device)
    if matrix.shape[0] > matrix.shape[1]:
        # The left factor of a tall matrix is large and not needed.
        matrix = torch.linalg.qr(matrix, mode="r").R
    _, values, vectors = torch.linalg.svd(matrix, full_matrices=True)
    return vectors[int((values > tolerance).sum()) :]


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    r"""Ascending principal angles between the spans of orthonormal rows `a` and `b`."""
    if a.shape[0] > b.shape[0]:
        a, b = b, a
    if a.shape[0] == 0:
        return a.new_zeros(0)
    u, cosines, _ = torch.linalg.svd(a @ b.mT, full_matrices=False)
    vectors = u.mT @ a
    sines = (vectors - (vectors @ b.mT) @ b).norm(dim=1)
    # Neither alone: acos loses half the digits at small angles, asin at right angles.
    return torch.atan2(sines, cosines)


def common_rows(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    r"""Orthonormal rows midway between the directions that the spans of `a` and `b` share."""
    if min(a.shape[0], b.shape[0]) == 0:
        return a.new_zeros(0, a.shape[1])
    u, cosines, vh = torch.linalg.svd(a @ b.mT, full_matrices=False)
    left, right = u.mT @ a, vh @ b
    sines = (left - (left @ b.mT) @ b).norm(dim=1)
    midway = (left + right)[(sines <= tolerance) & (cosines > 0)]
    return midway / midway.norm(dim=1, keepdim=True)


def structure_constants(frame: Tensor) -> Tensor:
    r"""Least-squares constants `(k, k, k)` of an orthonormal `frame` `(k, n, n)`."""
    brackets = commutator(frame[:, None], frame[None])
    return torch.einsum("ijab,lab->ijl", brackets, frame)


def killing_form(constants: Tensor) -> Tensor:
    r"""The Killing form :math:`K_{ij} = \sum_{lm} c_{ilm} c_{jml}`, with shape `(k, k)`."""
    return torch.einsum("ilm,jml->ij", constants, constants)


def _scale(constants: Tensor) -> float:
    return float(max(constants.shape[0], 1) ** 0.5)


def derived(constants: Tensor, rows: Tensor, tolerance: float, other: Tensor | None = None) -> Tensor:
    r"""Rows spanning the brackets of the subspace `rows` with `other` (itself by default)."""
    other = rows if other is None else other
    brackets = torch.einsum("ai,bj,ijl->abl", rows, other, constants)
    return significant_rows(brackets.flatten(0, 1), tolerance * _scale(constants))


def series(constants: Tensor, tolerance: float, central: bool) -> list[Tensor]:
    r"""The derived series, or with `central` the lower central series, as rows, the algebra first."""
    everything = torch.eye(constants.shape[0], dtype=constants.dtype, device=constants.device)
    found = [everything]
    while found[-1].shape[0]:
        smaller = derived(constants, everything if central else found[-1], tolerance, found[-1])
        if smaller.shape[0] >= found[-1].shape[0]:
            break
        found.append(smaller)
    return found


def centre(constants: Tensor, tolerance: float) -> Tensor:
    r"""Rows spanning the elements that commute with everything."""
    return null_rows(constants.permute(1, 2, 0).flatten(0, 1), tolerance * _scale(constants))


def radical(constants: Tensor, tolerance: float) -> Tensor:
    r"""Rows spanning the Killing complement of the derived algebra."""
    everything = torch.eye(constants.shape[0], dtype=constants.dtype, device=constants.device)
    brackets = derived(constants, everything, tolerance)
    return null_rows(brackets @ killing_form(constants), tolerance)


def split_ideals(constants: Tensor, tolerance: float) -> list[Tensor]:
    r"""Rows of ideals whose direct sum is the algebra, the largest first.

    The central directions outside the derived algebra split off as one Abelian factor. The projections to
    the remaining factors commute with the adjoint action, so the eigenspaces of a generic matrix that
    does are sums of factors.
    """
    k = constants.shape[0]
    everything = torch.eye(k, dtype=constants.dtype, device=constants.device)
    brackets = derived(constants, everything, tolerance)
    central = centre(constants, tolerance)
    outside = central - (central @ brackets.mT) @ brackets
    free = significant_rows(outside, 0.3)
    if free.shape[0] == 0:
        return _split_by_centroid(constants, everything, tolerance)
    # The factor itself must be central: pull the directions back from `outside` into the centre.
    factor = significant_rows(free @ central.mT @ central, tolerance)
    if factor.shape[0] == k:
        return [factor]
    rest = null_rows(free, tolerance)
    reduced = torch.einsum("ai,bj,ijl,cl->abc", rest, rest, constants, rest)
    parts = [rows @ rest for rows in _split_by_centroid(reduced, everything[: rest.shape[0]], tolerance)]
    return sorted([*parts, factor], key=lambda rows: -rows.shape[0])


def _split_by_centroid(constants: Tensor, everything: Tensor, tolerance: float) -> list[Tensor]:
    k = constants.shape[0]
    everything = everything[:, :k]
    if k < 2:
        return [everything] if k else []
    # T commutes with every A = ad_i. The Gram matrix of T -> TA - AT, summed over i, is small enough
    # where the stacked map, with k^3 rows, is not.
    ad = constants.mT  # (i, l, m): component l of [E_i, E_m]
    outer, inner = (ad @ ad.mT).sum(0), (ad.mT @ ad).sum(0)
    cross = torch.einsum("ilm,ipq->lpmq", ad, ad)
    gram = torch.einsum("lm,pq->lpmq", everything, outer) + torch.einsum("lm,pq->lpmq", inner, everything)
    gram = (gram - cross - cross.permute(2, 3, 0, 1)).reshape(k * k, k * k)
    squares, vectors = torch.linalg.eigh(gram)
    centroid = vectors.mT[squares <= tolerance**2 * k]
    generator = torch.Generator().manual_seed(0)
    best: list[Tensor] = [everything]
    for _ in range(8):
        weights = torch.randn(centroid.shape[0], generator=generator, dtype=torch.float64)
        mixed = (weights.to(centroid) @ centroid).reshape(k, k)
        parts = _eigenspaces(mixed / max(float(torch.linalg.matrix_norm(mixed, 2)), 1e-12), 2 * tolerance)
        if len(parts) > len(best):
            best = parts
    return sorted(best, key=lambda rows: -rows.shape[0])


def _eigenspaces(matrix: Tensor, tolerance: float) -> list[Tensor]:
    r"""Real invariant subspaces of `matrix`, one per cluster of eigenvalues (conjugates together)."""
    values, vectors = torch.linalg.eig(matrix)
    # Conjugate pairs belong together, so cluster in the upper half plane.
    places = torch.complex(values.real, values.imag.abs())
    free = list(range(len(places)))
    parts = []
    while free:
        cluster = [free.pop(0)]
        for member in cluster:
            near = [i for i in free if abs(complex(places[i] - places[member])) < tolerance]
            cluster += near
            free = [i for i in free if i not in near]
        spanning = torch.cat([vectors[:, cluster].real.mT, vectors[:, cluster].imag.mT])
        _, _, rows = torch.linalg.svd(spanning, full_matrices=False)
        parts.append(rows[: len(cluster)])
    return parts
