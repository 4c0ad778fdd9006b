r"""Polynomial maps of vectors and tensors that commute with a group: invariants, and tensors that follow the inputs.

Every smooth map that commutes with a reductive group is :math:`\sum_k f_k(I(x)) C_k(x)`, with generating invariants I
and covariants C (Schwarz, 1975; Malgrange). Both come from the null spaces of :class:`Intertwiners`: a product of
inputs is a tensor, and every linear map from it that commutes is one of them. Those that follow from ones of lower
degree are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from scipy.linalg import qr
from torch import Tensor, nn

from atlasd.nn.intertwiners import LARGEST, Intertwiners

_MOST = 1500
"""Most candidates of one degree."""
_NEW = 1e-2
"""Share of a candidate that must be new, beyond what follows from lower degrees."""

Kind = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Term:
    """Products of some inputs, contracted.

    Arguments:
        inputs: Which inputs are multiplied, K lists of the same length.
        contraction: With shape `(D, target, n1, n2, ...)`, one axis for each factor.
        kept: Which of the K * D results are used.
    """

    inputs: list[tuple[int, ...]]
    contraction: Tensor
    kept: Tensor

    @property
    def degree(self) -> int:
        """Number of factors."""
        return len(self.inputs[0])

    def __call__(self, blocks: list[Tensor]) -> Tensor:
        """Values `(B, kept, target)` for inputs, each `(B, size)`."""
        return _contract(blocks, self.inputs, self.contraction)[:, self.kept]


class Covariants(nn.Module):
    """Evaluates terms in double precision: invariants of long vectors are small differences of large numbers.

    Arguments:
        terms: What to evaluate.
        target: Numbers in one result, 1 for invariants.
    """

    def __init__(self, terms: list[Term], target: int) -> None:
        super().__init__()
        self.target, self.degrees = target, [t.degree for t in terms for _ in range(len(t.kept))]
        self._inputs = [t.inputs for t in terms]
        for k, term in enumerate(terms):
            self.register_buffer(f"contraction{k}", term.contraction, persistent=True)
            self.register_buffer(f"kept{k}", term.kept, persistent=True)

    def __len__(self) -> int:
        return len(self.degrees)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Covariants:
        """Moves to other devices; the numbers stay doubles under `.float()` and `.half()`."""
        super()._apply(lambda t: fn(t).to(t.dtype), recurse)
        return self

    def forward(self, blocks: list[Tensor]) -> Tensor:
        """Values `(B, len(self), target)` for inputs, each `(B, size)`, in double precision."""
        doubles = [b.double() for b in blocks]
        parts = [
            _contract(doubles, inputs, self.get_buffer(f"contraction{k}"))[:, self.get_buffer(f"kept{k}")]
            for k, inputs in enumerate(self._inputs)
        ]
        return torch.cat(parts, 1) if parts else doubles[0].new_zeros(doubles[0].shape[0], 0, self.target)


def find_covariants(
    maps: Intertwiners, inputs: list[Kind], target: Kind, degree: int, lower: list[Term] | None = None
) -> list[Term]:
    """Generating polynomial maps up to a degree.

    Arguments:
        maps: The null spaces of the group.
        inputs: The type (upper, lower) of every input.
        target: The type of the results; (0, 0) for invariants.
        degree: Highest number of factors; fewer where the null space or their number would be too large.
        lower: The invariants found before; for invariants themselves, none.
    """
    n = maps.group.size
    found: list[Term] = []
    points = _points(inputs, n, 400)
    for d in range(1, degree + 1):
        candidates = _candidates(maps, inputs, target, d)
        if candidates is None:
            break
        if candidates:
            values = [term(points).flatten(2).permute(0, 2, 1).flatten(0, 1) for term in candidates]
            follows = _products(found, found if lower is None else lower, points, d, invariant=target == (0, 0))
            found += _new_ones(candidates, values, follows)
    return found


def _candidates(maps: Intertwiners, inputs: list[Kind], target: Kind, degree: int) -> list[Term] | None:
    """All products of a degree, by the types of their factors; `None` where they are too many."""
    n = maps.group.size
    by_type: dict[tuple[Kind, ...], list[tuple[int, ...]]] = {}
    order = sorted(range(len(inputs)), key=lambda i: inputs[i])
    for chosen in combinations_with_replacement(order, degree):
        by_type.setdefault(tuple(inputs[i] for i in chosen), []).append(chosen)
    terms, count = [], 0
    for types, chosen_ones in by_type.items():
        slots = tuple(s for p, q in types for s in (1,) * p + (-1,) * q)
        if n ** (len(slots) + sum(target)) > LARGEST:
            return None
        basis = maps.between_slots(slots, (1,) * target[0] + (-1,) * target[1]).basis
        if len(basis):
            shape = (len(basis), n ** sum(target), *(n ** sum(kind) for kind in types))
            count += len(chosen_ones) * len(basis)
            every = torch.arange(len(chosen_ones) * len(basis))
            terms.append(Term(chosen_ones, basis.reshape(shape).contiguous(), every))
    return terms if count <= _MOST else None


def _contract(blocks: list[Tensor], inputs: list[tuple[int, ...]], contraction: Tensor) -> Tensor:
    """Values `(B, K * D, target)`."""
    count, target = contraction.shape[:2]
    sizes = contraction.shape[2:]
    factors = [torch.stack([blocks[row[f]] for row in inputs], 1) for f in range(len(sizes))]  # each (B, K, size)
    rest = math.prod(sizes[1:])
    result = torch.einsum("mar,bka->bkmr", contraction.reshape(count * target, sizes[0], rest), factors[0])
    for f in range(1, len(sizes)):
        rest //= sizes[f]
        result = torch.einsum("bkmar,bka->bkmr", result.unflatten(3, (sizes[f], rest)), factors[f])
    return result[..., 0].unflatten(2, (count, target)).flatten(1, 2)


def _points(inputs: list[Kind], n: int, count: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(count, n ** sum(kind), generator=generator, dtype=torch.float64) for kind in inputs]


def _products(found: list[Term], invariants: list[Term], points: list[Tensor], degree: int, invariant: bool) -> Tensor:
    """Values `(points * target, products)` of all products with that degree of invariants and one earlier result."""
    powers: dict[int, list[Tensor]] = {0: [torch.ones(len(points[0]), dtype=torch.float64)]}
    single = [(t.degree, v) for t in invariants for v in t(points)[:, :, 0].unbind(1)]
    for d in range(1, degree + 1):
        # Each product once: factors in the order of the list.
        powers[d] = []
        for chosen in _partitions(d, [s[0] for s in single]):
            value = torch.ones(len(points[0]), dtype=torch.float64)
            for i in chosen:
                value = value * single[i][1]
            powers[d].append(value)
    columns = list(powers[degree]) if invariant else []
    if not invariant:
        for term in found:
            values = term(points)  # (points, kept, target)
            for power in powers.get(degree - term.degree, []):
                columns += (values * power[:, None, None]).permute(1, 0, 2).flatten(1).unbind(0)
    rows = len(points[0])
    return torch.stack(columns, 1) if columns else torch.zeros(rows, 0, dtype=torch.float64)


def _partitions(total: int, degrees: list[int], first: int = 0) -> list[list[int]]:
    """Lists of indices, ascending with repeats, whose degrees add up to `total`."""
    if not total:
        return [[]]
    lists = []
    for i in range(first, len(degrees)):
        if degrees[i] <= total:
            lists += [[i, *rest] for rest in _partitions(total - degrees[i], degrees, i)]
        if len(lists) > _MOST:
            break
    return lists


def _new_ones(candidates: list[Term], values: list[Tensor], follows: Tensor) -> list[Term]:
    """The candidates that are independent of each other and of what follows from lower degrees."""
    every = torch.cat(values, 1)
    size = every.norm(dim=0)
    every = every / size.clamp_min(1e-12)
    if follows.shape[1]:
        u, s, _ = torch.linalg.svd(follows / follows.norm(dim=0).clamp_min(1e-12), full_matrices=False)
        u = u[:, s > 1e-6 * s[0]]
        every = every - u @ (u.mT @ every)
    every = every * (size > 1e-9)
    _, r, order = qr(every.numpy(), mode="economic", pivoting=True)
    kept = sorted(order[: int((abs(r.diagonal()) > _NEW).sum())].tolist())
    found, start = [], 0
    for term in candidates:
        own = [k - start for k in kept if start <= k < start + len(term.kept)]
        start += len(term.kept)
        if own:
            found.append(Term(term.inputs, term.contraction, torch.tensor(own)))
    return found
