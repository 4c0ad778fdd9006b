r"""All linear maps between tensors that commute with a group, found or known.

A map W from tensors of one type to tensors of another commutes with the group if
:math:`\rho_{out}(A) W = W \rho_{in}(A)` for every generator A and the same holds for every coset. That is a null space.
Five steps make it safe for a noisy group in any coordinates:

1. the span is moved to the nearest one that is closed under brackets;
2. coordinates are changed to the straight ones, see `straight_frame`: there the null space of a semisimple algebra
   stands apart as far as it can;
3. the centre is moved to the nearest one that rotates or stretches: brackets do not hold it in place, as they hold
   a semisimple algebra, and what noise adds to it would add up over the slots of a tensor;
4. the rank is read off the largest gap of the singular values, above the noise that the first step saw;
5. on that null space cosets act as a finite group. Their mean is a projection, and its image is what they leave alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError
from atlasd.nn.groups import straight_frame
from atlasd.nn.tensor_types import element_on_slots, generator_on_slots

LARGEST = 2200
"""Most unknowns of one null space: a second of one core."""
_FLOOR = 0.03
"""Relative changes below this cannot be told from noise in an algebra, and gaps among them mean nothing."""
_STRAIGHT = 100.0
"""Largest condition of straight coordinates: an algebra without such, as a shear, runs away from all."""


@dataclass(frozen=True, eq=False)
class TensorMaps:
    """A basis of the maps between two types.

    Arguments:
        basis: Orthonormal maps, with shape `(d, n ** out, n ** in)`, float64.
        change: Root-mean-square change of the worst of them under the group, where 1 is that of a random map under a
            group without trace.
        gap: How many times more the next map changes; infinite where there is none.
    """

    basis: Tensor
    change: float
    gap: float


@dataclass(frozen=True, eq=False)
class Intertwiners:
    """Solves for the maps between any two tensor types, each question once.

    Arguments:
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
        change = straight_frame(Group(clean, self.group.cosets))
        if float(torch.linalg.cond(change)) > _STRAIGHT:
            change = torch.eye(algebra.size, dtype=torch.float64)
        generators = settle(clean.adjoint(change).frame(), self.noise) if algebra.dimension else algebra.basis
        moved = algebra.angles(clean).sin().square().mean().sqrt() if algebra.dimension else 0.0
        object.__setattr__(self, "_floor", min(max(_FLOOR, float(moved)), self.noise / 2))
        cosets = change @ self.group.cosets @ torch.linalg.inv(change)
        object.__setattr__(self, "_frame", (generators, _rotations(cosets, generators, self.noise), change))

    @property
    def straight(self) -> Tensor:
        """The coordinates `(n, n)` in which null spaces are solved, see `straight_frame`."""
        return self._frame[2]

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
        n = self.group.size
        shape = (n ** len(out), n ** len(into))
        # Back to the coordinates of the user.
        back = element_on_slots(torch.linalg.inv(self.straight), signs)
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
        kept, worst, gap = self._under_generators(signs)
        if self.group.order > 1 and len(kept):
            # Rows of `kept` are invariant under the generators, and a finite group acts on them.
            moved = torch.stack([kept @ (element_on_slots(g, signs) @ kept.mT) for g in self._frame[1]]).mean(0)
            image, values, _ = torch.linalg.svd(moved)
            rank = int((values > 0.5).sum())
            apart = float(values[rank - 1]) if rank else 1.0
            apart /= max(float(values[rank]), _FLOOR) if rank < len(values) else _FLOOR
            # By its character: the trace of the mean is the number of invariants, if the cosets are a whole group.
            gap = min(gap, apart) if abs(float(moved.trace()) - rank) < 0.5 else 1.0
            image = image[:, :rank]
            kept, worst = image.mT @ kept, max(worst, float((moved @ image - image).norm(dim=0).max()) if rank else 0.0)
        if gap < 2:
            raise InputError(
                f"the group {self.group.name} must leave a clear gap between maps that commute with it and others, "
                f"got a factor of {gap:.2g} after {len(kept)}; find it from more data or name the group exactly."
            )
        self._solved[signs] = (kept, worst, gap)
        return self._solved[signs]

    def _under_generators(self, signs: tuple[int, ...]) -> tuple[Tensor, float, float]:
        unknowns, generators = self.group.size ** len(signs), self._frame[0]
        total = torch.zeros(unknowns, unknowns, dtype=torch.float64)
        for a in generators:
            moved = generator_on_slots(a, signs)
            total += moved.mT @ moved / len(generators)
        if not len(generators):
            return torch.eye(unknowns, dtype=torch.float64), 0.0, float("inf")
        squares, vectors = torch.linalg.eigh(total)
        values = squares.clamp_min(0.0).sqrt()
        # What the slots do one by one, whatever cancels between them: a scaling does not change T(1, 1) at all.
        values = values / (max(len(signs), 1) / self.group.size) ** 0.5
        rank, gap = rank_by_gap(values, self.noise, self._floor)
        return vectors[:, :rank].mT, float(values[rank - 1]) if rank else 0.0, gap


def _rotations(cosets: Tensor, generators: Tensor, noise: float) -> Tensor:
    """Orthogonal representatives of cosets `(m, n, n)` in straight coordinates.

    An element of a reductive group is an orthogonal one times the exponential of a symmetric generator: the first is in
    the same coset. Where that generator is not in the algebra, the coset stays as it is.
    """
    u, sizes, v = torch.linalg.svd(cosets)
    stretch = (v.mT @ (sizes.log()[:, :, None] * v)).flatten(1)
    span = generators.flatten(1)
    outside = (stretch - (stretch @ span.mT) @ span).norm(dim=1)
    return torch.where((outside <= noise)[:, None, None], u @ v, cosets)


def rank_by_gap(values: Tensor, noise: float, floor: float = _FLOOR) -> tuple[int, float]:
    """How many of the ascending values belong to the null space, and the factor to the next.

    Arguments:
        values: Changes relative to that of a random tensor, ascending, with shape `(m,)`.
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


def settle(frame: Tensor, noise: float) -> Tensor:
    r"""The nearest algebra whose centre holds, with a matrix, also its rotation and its stretch.

    Arguments:
        frame: Orthonormal generators, with shape `(k, n, n)`.

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
