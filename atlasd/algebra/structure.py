r"""The structure of a Lie algebra, computed from the structure constants of an orthonormal frame.

Subspaces of the algebra are orthonormal rows of coordinates `(m, k)` in that frame. Ranks are decided on
singular values divided by :math:`\sqrt k`, so that the same tolerance suits every dimension.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from atlasd.limits import APART, EXACT


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


def structure_constants(frame: Tensor) -> Tensor:
    r"""Least-squares constants `(k, k, k)` of an orthonormal `frame` `(k, n, n)`."""
    brackets = commutator(frame[:, None], frame[None])
    return torch.einsum("ijab,lab->ijl", brackets, frame)


def killing_form(constants: Tensor) -> Tensor:
    r"""The Killing form :math:`K_{ij} = \sum_{lm} c_{ilm} c_{jml}`, with shape `(k, k)`."""
    return torch.einsum("ilm,jml->ij", constants, constants)


def _scale(constants: Tensor) -> float:
    return float(max(constants.shape[0], 1) ** 0.5)


def derived_series(constants: Tensor, tolerance: float) -> list[Tensor]:
    r"""The derived series, as rows of coordinates: the algebra, then brackets of the part before, while they shrink."""
    found = [torch.eye(constants.shape[0], dtype=constants.dtype, device=constants.device)]
    while found[-1].shape[0]:
        brackets = torch.einsum("ai,bj,ijl->abl", found[-1], found[-1], constants)
        smaller = significant_rows(brackets.flatten(0, 1), tolerance * _scale(constants))
        if smaller.shape[0] >= found[-1].shape[0]:
            break
        found.append(smaller)
    return found


def centre(constants: Tensor, tolerance: float) -> Tensor:
    r"""Rows spanning the elements that commute with everything."""
    return null_rows(constants.permute(1, 2, 0).flatten(0, 1), tolerance * _scale(constants))


_MOST_NUMBERS = 1 << 26
"""Of a Jacobian; half a gigabyte."""
# Below this size per pair, brackets of unit matrices count as noise about zero.
_USUAL_BRACKET = 0.25


def closure_error(frame: Tensor) -> float:
    r"""Relative size of the part of the brackets of an orthonormal `frame` `(k, n, n)` outside its span."""
    k = frame.shape[0]
    if k < 2:
        return 0.0
    rows = frame.flatten(1)
    first, second = torch.triu_indices(k, k, 1)
    brackets = commutator(frame[first], frame[second]).flatten(1)
    outside = brackets - (brackets @ rows.mT) @ rows
    usual = _USUAL_BRACKET * len(first) ** 0.5
    return float(outside.norm() / brackets.norm().clamp(min=usual))


def spans(basis: Tensor, count: int, most: int) -> Iterator[Tensor]:
    """Spans `(count, n, n)` of candidates `(k, n, n)`, best first: the best of them, and what their brackets say.

    What good generators bring forth is known better than candidates that are worse than they. Brackets know nothing of
    a centre, of which every candidate may hold a share.

    Arguments:
        most: How many candidates are looked at.
    """
    yield basis[:count]
    for k in range(2, most + 1):
        frame = orthonormal_rows(basis[:k].flatten(1), 1e-6)
        if len(frame) == count:
            continue
        # Of fewer than are asked for, what brackets add; of more, their brackets alone.
        unit, known = frame.unflatten(1, basis.shape[1:]), frame[: len(frame) if len(frame) < count else 0]
        brackets = commutator(unit[:, None], unit).flatten(0, 1).flatten(1)
        _, sizes, rows = torch.linalg.svd(brackets - brackets @ known.mT @ known, full_matrices=False)
        more = count - len(known)
        if more < len(sizes) and float(sizes[more - 1]) > APART * max(float(sizes[more]), EXACT):
            yield torch.cat([known, rows[:more]]).unflatten(1, basis.shape[1:])


def close_brackets(frame: Tensor, iterations: int) -> Tensor:
    r"""Damped Gauss-Newton on :math:`(1 - P)[E_i, E_j] = 0` over the span of `frame` `(k, n, n)`.

    Each step moves the frame orthogonally to its span, :math:`E_i \to E_i + \sum_a x_{ia} N_a`, where
    :math:`N_a` spans the complement. The damping is the size of the error itself: directions in which the
    error hardly changes (deformations, conjugations) are left alone, so the span moves little. Where the Jacobian
    would not fit into memory, the span stays where it is.

    Returns:
        Orthonormal generators of the span reached, with shape `(k, n, n)`.
    """
    k, n, _ = frame.shape
    room = n * n - n * int((frame == 0).all(dim=-1).all(dim=0).sum()) - k
    if k < 2 or room <= 0 or k**3 * room**2 > 2 * _MOST_NUMBERS:
        return frame
    best, best_error = frame, torch.inf
    stalled = 0
    for _ in range(iterations):
        outside, jacobian, normal = _linearise(frame)
        error = float(outside.norm())
        stalled = 0 if error < 0.9 * best_error else stalled + 1
        if error < best_error:
            best, best_error = frame, error
        if error < 1e-12 or stalled > 5:
            break
        gram = jacobian.mT @ jacobian
        damping = 0.1 * min(error, 1.0) / len(outside) ** 0.5 + 1e-13
        gram.diagonal().add_(damping)
        step = -torch.linalg.solve(gram, jacobian.mT @ outside).unflatten(0, (k, len(normal)))
        step = step * min(1.0, 0.5 / float(step.norm() + 1e-30))
        moved = frame.flatten(1) + step @ normal
        frame = torch.linalg.qr(moved.mT).Q.mT.unflatten(1, (n, n))
    return best


def _linearise(frame: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r"""The closure error, its Jacobian in coordinates of the complement, and the complement's rows."""
    k, n, _ = frame.shape
    rows = frame.flatten(1)
    # Affine maps stay affine: a row that vanishes in all generators does so in what they are moved by.
    empty = (frame == 0).all(dim=-1).all(dim=0).repeat_interleave(n)
    spanned = torch.cat([rows.mT, torch.eye(n * n, dtype=frame.dtype, device=frame.device)[:, empty]], dim=1)
    normal = torch.linalg.qr(spanned, mode="complete").Q.mT[spanned.shape[1] :]  # (n * n - k - empty, n * n)
    first, second = torch.triu_indices(k, k, 1)
    brackets = commutator(frame[first], frame[second]).flatten(1)
    outside = brackets @ normal.mT  # (pairs, n * n - k)
    inside = brackets @ rows.mT  # (pairs, k)
    # ad[j, b, a]: component along N_b of [N_a, E_j].
    directions = normal.unflatten(1, (n, n))
    moved = commutator(directions[None], frame[:, None]).flatten(2)
    ad = moved @ normal.mT  # (k, a, b)
    pairs = torch.arange(len(first))
    jacobian = frame.new_zeros(len(first), len(normal), k, len(normal))
    jacobian[pairs, :, first] += ad[second].mT
    jacobian[pairs, :, second] -= ad[first].mT
    # Moving the span also moves what counts as outside: -dP [E_i, E_j] = -sum_l c_ijl N_l.
    eye = torch.eye(len(normal), dtype=frame.dtype, device=frame.device)
    jacobian -= torch.einsum("pl,ab->palb", inside, eye)
    return outside.flatten(), jacobian.flatten(2).flatten(0, 1), normal
