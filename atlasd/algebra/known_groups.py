r"""Well-known matrix groups, each in its usual coordinates."""

from __future__ import annotations

__all__ = [
    "cyclic",
    "dihedral",
    "general_linear",
    "general_linear_plus",
    "icosahedral",
    "lorentz",
    "octahedral",
    "orthogonal",
    "special_linear",
    "special_orthogonal",
    "tetrahedral",
]

import math

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.known_algebras import gl, sl, so, trivial
from atlasd.errors import InputError


def cyclic(n: int) -> Group:
    r"""The `n` rotations of a regular polygon, as 2 x 2 matrices.

    Example:
        >>> cyclic(4).name, cyclic(4).order
        ('C4', 4)
    """
    _check(n, 1)
    return _finite(_turns(n))


def dihedral(n: int) -> Group:
    r"""The `2n` symmetries of a regular polygon, as 2 x 2 matrices."""
    _check(n, 1)
    turns = _turns(n)
    return _finite(torch.cat([turns, turns @ _diagonal(1.0, -1.0)]))


def special_orthogonal(n: int) -> Group:
    r"""The rotations SO(n)."""
    _check(n, 2)
    return Group(so(n))


def orthogonal(n: int) -> Group:
    r"""The rotations and reflections O(n)."""
    _check(n, 2)
    return Group(so(n), _with_reflection(n))


def lorentz(components: int = 4) -> Group:
    r"""The Lorentz group of the metric diag(-1, 1, 1, 1).

    Arguments:
        components: 1 for SO+(1,3), 2 for O+(1,3), which adds parity, 4 for O(1,3), which adds time reversal.
    """
    if components not in (1, 2, 4):
        raise InputError(
            f"`components` must be 1, 2 or 4, got {components!r}; 4 is the whole group, 1 the connected part."
        )
    identity, parity = torch.eye(4, dtype=torch.float64), _diagonal(1.0, -1.0, -1.0, -1.0)
    return Group(so(1, 3), torch.stack([identity, parity, -parity, -identity])[:components])


def general_linear_plus(n: int) -> Group:
    r"""The matrices with positive determinant, GL+(n)."""
    _check(n, 1)
    return Group(gl(n))


def general_linear(n: int) -> Group:
    r"""The invertible matrices GL(n)."""
    _check(n, 1)
    return Group(gl(n), _with_reflection(n))


def special_linear(n: int) -> Group:
    r"""The matrices with determinant 1, SL(n)."""
    _check(n, 2)
    return Group(sl(n))


def tetrahedral() -> Group:
    r"""The 12 rotations of a tetrahedron."""
    return _generated(_permutation(1, 2, 0), _diagonal(1.0, -1.0, -1.0))


def octahedral() -> Group:
    r"""The 24 rotations of a cube."""
    return _generated(_permutation(1, 2, 0), _permutation(1, 0, 2) @ _diagonal(1.0, -1.0, 1.0))


def icosahedral() -> Group:
    r"""The 60 rotations of an icosahedron with vertices (0, ±1, ±golden ratio) and cyclic permutations."""
    golden = (1 + math.sqrt(5)) / 2
    a, b = golden / 2, 1 / (2 * golden)
    # A rotation by 72 degrees that takes vertices to vertices.
    fifth = torch.tensor([[0.5, b, -a], [b, a, 0.5], [a, -0.5, b]], dtype=torch.float64)
    return _generated(_permutation(1, 2, 0), _diagonal(1.0, -1.0, -1.0), fifth)


def _finite(elements: Tensor) -> Group:
    return Group(trivial(elements.shape[-1]), elements)


def _generated(*generators: Tensor) -> Group:
    return Group.close(trivial(3), torch.stack(generators))


def _turns(n: int) -> Tensor:
    angles = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    c, s = angles.cos(), angles.sin()
    return torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=-2)


def _diagonal(*entries: float) -> Tensor:
    return torch.diag(torch.tensor(entries, dtype=torch.float64))


def _permutation(*order: int) -> Tensor:
    return torch.eye(len(order), dtype=torch.float64)[list(order)]


def _with_reflection(n: int) -> Tensor:
    return torch.stack([torch.eye(n, dtype=torch.float64), _diagonal(*[1.0] * (n - 1), -1.0)])


def _check(n: int, least: int) -> None:
    if not isinstance(n, int) or n < least:
        raise InputError(f"`n` must be an integer of at least {least}, got {n!r}; give the size wanted.")
