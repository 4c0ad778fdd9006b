"""Groups as networks take them: what they are given as, whether they are compact, and elements to ask about."""

from __future__ import annotations

import math
from typing import TypeAlias

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.invariants import balance
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.residual import scaled
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError

GroupLike: TypeAlias = Group | LieAlgebra | Discovery
"""A group, an algebra for the connected group that it generates, or a discovery for the group that was found."""
_NOISE = 0.05
"""Largest change of the form under a unit generator that still counts as none: discovered bases are noisy."""
_FLAT = 1e-3
"""Least ratio of the axes of the form, squared: an algebra without a form, such as a shear, makes it ever flatter."""


def as_group(value: GroupLike) -> Group:
    """The group that is meant.

    Example:
        >>> from atlasd.algebra import known
        >>> as_group(known.so(3)).components
        1
    """
    if isinstance(value, Discovery):
        return value.group
    if isinstance(value, LieAlgebra):
        return Group(value)
    if not isinstance(value, Group):
        raise InputError(
            f"`group` must be a group, an algebra or a discovery, got {type(value).__name__}; "
            "make one by `ad.Group(generators)`, or take one of `ad.known`."
        )
    return value


def invariant_form(group: Group, tolerance: float = _NOISE) -> Tensor | None:
    r"""The scalar product Q that a compact group keeps, :math:`g^T Q g = Q`; `None` if there is none.

    Arguments:
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
    for i, a in enumerate(scaled(group.algebra.frame())):
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

    Returns:
        Elements, with shape `(samples * order, n, n)`, or `(order, n, n)` for a finite group.
    """
    if samples < 1:
        raise InputError(f"`samples` must be at least 1, got {samples}; 16 is usual.")
    if not group.dimension:
        return group.cosets
    if group.dimension == 1:
        frame = scaled(group.algebra.frame())[0]
        speed = float(torch.linalg.eigvals(frame).imag.abs().max())
        times = 2 * math.pi / speed * torch.arange(samples, dtype=torch.float64) / samples
        connected = torch.matrix_exp(times[:, None, None] * frame)
    else:
        frames = scaled(group.algebra.frame())
        connected = torch.eye(group.size, dtype=torch.float64).expand(samples, -1, -1)
        for _ in range(24):
            steps = torch.randn(samples, len(frames), generator=generator, dtype=torch.float64)
            connected = connected @ torch.matrix_exp(torch.einsum("sk,kij->sij", steps, frames))
    return (group.cosets[:, None] @ connected).flatten(0, 1)


def _change(group: Group, form: Tensor) -> float:
    """Largest relative change of the form under generators and cosets."""
    size = torch.linalg.matrix_norm(form, ord=2)
    moves = [a.mT @ form + form @ a for a in scaled(group.algebra.frame())]
    moves += [c.mT @ form @ c - form for c in group.cosets]
    return max(float(torch.linalg.matrix_norm(m, ord=2) / size) for m in moves)


def elements_inside(group: Group, count: int, *, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Random elements `(count, n, n)` of a group, each divided by its scale so that its determinant is 1 or -1.

    Arguments:
        scale: Spread of the coefficients of an orthonormal frame of the algebra.
    """
    frame = group.algebra.frame()
    coefficients = scale * torch.randn(count, len(frame), generator=generator, dtype=torch.float64)
    choice = torch.randint(group.components, (count,), generator=generator)
    drawn = group.cosets[choice] @ torch.matrix_exp(torch.einsum("mk,kij->mij", coefficients, frame))
    return _unscaled(drawn)


def elements_outside(group: Group, count: int, *, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Random matrices `(count, n, n)` of determinant 1 that no element of the algebra leads to: a control.

    They are exponentials of what is orthogonal to the algebra and to scaling, as large as `elements_inside` draws.
    """
    n = group.size
    inside = torch.cat([group.algebra.frame().flatten(1), torch.eye(n, dtype=torch.float64).reshape(1, -1) / n**0.5])
    drawn = torch.randn(count, n * n, generator=generator, dtype=torch.float64)
    q, _ = torch.linalg.qr(inside.mT)
    drawn = drawn - (drawn @ q) @ q.mT
    drawn = drawn / drawn.norm(dim=-1, keepdim=True) * scale * max(group.dimension, 1) ** 0.5
    return _unscaled(torch.matrix_exp(drawn.unflatten(-1, (n, n))))


def scalings(size: int, count: int, *, generator: torch.Generator, scale: float = 0.3) -> Tensor:
    """Multiples of the identity, with shape `(count, size, size)`."""
    factor = (scale * torch.randn(count, 1, 1, generator=generator, dtype=torch.float64)).exp()
    return factor * torch.eye(size, dtype=torch.float64)


def _unscaled(elements: Tensor) -> Tensor:
    return elements / torch.linalg.det(elements).abs().pow(1 / elements.shape[-1])[:, None, None]
