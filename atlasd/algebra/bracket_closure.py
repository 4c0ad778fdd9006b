r"""How far a span of matrices is from being closed under the bracket, and the nearest span that is."""

from __future__ import annotations

__all__ = ["close_brackets", "closure_error"]

import torch
from torch import Tensor

from atlasd.algebra.structure import commutator

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


def close_brackets(frame: Tensor, iterations: int) -> Tensor:
    r"""Damped Gauss-Newton on :math:`(1 - P)[E_i, E_j] = 0` over the span of `frame` `(k, n, n)`.

    Each step moves the frame orthogonally to its span, :math:`E_i \to E_i + \sum_a x_{ia} N_a`, where
    :math:`N_a` spans the complement. The damping is the size of the error itself: directions in which the
    error hardly changes (deformations, conjugations) are left alone, so the span moves little.

    Returns:
        Orthonormal generators of the span reached, with shape `(k, n, n)`.
    """
    k, n, _ = frame.shape
    if k < 2 or k >= n * n - n * int((frame == 0).all(dim=-1).all(dim=0).sum()):
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
