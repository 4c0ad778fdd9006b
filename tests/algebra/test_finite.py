"""Finite groups by their tables, against groups built from permutations."""

import itertools

import pytest
import torch

from atlasd.algebra.finite import FiniteGroup
from atlasd.errors import InputError


def compose(p, q):
    return tuple(p[i] for i in q)


def table_of(generators, shuffle=True):
    """The table of the permutation group generated, its elements in a random order."""
    identity = tuple(range(len(generators[0])))
    found, frontier = {identity}, [identity]
    while frontier:
        frontier = [new for p in frontier for g in generators if (new := compose(p, g)) not in found]
        frontier = list(dict.fromkeys(frontier))
        found.update(frontier)
    elements = sorted(found)
    if shuffle:
        order = torch.randperm(len(elements), generator=torch.Generator().manual_seed(0)).tolist()
        elements = [elements[i] for i in order]
    index = {p: i for i, p in enumerate(elements)}
    return torch.tensor([[index[compose(p, q)] for q in elements] for p in elements])


def product(a, b):
    na, nb = a.shape[0], b.shape[0]
    return (a[:, None, :, None] * nb + b[None, :, None, :]).reshape(na * nb, na * nb)


def cyclic(n):
    return table_of([tuple((i + 1) % n for i in range(n))])


def dihedral(n):
    turn, flip = tuple((i + 1) % n for i in range(n)), tuple(-i % n for i in range(n))
    return table_of([turn, flip])


def dicyclic(n):
    # (a^i, x^j) with a^2n = 1, x^2 = a^n, x a = a^-1 x
    def times(p, q):
        (i, j), (k, l) = p, q
        s = i + (-k if j else k) + (n if j and l else 0)
        return (s % (2 * n), (j + l) % 2)

    elements = list(itertools.product(range(2 * n), range(2)))
    return torch.tensor([[elements.index(times(p, q)) for q in elements] for p in elements])


A4 = [(1, 2, 0, 3), (1, 0, 3, 2)]
S4 = [(1, 2, 3, 0), (1, 0, 2, 3)]
A5 = [(1, 2, 0, 3, 4), (0, 1, 3, 4, 2)]
S5 = [(1, 2, 3, 4, 0), (1, 0, 2, 3, 4)]
CASES = [
    *[(f"C{n}", cyclic(n)) for n in range(1, 25)],
    *[(f"D{n}", dihedral(n)) for n in range(3, 13)],
    ("V4", product(cyclic(2), cyclic(2))),
    ("Q8", dicyclic(2)),
    ("Dic3", dicyclic(3)),
    ("A4", table_of(A4)),
    ("S4", table_of(S4)),
    ("A5", table_of(A5)),
    ("S5", table_of(S5)),
    ("A4xC2", product(table_of(A4), cyclic(2))),
    ("S4xC2", product(cyclic(2), table_of(S4))),
    ("A5xC2", product(table_of(A5), cyclic(2))),
    ("C4xC2", product(cyclic(4), cyclic(2))),
    ("C6xC2", product(cyclic(6), cyclic(2))),
    ("C2xC2xC2", product(product(cyclic(2), cyclic(2)), cyclic(2))),
    ("C12xC3", product(cyclic(4), product(cyclic(3), cyclic(3)))),
    ("D4xC2", product(dihedral(4), cyclic(2))),
    ("D6", product(dihedral(3), cyclic(2))),
    ("D6xC2", product(dihedral(6), cyclic(2))),
    ("D10", product(dihedral(5), cyclic(2))),
    ("Q8xC2", product(dicyclic(2), cyclic(2))),
    ("order 18, unnamed", product(dihedral(3), cyclic(3))),
]


@pytest.mark.parametrize(("name", "table"), CASES, ids=[name for name, _ in CASES])
def test_name(name, table):
    assert FiniteGroup(table).name == name


def test_invariants():
    group = FiniteGroup(dihedral(4))
    assert group.order == 8
    assert sorted(group.orders) == [1, 2, 2, 2, 2, 2, 4, 4]
    assert not group.abelian
    assert len(group.centre) == 2
    assert all(group.table[i, j] == group.identity for i, j in enumerate(group.inverses.tolist()))


def test_generate_and_subgroup():
    group = FiniteGroup(table_of(S4))
    fourth = group.orders.index(4)
    assert group.subgroup(group.generate([fourth])).name == "C4"


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        (torch.zeros(0, 0), "shape"),
        (torch.zeros(2, 3), "shape"),
        (torch.tensor([[0, 1], [1, -1]]), "not an element"),
        (torch.tensor([[0, 1], [1, 1]]), "repeats"),
        (torch.tensor([[0, 2, 1], [2, 1, 0], [1, 0, 2]]), "identity"),
        # The smallest loop that is not a group.
        (
            torch.tensor([[0, 1, 2, 3, 4], [1, 0, 3, 4, 2], [2, 4, 0, 1, 3], [3, 2, 4, 0, 1], [4, 3, 1, 2, 0]]),
            "differs",
        ),
    ],
)
def test_not_a_group(table, fault):
    with pytest.raises(InputError, match=fault):
        FiniteGroup(table)
