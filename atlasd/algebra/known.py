r"""The catalogue of known algebras and groups, each in its usual coordinates; users see it as `atlasd.known`."""

from __future__ import annotations

import math
from itertools import combinations, permutations

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError


def so(*signature: int) -> LieAlgebra:
    r"""The rotations `so(n)`, or `so(p, q)` preserving the metric diag(-1 `p` times, +1 `q` times).

    Example:
        >>> so(2).basis
        tensor([[[ 0., -1.],
                 [ 1.,  0.]]], dtype=torch.float64)
        >>> so(1, 3).dimension
        6
    """
    if len(signature) not in (1, 2) or min(signature) < 0 or sum(signature) < 1:
        raise InputError(f"`signature` must be one or two sizes, got {signature}; write so(3) or so(1, 3).")
    p, n = (0 if len(signature) == 1 else signature[0]), sum(signature)
    metric = [-1.0] * p + [1.0] * (n - p)
    rotations: list[Tensor] = []
    boosts: list[Tensor] = []
    for i, j in combinations(range(n), 2):
        # (J A) must be antisymmetric: A_ji = -J_ii A_ij / J_jj.
        generator = _unit(n, j, i) - metric[i] * metric[j] * _unit(n, i, j)
        (rotations if metric[i] == metric[j] else boosts).append(generator)
    return _algebra(n, rotations + boosts)


def sl(n: int) -> LieAlgebra:
    r"""The trace-free `n` x `n` matrices."""
    _check(n, 1)
    off_diagonal = [_unit(n, i, j) for i, j in permutations(range(n), 2)]
    return _algebra(n, off_diagonal + [_unit(n, i, i) - _unit(n, i + 1, i + 1) for i in range(n - 1)])


def gl(n: int) -> LieAlgebra:
    r"""All `n` x `n` matrices."""
    _check(n, 1)
    return _algebra(n, [_unit(n, i, j) for i in range(n) for j in range(n)])


def sp(size: int) -> LieAlgebra:
    r"""The symplectic algebra on `size` = 2m dimensions, preserving [[0, 1], [-1, 0]] in blocks of m."""
    _check(size, 2)
    if size % 2:
        raise InputError(f"`size` must be even, got {size}; sp(2m) acts on 2m dimensions.")
    m = size // 2
    found = [_unit(size, i, j) - _unit(size, m + j, m + i) for i in range(m) for j in range(m)]
    for i in range(m):
        for j in range(i, m):
            # Adding twice on the diagonal is harmless: only the span counts, but entries stay 0 or 1.
            upper, lower = _unit(size, i, m + j), _unit(size, m + i, j)
            if i != j:
                upper, lower = upper + _unit(size, j, m + i), lower + _unit(size, m + j, i)
            found += [upper, lower]
    return _algebra(size, found)


def u(n: int) -> LieAlgebra:
    r"""The anti-Hermitian `n` x `n` matrices as real 2n x 2n matrices, a + ib as [[a, -b], [b, a]]."""
    _check(n, 1)
    return _algebra(2 * n, _anti_hermitian(n) + [_realify(1j * _complex_unit(n, i, i)) for i in range(n)])


def su(n: int) -> LieAlgebra:
    r"""The trace-free part of :func:`u`, as real 2n x 2n matrices."""
    _check(n, 2)
    steps = [_realify(1j * (_complex_unit(n, i, i) - _complex_unit(n, i + 1, i + 1))) for i in range(n - 1)]
    return _algebra(2 * n, _anti_hermitian(n) + steps)


def scaling(n: int) -> LieAlgebra:
    r"""The multiples of the identity."""
    _check(n, 1)
    return _algebra(n, [torch.eye(n, dtype=torch.float64)])


def shear(n: int) -> LieAlgebra:
    r"""The single shear that adds the second coordinate to the first."""
    _check(n, 2)
    return _algebra(n, [_unit(n, 0, 1)])


def borel(n: int) -> LieAlgebra:
    r"""The upper triangular matrices."""
    _check(n, 1)
    return _algebra(n, [_unit(n, i, j) for i in range(n) for j in range(i, n)])


def heisenberg() -> LieAlgebra:
    r"""The strictly upper triangular 3 x 3 matrices."""
    return _algebra(3, [_unit(3, 0, 1), _unit(3, 1, 2), _unit(3, 0, 2)])


def galilei(d: int) -> LieAlgebra:
    r"""Rotations, boosts and translations of `d`-dimensional space and time, on (x, t, 1)."""
    _check(d, 1)
    n = d + 2
    boosts = [_unit(n, i, d) for i in range(d)]
    shifts = [_unit(n, i, d + 1) for i in range(d + 1)]
    return _algebra(n, _rotations(n, d) + boosts + shifts)


def affine(d: int) -> LieAlgebra:
    r"""Linear maps and translations of `d`-dimensional space, on (x, 1)."""
    _check(d, 1)
    n = d + 1
    return _algebra(n, [_unit(n, i, j) for i in range(d) for j in range(n)])


def euclidean(d: int) -> LieAlgebra:
    r"""Rotations and translations of `d`-dimensional space, on (x, 1)."""
    _check(d, 1)
    n = d + 1
    return _algebra(n, _rotations(n, d) + [_unit(n, i, d) for i in range(d)])


def trivial(n: int) -> LieAlgebra:
    r"""The algebra {0} of `n` x `n` matrices."""
    _check(n, 1)
    return _algebra(n, [])


def cyclic(n: int) -> Group:
    r"""The `n` rotations of a regular polygon, as 2 x 2 matrices.

    Example:
        >>> cyclic(4).name, cyclic(4).components
        ('C4', 4)
    """
    _check(n, 1)
    return Group(trivial(2), _polygon(n))


def dihedral(n: int) -> Group:
    r"""The `2n` symmetries of a regular polygon, as 2 x 2 matrices."""
    _check(n, 1)
    rotations = _polygon(n)
    return Group(trivial(2), torch.cat([rotations, rotations @ _diagonal(1.0, -1.0)]))


def special_orthogonal(n: int) -> Group:
    r"""The rotations SO(n)."""
    _check(n, 2)
    return Group(so(n))


def orthogonal(n: int) -> Group:
    r"""The rotations and reflections O(n)."""
    return _reflected(special_orthogonal(n))


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
    return Group(gl(n))


def general_linear(n: int) -> Group:
    r"""The invertible matrices GL(n)."""
    return _reflected(general_linear_plus(n))


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


def _check(n: int, least: int) -> None:
    if not isinstance(n, int) or n < least:
        raise InputError(f"`n` must be an integer of at least {least}, got {n!r}; give the size of the space.")


def _algebra(n: int, generators: list[Tensor]) -> LieAlgebra:
    empty = torch.zeros(0, n, n, dtype=torch.float64)
    return LieAlgebra(torch.stack(generators) if generators else empty)


def _unit(n: int, i: int, j: int) -> Tensor:
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix[i, j] = 1.0
    return matrix


def _rotations(n: int, d: int) -> list[Tensor]:
    return [_unit(n, j, i) - _unit(n, i, j) for i, j in combinations(range(d), 2)]


def _complex_unit(n: int, i: int, j: int) -> Tensor:
    return _unit(n, i, j).to(torch.complex128)


def _anti_hermitian(n: int) -> list[Tensor]:
    found = []
    for i, j in combinations(range(n), 2):
        a, b = _complex_unit(n, i, j), _complex_unit(n, j, i)
        found += [_realify(b - a), _realify(1j * (a + b))]
    return found


def _realify(matrix: Tensor) -> Tensor:
    top = torch.cat([matrix.real, -matrix.imag], dim=1)
    bottom = torch.cat([matrix.imag, matrix.real], dim=1)
    return torch.cat([top, bottom])


def _generated(*generators: Tensor) -> Group:
    return Group.close(trivial(3), torch.stack(generators))


def _polygon(n: int) -> Tensor:
    angles = 2 * math.pi * torch.arange(n, dtype=torch.float64) / n
    c, s = angles.cos(), angles.sin()
    return torch.stack([torch.stack([c, -s], dim=-1), torch.stack([s, c], dim=-1)], dim=-2)


def _diagonal(*entries: float) -> Tensor:
    return torch.diag(torch.tensor(entries, dtype=torch.float64))


def _permutation(*order: int) -> Tensor:
    return torch.eye(len(order), dtype=torch.float64)[list(order)]


def _reflected(group: Group) -> Group:
    return Group(group.algebra, torch.stack([group.cosets[0], _diagonal(*[1.0] * (group.size - 1), -1.0)]))
