r"""Coordinates that suit a group, whether it is compact, and how to draw from it evenly."""

from __future__ import annotations

__all__ = ["haar_sample", "invariant_form", "square_root", "straight_frame", "unbounded_direction"]

import math

import torch
from torch import Tensor

from atlasd.algebra.balance import balance
from atlasd.algebra.group import Group
from atlasd.errors import InputError

_NOISE = 0.05
"""Largest change of the form under a unit generator that still counts as none: discovered bases are noisy."""
_FLAT = 1e-3
"""Least ratio of the axes of the form, squared: an algebra without a form, such as a shear, makes it ever flatter."""


def invariant_form(group: Group, tolerance: float = _NOISE) -> Tensor | None:
    r"""The scalar product Q that a compact group keeps, :math:`g^T Q g = Q`; `None` if there is none.

    Arguments:
        group: The group.
        tolerance: Largest change of Q under a generator of unit norm, or under a coset.

    Returns:
        A positive definite matrix `(n, n)` with determinant 1.

    Example:
        >>> from atlasd.algebra import known
        >>> invariant_form(known.orthogonal(2)).round(decimals=6).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        >>> invariant_form(known.general_linear_plus(2)) is None
        True
    """
    frame = straight_frame(group)
    form = frame.mT @ frame
    values = torch.linalg.eigvalsh(form)
    if not float(values[0]) > _FLAT * float(values[-1]) or _change(group, form) > tolerance:
        return None
    return form / torch.linalg.det(form) ** (1 / len(form))


def straight_frame(group: Group) -> Tensor:
    r"""Coordinates S `(n, n)` in which a reductive group contains the transposes of its elements.

    There :math:`S A S^{-1}` takes up the least volume (Kempf and Ness, 1979), and a compact group is orthogonal. Where
    there are no such coordinates, as for a shear, S has a very large condition.
    """
    change = torch.eye(group.size, dtype=torch.float64)
    if group.dimension:
        change = torch.from_numpy(balance(group.algebra.frame().numpy(), precision=1e-9))
    straight = group.algebra.adjoint(change).frame() if group.dimension else group.algebra.basis
    if float((straight + straight.mT).norm()) < 1:  # a boost alone has 2; rotations leave the mean over cosets alone
        cosets = change @ group.cosets @ torch.linalg.inv(change)
        change = square_root((cosets.mT @ cosets).mean(0)) @ change
    return change


def square_root(form: Tensor) -> Tensor:
    """The symmetric root of a positive definite matrix."""
    values, vectors = torch.linalg.eigh(form)
    return (vectors * values.sqrt()) @ vectors.mT


def unbounded_direction(group: Group) -> str:
    r"""Says why a group that keeps no scalar product cannot be averaged over."""
    worst, size = -1, 0.0
    for i, a in enumerate(_unit_frame(group)):
        real = float(torch.linalg.eigvals(a).real.abs().max())
        if real > size:
            worst, size = i, real
    if size > 1e-3:
        return f"generator {worst + 1} of its frame stretches without bound (eigenvalue with real part {size:.2g})"
    if group.dimension:
        return "its generators shear or stretch without bound"
    return "one of its elements changes lengths, so that its powers grow without bound"


def haar_sample(group: Group, samples: int, *, generator: torch.Generator) -> Tensor:
    r"""Elements of a compact group, evenly spread, every component alike.

    A finite group gives all its elements. One generator gives an even grid of its circle; more generators give
    products of many random exponentials, whose law comes near the even one.

    Arguments:
        group: The group, which must be compact.
        samples: How many elements for each component.
        generator: Source of randomness.

    Returns:
        Elements, with shape `(samples * order, n, n)`, or `(order, n, n)` for a finite group.
    """
    if samples < 1:
        raise InputError(f"`samples` must be at least 1, got {samples}; 16 is usual.")
    if not group.dimension:
        return group.cosets
    if group.dimension == 1:
        frame = _unit_frame(group)[0]
        speed = float(torch.linalg.eigvals(frame).imag.abs().max())
        times = 2 * math.pi / speed * torch.arange(samples, dtype=torch.float64) / samples
        connected = torch.matrix_exp(times[:, None, None] * frame)
    else:
        frames = _unit_frame(group)
        connected = torch.eye(group.size, dtype=torch.float64).expand(samples, -1, -1)
        for _ in range(24):
            steps = torch.randn(samples, len(frames), generator=generator, dtype=torch.float64)
            connected = connected @ torch.matrix_exp(torch.einsum("sk,kij->sij", steps, frames))
    return (group.cosets[:, None] @ connected).flatten(0, 1)


def _unit_frame(group: Group) -> Tensor:
    """Generators of operator norm 1, `(dimension, n, n)`."""
    frame = group.algebra.frame()
    return frame / torch.linalg.matrix_norm(frame, ord=2)[:, None, None] if len(frame) else frame


def _change(group: Group, form: Tensor) -> float:
    """Largest relative change of the form under generators and cosets."""
    size = torch.linalg.matrix_norm(form, ord=2)
    moves = [a.mT @ form + form @ a for a in _unit_frame(group)]
    moves += [c.mT @ form @ c - form for c in group.cosets]
    return max(float(torch.linalg.matrix_norm(m, ord=2) / size) for m in moves)
