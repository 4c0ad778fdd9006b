"""Full names of groups, also conjugated and with noise, and names never claimed."""

import numpy as np
import pytest
import torch

from atlasd.algebra import known as algebras
from atlasd.algebra import known as known
from atlasd.algebra.group import Group
from atlasd.algebra.group_names import identify_group, name_group
from atlasd.algebra.identify import identify
from atlasd.algebra.lie import LieAlgebra


def diag(*entries):
    return torch.diag(torch.tensor(entries, dtype=torch.float64))


def with_cosets(algebra, *cosets):
    identity = torch.eye(algebra.size, dtype=torch.float64)
    return Group(algebra, torch.stack([identity, *cosets]))


def scaled(group, factor=1.5):
    basis = torch.cat([group.algebra.basis, torch.eye(group.size, dtype=torch.float64)[None]])
    return Group(basis, group.cosets * factor)


LORENTZ = known.lorentz()
AXIS = LieAlgebra(algebras.so(3).basis[:1])
TORUS = LieAlgebra(algebras.so(4).basis[[0, 5]])
TOGETHER = LieAlgebra(algebras.so(4).basis[[0, 5]].sum(0, keepdim=True))
SWAP = torch.eye(4, dtype=torch.float64)[[2, 3, 0, 1]]
TWO_MIRRORS = diag(1, -1, 1, -1)
# the expected name, the name of the algebra, the group
TABLE = [
    ("SO(2)", "so(2)", known.special_orthogonal(2)),
    ("O(2)", "so(2)", known.orthogonal(2)),
    ("SO(3)", "so(3)", known.special_orthogonal(3)),
    ("O(3)", "so(3)", with_cosets(algebras.so(3), diag(-1, -1, -1))),
    ("O(4)", "so(4)", known.orthogonal(4)),
    ("SO+(1,3)", "so(1,3)", known.lorentz(1)),
    ("O+(1,3)", "so(1,3)", known.lorentz(2)),
    ("O(1,3)", "so(1,3)", LORENTZ),
    ("SO(1,3)", "so(1,3)", Group(LORENTZ.algebra, LORENTZ.cosets[[0, 3]])),
    ("so(1,3), 2 components", "so(1,3)", Group(LORENTZ.algebra, LORENTZ.cosets[[0, 2]])),
    ("O+(1,2)", "so(1,2)", with_cosets(algebras.so(1, 2), diag(1, 1, -1))),
    ("SO+(1,3)xR+", "so(1,3)+R", scaled(known.lorentz(1))),
    ("O+(1,3)xR+", "so(1,3)+R", scaled(known.lorentz(2))),
    ("O(2)xR+", "so(2)+R", scaled(known.orthogonal(2))),
    ("GL+(2)", "gl(2)", known.general_linear_plus(2)),
    ("GL(2)", "gl(2)", known.general_linear(2)),
    ("SL(2)", "sl(2)", known.special_linear(2)),
    ("SL+-(2)", "sl(2)", with_cosets(algebras.sl(2), diag(1, -1))),
    ("SO(2)xSO(2)", "so(2)+so(2)", Group(TORUS)),
    ("O(2)xO(2)", "so(2)+so(2)", with_cosets(TORUS, diag(1, -1, 1, 1), diag(1, 1, 1, -1), diag(1, -1, 1, -1))),
    ("so(2)+so(2), 2 components", "so(2)+so(2)", with_cosets(TORUS, diag(1, -1, 1, -1))),
    ("so(2)+so(2), 4 components", "so(2)+so(2)", with_cosets(TORUS, SWAP, TWO_MIRRORS, SWAP @ TWO_MIRRORS)),
    ("O(2) on 2 planes", "u(1)", with_cosets(TOGETHER, TWO_MIRRORS)),
    ("u(1), 2 components", "u(1)", with_cosets(TOGETHER, diag(1, 1, -1, -1))),
    ("u(1), 2 components", "u(1)", with_cosets(TOGETHER, SWAP @ diag(1, -1, -1, 1))),
    ("R+", "scaling", Group(algebras.scaling(2))),
    ("C2xR+", "scaling", with_cosets(algebras.scaling(2), diag(-1, -1))),
    ("exp(shear)", "shear", Group(algebras.shear(2))),
    ("SE(2)", "euclidean(2)", Group(algebras.euclidean(2))),
    ("E(2)", "euclidean(2)", with_cosets(algebras.euclidean(2), diag(1, -1, 1))),
    ("O(2)", "so(2)", with_cosets(AXIS, diag(1, -1, 1))),
    ("so(2), 2 components", "so(2)", with_cosets(AXIS, diag(1, 1, -1))),
    ("trivial", "trivial", known.cyclic(1)),
    ("C2", "trivial", known.dihedral(1)),
    ("C4", "trivial", known.cyclic(4)),
    ("D4", "trivial", known.dihedral(4)),
    ("S4", "trivial", known.octahedral()),
    (
        "A4xC2",
        "trivial",
        Group.close(torch.zeros(0, 3, 3), torch.cat([known.tetrahedral().cosets, diag(-1, -1, -1)[None]])),
    ),
]


@pytest.mark.parametrize(("name", "algebra", "group"), TABLE, ids=[row[0] for row in TABLE])
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.02])
def test_names(name, algebra, group, noise):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        u, _, v = np.linalg.svd(rng.standard_normal((group.size, group.size)))
        s = torch.from_numpy(u @ np.diag(np.linspace(1, 1 + seed / 2, group.size)) @ v)
        moved = torch.linalg.solve(s, group.cosets @ s)
        moved = moved + noise * torch.from_numpy(rng.standard_normal(moved.shape)) / group.size**0.5
        basis = group.algebra.adjoint(torch.linalg.inv(s)).basis
        basis = basis + noise * torch.from_numpy(rng.standard_normal(basis.shape)) / group.size**0.5
        noisy = Group.close(basis, moved) if not group.dimension else Group(basis, moved)
        assert name_group(noisy, algebra)[0] == name


def test_evidence():
    _, evidence = name_group(known.dihedral(4), "trivial")
    assert evidence["components"] == 8
    assert (evidence["rotations"], evidence["reversing"]) == (4, 4)
    assert evidence["element_orders"] == {1: 1, 2: 5, 4: 2}
    assert name_group(known.dihedral(1), "trivial")[1]["kind"] == "reflection"
    assert name_group(known.cyclic(2), "trivial")[1]["kind"] == "half turn"
    assert name_group(with_cosets(algebras.trivial(3), diag(-1, -1, -1)), "trivial")[1]["kind"] == "inversion"


def test_never_a_guess():
    group = with_cosets(algebras.so(3), diag(-1, -1, -1))
    assert name_group(group, "unknown (dim 3)")[0] == "unknown (dim 3, 2 components)"
    # 45 degrees alone, without its powers, is no group.
    turn = known.cyclic(8).cosets[1]
    assert name_group(with_cosets(algebras.trivial(2), turn), "trivial")[0] == "unknown (dim 0, 2 components)"
    open_group = with_cosets(algebras.scaling(2), turn)
    assert "not closed" in name_group(open_group, "scaling")[0]


def test_identify_group():
    group = known.lorentz(2)
    found = identify_group(group, identify(group.algebra))
    assert found.name == "O+(1,3)"
    assert found.dimension == 6
