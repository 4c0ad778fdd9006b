r"""All linear maps between tensors that commute with a group, found or known.

A map W from tensors of one type to tensors of another commutes with the group if
:math:`\rho_{out}(A) W = W \rho_{in}(A)` for every generator A and the same holds for every coset. That is a null space.
Four steps make it safe for a noisy algebra in any coordinates:

1. the span is moved to the nearest one that is closed under brackets;
2. coordinates are changed so that the algebra is as small as it can be, :math:`\sum [A, A^T] = 0` (Kempf and Ness,
   1979): there the null space of a semisimple algebra stands apart as far as it can;
3. the centre is moved to the nearest one that rotates or stretches: brackets do not hold it in place, as they hold
   a semisimple algebra, and what noise adds to it would add up over the slots of a tensor;
4. the rank is read off the largest gap of the singular values, above the noise that the first step saw.
"""

from __future__ import annotations

__all__ = ["Intertwiners", "TensorMaps"]

from dataclasses import dataclass, field

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError
from atlasd.nn.tensor_types import element_on_slots, generator_on_slots

LARGEST = 2200
"""Most unknowns of one null space: a second of one core."""
_FLOOR = 0.03
"""Relative changes below this cannot be told from noise in an algebra, and gaps among them mean nothing."""


@dataclass(frozen=True, eq=False)
class TensorMaps:
    """A basis of the maps between two types.

    Arguments:
        basis: Orthonormal maps, with shape `(d, n ** out, n ** in)`, float64.
        change: Root-mean-square change of the worst of them under the group, where 1 is that of a random map.
        gap: How many times more the next map changes; infinite where there is none.
    """

    basis: Tensor
    change: float
    gap: float


@dataclass(frozen=True, eq=False)
class Intertwiners:
    """Solves for the maps between any two tensor types, each question once.

    Arguments:
        group: The group.
        noise: Largest relative change that noise in the algebra may cause; the least gap is a factor of 2.

    Example:
        >>> from atlasd.algebra import known
        >>> maps = Intertwiners(known.lorentz(1))
        >>> len(maps.between((2, 0), (2, 0)).basis), len(maps.between((1, 0), (0, 0)).basis)
        (4, 0)
    """

    group: Group
    noise: float = 0.3
    _solved: dict[tuple[int, ...], tuple[Tensor, float, float]] = field(default_factory=dict, init=False, repr=False)
    _frame: tuple[Tensor, Tensor, Tensor] = field(init=False, repr=False)
    _floor: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        algebra = self.group.algebra
        clean = algebra.nearest_algebra() if algebra.dimension else algebra
        generators, change = balance(clean.frame())
        generators = settle(generators, self.noise)
        moved = algebra.angles(clean).sin().square().mean().sqrt() if algebra.dimension else 0.0
        object.__setattr__(self, "_floor", min(max(_FLOOR, float(moved)), self.noise / 2))
        cosets = change @ self.group.cosets[1:] @ torch.linalg.inv(change)
        object.__setattr__(self, "_frame", (generators, cosets, change))

    def between(self, into: tuple[int, int], out: tuple[int, int]) -> TensorMaps:
        """Maps from tensors with (upper, lower) indices to others.

        Raises:
            InputError: No gap tells the maps that commute from those that do not, or there are too many unknowns.
        """
        return self.between_slots((1,) * into[0] + (-1,) * into[1], (1,) * out[0] + (-1,) * out[1])

    def between_slots(self, into: tuple[int, ...], out: tuple[int, ...]) -> TensorMaps:
        """The same for slots in any order, +1 for an upper and -1 for a lower index."""
        signs = out + tuple(-s for s in into)
        kept, worst, gap = self._invariant(signs)
        n, change = self.group.size, self._frame[2]
        shape = (n ** len(out), n ** len(into))
        # Back to the coordinates of the user.
        back = element_on_slots(torch.linalg.inv(change), signs)
        basis = kept @ back.mT
        if len(basis):
            basis = torch.linalg.qr(basis.mT).Q.mT
        return TensorMaps(basis.unflatten(1, shape), worst, gap)

    def _invariant(self, signs: tuple[int, ...]) -> tuple[Tensor, float, float]:
        """Invariant tensors in balanced coordinates as rows, the change of the worst, and the gap."""
        if signs in self._solved:
            return self._solved[signs]
        unknowns = self.group.size ** len(signs)
        if unknowns > LARGEST:
            raise InputError(
                f"maps of order {len(signs)} between tensors of size {self.group.size} have {unknowns} unknowns, "
                f"more than {LARGEST}; take tensors of lower order."
            )
        generators, cosets, _ = self._frame
        total = torch.zeros(unknowns, unknowns, dtype=torch.float64)
        for a in generators:
            moved = generator_on_slots(a, signs)
            total += moved.mT @ moved / len(generators)
        for g in cosets:
            moved = element_on_slots(g, signs) - torch.eye(unknowns, dtype=torch.float64)
            total += moved.mT @ moved / len(cosets)
        squares, vectors = torch.linalg.eigh(total)
        values = squares.clamp_min(0.0).sqrt()
        values = values / values.square().mean().sqrt().clamp_min(1e-12)
        rank, gap = rank_by_gap(values, self.noise, self._floor)
        if gap < 2:
            raise InputError(
                f"the algebra of {self.group.name} must leave a clear gap between maps that commute with it and "
                f"others, got a factor of {gap:.2g} after {rank}; find it from more data or name the group exactly."
            )
        worst = float(values[rank - 1]) if rank else 0.0
        self._solved[signs] = (vectors[:, :rank].mT, worst, gap)
        return self._solved[signs]


def rank_by_gap(values: Tensor, noise: float, floor: float = _FLOOR) -> tuple[int, float]:
    """How many of the ascending values belong to the null space, and the factor to the next.

    Arguments:
        values: Changes relative to that of a random tensor, ascending, with shape `(m,)`.
        noise: The largest that can be noise.
        floor: Below this, gaps mean nothing.

    Example:
        >>> rank_by_gap(torch.tensor([0.0, 0.03, 0.6, 0.7]), 0.3)
        (2, 20.0)
        >>> rank_by_gap(torch.tensor([0.5, 0.6]), 0.3)
        (0, inf)
    """
    small = int((values <= noise).sum())
    if not small:
        return 0, float("inf")
    following = torch.cat([values[1:], values.new_full((1,), float("inf"))])
    gaps = (following / values.clamp_min(floor))[:small]
    best = int(gaps.argmax())
    return best + 1, round(float(gaps[best]), 4)


def balance(frame: Tensor, steps: int = 300) -> tuple[Tensor, Tensor]:
    r"""Coordinates in which an algebra is as small as it can be.

    Arguments:
        frame: Generators, with shape `(k, n, n)`.
        steps: Most steps of steepest descent.

    Returns:
        Orthonormal generators :math:`S A S^{-1}`, and S with shape `(n, n)`. An algebra that can shrink for ever,
        such as a shear, is left as it is.
    """
    n = frame.shape[-1]
    still = torch.eye(n, dtype=torch.float64)
    given, change = frame, still
    for _ in range(steps if len(frame) else 0):
        tilt = (frame @ frame.mT - frame.mT @ frame).sum(0)
        if float(tilt.norm()) < 1e-9:
            break
        step = torch.matrix_exp(-tilt / (2 * len(frame)) ** 0.5 / 2)
        change = step @ change
        if float(torch.linalg.cond(change)) > 100:
            return given, still
        frame = torch.linalg.qr((step @ frame @ torch.linalg.inv(step)).flatten(1).mT).Q.mT.unflatten(1, (n, n))
    return frame, change


def settle(frame: Tensor, noise: float) -> Tensor:
    r"""The nearest algebra whose centre holds, with a matrix, also its rotation and its stretch.

    Arguments:
        frame: Orthonormal generators, with shape `(k, n, n)`.
        noise: The largest part of a unit generator that may be left out; a spiral with more of both stays as it is.

    Returns:
        Orthonormal generators, as many.

    Example:
        >>> spiral = torch.tensor([[[0.05, -0.7], [0.7, 0.05]]], dtype=torch.float64)
        >>> (settle(spiral, 0.3) @ settle(spiral, 0.3)).round(decimals=6).tolist()  # a rotation
        [[[-0.5, 0.0], [0.0, -0.5]]]
    """
    centre = LieAlgebra(frame).centre().frame() if len(frame) else frame
    if not len(centre):
        return frame
    # Matrices that commute have common eigenvectors: those of a combination without ties.
    weights = torch.arange(2, len(centre) + 2, dtype=torch.float64).sqrt()
    _, vectors = torch.linalg.eig(torch.einsum("k,kij->ij", weights, centre))
    if float(torch.linalg.cond(vectors)) > 100:  # shears have no eigenvectors to spare
        return frame
    back = torch.linalg.inv(vectors)
    values = (back @ centre.to(vectors) @ vectors).diagonal(dim1=-2, dim2=-1)  # (z, n)
    parts = torch.cat([(vectors * v[:, None]) @ back for v in (values.real + 0j, 1j * values.imag)]).real
    _, sizes, kept = torch.linalg.svd(parts.flatten(1), full_matrices=False)
    count = len(centre)
    if len(sizes) > count and float(sizes[count]) > noise:
        return frame
    # What is orthogonal to the centre stays as it is.
    rest = torch.linalg.svd(centre.flatten(1) @ frame.flatten(1).mT).Vh[count:] @ frame.flatten(1)
    return torch.linalg.qr(torch.cat([kept[:count], rest]).mT).Q.mT.unflatten(1, frame.shape[1:])
