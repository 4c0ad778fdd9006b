"""Group as a value: membership, closing noisy candidates, samples, actions and how it shows itself."""

import math

import pytest
import torch

from atlasd.algebra import known as algebras
from atlasd.algebra import known as known
from atlasd.algebra.group import Group
from atlasd.algebra.product_closure import polish
from atlasd.errors import InputError


def diag(*entries):
    return torch.diag(torch.tensor(entries, dtype=torch.float64))


def noisy(matrices, noise, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return matrices + noise * torch.randn(matrices.shape, generator=generator, dtype=torch.float64)


def table_error(group):
    products = group.cosets[:, None] @ group.cosets[None]
    return float((products - group.cosets[group.cayley]).abs().max())


def test_members():
    group = known.orthogonal(2)
    turn = known.cyclic(5).cosets[1]
    assert group.contains(turn) and group.component_of(turn) == 0
    assert group.component_of(turn @ diag(1, -1)) == 1
    assert group.component_of(2 * turn) == -1
    assert group.same_component(diag(1, -1), diag(-1, 1))
    assert not group.same_component(diag(1, -1), diag(1, 1))


def test_same_component_where_exp_is_not_onto():
    assert known.general_linear_plus(2).same_component(diag(1, 1), diag(-1, -2))
    assert known.special_linear(2).same_component(diag(1, 1), diag(-1, -1))
    assert known.special_orthogonal(2).same_component(diag(1, 1), diag(-1, -1))
    assert not known.lorentz().same_component(diag(1, 1, 1, 1), diag(1, -1, -1, -1))
    assert not known.orthogonal(3).same_component(diag(1, 1, 1), diag(1, 1, -1))


def test_cayley_table():
    table = known.cyclic(4).cayley
    assert table.tolist() == [[0, 1, 2, 3], [1, 2, 3, 0], [2, 3, 0, 1], [3, 0, 1, 2]]
    assert known.lorentz().cayley[1, 2] == 3


@pytest.mark.parametrize(("n", "order"), [(1, 1), (2, 2), (5, 5), (12, 12)])
def test_close_from_one_generator(n, order):
    generator = noisy(known.cyclic(n).cosets[1 % n][None], 0.005)
    group = Group.close(torch.zeros(0, 2, 2), generator)
    assert group.components == order
    assert table_error(group) < 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_close_d4_from_some_elements(seed):
    exact = known.dihedral(4).cosets
    chosen = torch.cat([exact[[1, 4]], exact[torch.randint(8, (20,), generator=torch.Generator().manual_seed(seed))]])
    group = Group.close(torch.zeros(0, 2, 2), noisy(chosen, 0.03, seed))
    assert (group.components, group.component_group) == (8, "D4")
    assert table_error(group) < 1e-6
    assert torch.equal(group.cosets[0], torch.eye(2, dtype=torch.float64))


def test_close_icosahedral():
    exact = known.icosahedral().cosets
    exact = torch.cat([exact, -exact])
    group = Group.close(torch.zeros(0, 3, 3), noisy(exact[[1, 7, 70]], 0.01))
    assert (group.components, group.component_group) == (120, "A5xC2")
    assert table_error(group) < 1e-6


def test_close_modulo_the_identity_component():
    so2 = algebras.so(2)
    generator = torch.Generator().manual_seed(0)
    flips = known.orthogonal(2).sample(30, generator=generator, scale=3.0)
    group = Group.close(noisy(so2.basis, 0.01), noisy(flips, 0.02))
    assert (group.components, group.component_group) == (2, "C2")
    # Parity and time reversal alone: their product is missing from the list and must be found.
    group = Group.close(algebras.so(1, 3), noisy(known.lorentz().cosets[1:3], 0.01))
    assert (group.components, group.component_group) == (4, "V4")


def test_close_asks_before_it_adds():
    exact = known.dihedral(4).cosets
    asked = []

    def only_rotations_and_one_mirror(g):
        asked.append(len(g))
        return torch.linalg.det(g) > 0

    # The mirror brings three more, which are refused: it goes, the quarter turn stays.
    group = Group.close(torch.zeros(0, 2, 2), noisy(exact[[1, 4]], 0.01), accept=only_rotations_and_one_mirror)
    assert group.component_group == "C4"
    assert asked


def test_close_drops_what_does_not_close():
    shear = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    group = Group.close(torch.zeros(0, 2, 2), torch.stack([diag(-1, -1), shear]), max_order=50)
    assert group.component_group == "C2"
    broken = torch.stack([diag(0, 0), diag(math.nan, 1), diag(1, -1)])
    assert torch.equal(Group.close(torch.zeros(0, 2, 2), broken).cosets[1:], broken[2:].double())


def test_close_nothing():
    group = Group.close(torch.zeros(0, 2, 2), torch.zeros(0, 2, 2))
    assert (group.components, group.name) == (1, "trivial")


def test_close_is_deterministic():
    candidates = noisy(known.dihedral(6).cosets[[2, 7]], 0.01)
    first, second = (Group.close(torch.zeros(0, 2, 2), candidates) for _ in range(2))
    assert torch.equal(first.cosets, second.cosets)


def test_polish_squares_the_error():
    group = known.octahedral()
    clean = polish(noisy(group.cosets, 0.03), group.cayley)
    products = clean[:, None] @ clean[None]
    assert float((products - clean[group.cayley]).abs().max()) < 1e-12


def test_sample():
    group = known.lorentz(2)
    first = group.sample(20, generator=torch.Generator().manual_seed(3), scale=0.5)
    again = group.sample(20, generator=torch.Generator().manual_seed(3), scale=0.5)
    assert torch.equal(first, again)
    metric = diag(-1, 1, 1, 1)
    torch.testing.assert_close(first.mT @ metric @ first, metric.expand(20, 4, 4), atol=1e-9, rtol=1e-9)
    assert {group.component_of(g) for g in first} == {0, 1}
    assert known.dihedral(3).sample(0).shape == (0, 2, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_act(dtype):
    group = known.cyclic(4)
    x = torch.randn(3, 5, 2, generator=torch.Generator().manual_seed(0), dtype=dtype)
    quarter = group.cosets[1]
    expected = torch.stack([-x[..., 1], x[..., 0]], dim=-1)
    torch.testing.assert_close(group.act(x, quarter), expected)
    assert group.act(x).shape == (4, 3, 5, 2)
    torch.testing.assert_close(group.act(x)[1], expected)
    assert group.act(x).dtype == dtype


def test_words():
    assert str(known.orthogonal(2)) == "O(2)  (so(2), 2 components)"
    assert str(known.special_orthogonal(3)) == "SO(3)  (so(3), 1 component)"
    assert str(known.dihedral(4)) == "D4  (finite, 8 elements)"
    assert str(known.cyclic(1)).startswith("trivial")
    assert repr(known.lorentz()) == "Group(dimension=6, components=4, size=4)"


def test_bad_input():
    so2 = algebras.so(2)
    with pytest.raises(InputError, match="shape"):
        Group(so2, torch.eye(2))
    with pytest.raises(InputError, match="invertible"):
        Group(so2, torch.zeros(1, 2, 2))
    with pytest.raises(InputError, match="start with the identity"):
        Group(so2, diag(1, -1)[None])
    with pytest.raises(InputError, match="size of the group"):
        Group(so2).contains(torch.eye(3))
    with pytest.raises(InputError, match="vector axis last"):
        Group(so2).act(torch.zeros(2, 3))
    with pytest.raises(InputError, match="candidates"):
        Group.close(so2, torch.eye(3)[None])


@pytest.mark.parametrize("noise", [0.01, 0.03])
def test_elements_of_a_noisy_finite_group_stay_apart(noise):
    # Any rotation is near an element of a dihedral group of high order, which therefore explains nothing.
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        left, right = (torch.linalg.qr(torch.randn(2, 2, generator=generator, dtype=torch.float64)).Q for _ in "ab")
        s = left @ torch.diag(torch.tensor([1.0, 8.0], dtype=torch.float64)) @ right
        g = s @ known.dihedral(8).cosets @ torch.linalg.inv(s)
        error = torch.randn(g.shape, generator=generator, dtype=torch.float64)
        g = g + noise * error * (torch.linalg.matrix_norm(g) / torch.linalg.matrix_norm(error))[:, None, None]
        group = Group.close(known.trivial(2), g)
        distances = (2 - group.cosets[1:].diagonal(dim1=1, dim2=2).sum(-1)).sqrt()
        assert (distances > 0.9 * group.tolerance).all()
