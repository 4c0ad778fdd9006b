r"""The named algebras of each matrix size, against which an unknown one is compared."""

from __future__ import annotations

__all__ = ["Entry", "catalogue", "orbit_rates"]

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from atlasd.algebra import known
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.structure import commutator


@dataclass(frozen=True, eq=False)
class Entry:
    r"""One conjugacy class of algebras.

    Attributes:
        name: Its name, in ASCII.
        algebra: A representative.
        orbit: Dimension of the set of its conjugates.

    Example:
        >>> [entry.name for entry in catalogue(2) if entry.algebra.dimension == 1]
        ['so(2)', 'so(1,1)', 'scaling', 'shear']
    """

    name: str
    algebra: LieAlgebra
    orbit: int

    @property
    def codimension(self) -> int:
        r"""How many equations a span of this dimension must satisfy to be a conjugate."""
        k, n = self.algebra.dimension, self.algebra.size
        return k * (n * n - k) - self.orbit


@lru_cache(maxsize=16)
def catalogue(n: int) -> tuple[Entry, ...]:
    r"""All entries of `n` x `n` matrices except the trivial algebra; no two are conjugate.

    Each algebra also appears acting on a block, the other coordinates fixed, and with the
    multiples of the identity added, as in `so(1,3)+R`.
    """
    found: dict[str, LieAlgebra] = {}
    for name, basis in _blocks(n):
        found[name] = LieAlgebra(_embed(basis, n))
    for name, basis in _on_all_coordinates(n):
        found[name] = LieAlgebra(basis)
    eye = torch.eye(n, dtype=torch.float64)
    for name, algebra in list(found.items()):
        # These two are there already, as borel(2) and gl(n); of two blocks that are scaled, one may be any of them.
        there = (name, n) == ("affine(1)", 2) or name == f"sl({n})" or "+scaling" in name
        there = there or any(name == f"scaling({m})" for m in range(n // 2 + 1, n))
        if not algebra.contains(eye) and not there:
            found[name + "+R"] = LieAlgebra(torch.cat([algebra.basis, eye[None]]))
    return tuple(Entry(name, algebra, int((orbit_rates(algebra) > 1e-8).sum())) for name, algebra in found.items())


def _blocks(n: int) -> list[tuple[str, Tensor]]:
    r"""Algebras that act on some of the coordinates and fix the others."""
    metrics = [(name, basis) for m in range(2, n + 1) for name, basis in _metric_algebras(m)]
    found = list(metrics)
    for m in range(2, n + 1):
        found.append((f"sl({m})", known.sl(m).basis))
        found.append((f"gl({m})", known.gl(m).basis))
    if n >= 3:
        found.append(("heisenberg", known.heisenberg().basis))
        found += [(f"scaling({m})", known.scaling(m).basis) for m in range(1, n)]
    for name, basis in metrics:
        m = basis.shape[-1]
        if m < n:
            found.append((f"{name}+scaling({m})", torch.cat([basis, known.scaling(m).basis])))
    if n >= 4:
        found += [("sp(4)", known.sp(4).basis), ("u(2)", known.u(2).basis), ("su(2)", known.su(2).basis)]
        found.append(("u(1)", _complex_structure()))
    for (second, b), (first, a) in combinations_with_replacement(metrics, 2):
        if a.shape[-1] + b.shape[-1] <= n:
            found.append((f"{first}+{second}", _direct_sum(a, b)))
    return found


def _on_all_coordinates(n: int) -> list[tuple[str, Tensor]]:
    r"""Algebras that have their own meaning on the whole space."""
    found = [("scaling", known.scaling(n).basis)]
    if n >= 2:
        found += [("shear", known.shear(n).basis), (f"borel({n})", known.borel(n).basis)]
        found.append((f"affine({n - 1})", known.affine(n - 1).basis))
    if n >= 3:
        found.append((f"euclidean({n - 1})", known.euclidean(n - 1).basis))
        found.append((f"diagonal({n})", torch.diag_embed(torch.eye(n, dtype=torch.float64))))
        for p in range(1, (n - 1) // 2 + 1):
            found.append((f"iso({p},{n - 1 - p})", _with_translations(known.so(p, n - 1 - p).basis)))
    if n >= 4:
        found.append((f"galilei({n - 2})", known.galilei(n - 2).basis))
    return found


def _metric_algebras(m: int) -> list[tuple[str, Tensor]]:
    r"""so(m) and so(p, q) with p + q = m, each signature once."""
    found = [(f"so({m})", known.so(m).basis)]
    found += [(f"so({p},{m - p})", known.so(p, m - p).basis) for p in range(1, m // 2 + 1)]
    return found


def _embed(basis: Tensor, n: int) -> Tensor:
    rest = n - basis.shape[-1]
    return torch.nn.functional.pad(basis, (0, rest, 0, rest))


def _direct_sum(a: Tensor, b: Tensor) -> Tensor:
    first, second = a.shape[-1], b.shape[-1]
    upper = torch.nn.functional.pad(a, (0, second, 0, second))
    lower = torch.nn.functional.pad(b, (first, 0, first, 0))
    return torch.cat([upper, lower])


def _with_translations(basis: Tensor) -> Tensor:
    d = basis.shape[-1]
    shifts = torch.zeros(d, d + 1, d + 1, dtype=basis.dtype)
    shifts[range(d), range(d), d] = 1.0
    return torch.cat([_embed(basis, d + 1), shifts])


def _complex_structure() -> Tensor:
    r"""Multiplication by i on C^2: a rotation by the same angle in two planes."""
    return torch.block_diag(*known.so(2).basis, *known.so(2).basis)[None]


def orbit_rates(algebra: LieAlgebra) -> Tensor:
    r"""How fast the span moves under conjugation by exp(tX), for orthonormal X: singular values, largest first."""
    n, frame = algebra.size, algebra.frame()
    rows = frame.flatten(1)
    units = torch.eye(n * n, dtype=torch.float64, device=frame.device).reshape(-1, n, n)
    moved = commutator(units[:, None], frame[None]).flatten(2)  # (n * n, k, n * n)
    moved = moved - (moved @ rows.mT) @ rows
    return torch.linalg.svdvals(moved.flatten(1))
