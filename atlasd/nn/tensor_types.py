r"""Sums of tensor powers of the defining representation and its dual: what the features of a layer are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.errors import InputError


@dataclass(frozen=True)
class TensorType:
    r"""A sum of tensor powers, such as three vectors and two scalars.

    Features are laid out part by part; a part with count c, p upper and q lower indices takes
    :math:`c\, n^{p + q}` numbers. Upper indices transform by g, lower ones by :math:`g^{-T}`.

    Arguments:
        parts: Tuples (count, p, q).

    Example:
        >>> features = 3 * vector() + 2 * scalar()
        >>> features, features.size(4)
        (3 T(1) + 2 T(0), 14)
        >>> tensor(1, 1).matrix(torch.diag(torch.tensor([2.0, 1.0]))).diagonal().tolist()
        [1.0, 2.0, 0.5, 1.0]
    """

    parts: tuple[tuple[int, int, int], ...]

    def __post_init__(self) -> None:
        if not self.parts or any(len(part) != 3 or part[0] < 1 or min(part) < 0 for part in self.parts):
            raise InputError(
                f"`parts` must be tuples (count, upper, lower) with a positive count, got {self.parts}; "
                "write 3 * vector() + scalar()."
            )

    def __add__(self, other: TensorType) -> TensorType:
        return TensorType((*self.parts, *other.parts))

    def __mul__(self, count: int) -> TensorType:
        return TensorType(tuple((count * c, p, q) for c, p, q in self.parts))

    __rmul__ = __mul__

    def __repr__(self) -> str:
        def one(count: int, p: int, q: int) -> str:
            kind = f"T({p})" if not q else f"T({p},{q})"
            return kind if count == 1 else f"{count} {kind}"

        return " + ".join(one(*part) for part in self.parts)

    def size(self, n: int) -> int:
        """Number of features for matrices of size `n`."""
        return sum(c * n ** (p + q) for c, p, q in self.parts)

    def offsets(self, n: int) -> list[int]:
        """Where each part starts."""
        starts = [0]
        for c, p, q in self.parts:
            starts.append(starts[-1] + c * n ** (p + q))
        return starts[:-1]

    def matrix(self, g: Tensor) -> Tensor:
        """The representation of elements `(*, n, n)`, with shape `(*, size, size)`."""
        return self._sum([element_on_slots(g, (1,) * p + (-1,) * q) for _, p, q in self.parts])

    def derivative(self, a: Tensor) -> Tensor:
        """The representation of a generator `(n, n)`, with shape `(size, size)`."""
        return self._sum([generator_on_slots(a, (1,) * p + (-1,) * q) for _, p, q in self.parts])

    def _sum(self, blocks: list[Tensor]) -> Tensor:
        copies = [block for block, (c, _, _) in zip(blocks, self.parts, strict=True) for _ in range(c)]
        if copies[0].ndim == 2:
            return torch.block_diag(*copies)
        lead, flat = copies[0].shape[:-2], [b.flatten(0, -3) for b in copies]
        return torch.stack([torch.block_diag(*one) for one in zip(*flat, strict=True)]).unflatten(0, lead)


def scalar() -> TensorType:
    """One number that does not transform."""
    return tensor(0)


def vector() -> TensorType:
    """One vector of the space on which the group acts."""
    return tensor(1)


def tensor(upper: int, lower: int = 0) -> TensorType:
    """One tensor with so many upper and lower indices."""
    return TensorType(((1, upper, lower),))


def generator_on_slots(a: Tensor, signs: tuple[int, ...]) -> Tensor:
    r"""A generator on tensors: a sum over the slots, A on upper ones (+1) and :math:`-A^T` on lower ones (-1)."""
    n, order = len(a), len(signs)
    total = a.new_zeros(n**order, n**order)
    for slot, sign in enumerate(signs):
        one = a if sign > 0 else -a.mT
        before, after = (torch.eye(n**k, dtype=a.dtype, device=a.device) for k in (slot, order - 1 - slot))
        total += torch.kron(torch.kron(before, one.contiguous()), after)
    return total


def element_on_slots(g: Tensor, signs: tuple[int, ...]) -> Tensor:
    r"""An element on tensors: a product over the slots, g on upper ones (+1) and :math:`g^{-T}` on lower ones (-1)."""
    total = g.new_ones(*g.shape[:-2], 1, 1)
    lower = torch.linalg.inv(g).mT if -1 in signs else g
    for sign in signs:
        one = g if sign > 0 else lower
        total = torch.einsum("...ij,...kl->...ikjl", total, one).flatten(-4, -3).flatten(-2)
    return total
