"""The catalogue of known algebras and groups."""

import pytest
import torch

from atlasd.algebra import known
from atlasd.errors import InputError

DIMENSIONS = {
    "so(3)": (known.so(3), 3),
    "so(1,3)": (known.so(1, 3), 6),
    "so(2,3)": (known.so(2, 3), 10),
    "sl(3)": (known.sl(3), 8),
    "gl(3)": (known.gl(3), 9),
    "sp(4)": (known.sp(4), 10),
    "sp(6)": (known.sp(6), 21),
    "u(2)": (known.u(2), 4),
    "su(3)": (known.su(3), 8),
    "scaling": (known.scaling(3), 1),
    "shear": (known.shear(3), 1),
    "borel(4)": (known.borel(4), 10),
    "heisenberg": (known.heisenberg(), 3),
    "galilei(3)": (known.galilei(3), 10),
    "affine(3)": (known.affine(3), 12),
    "euclidean(3)": (known.euclidean(3), 6),
    "trivial": (known.trivial(3), 0),
}


@pytest.mark.parametrize("name", DIMENSIONS)
def test_known_algebras_are_closed_and_independent(name):
    algebra, dimension = DIMENSIONS[name]
    assert algebra.dimension == len(algebra.basis) == dimension
    assert algebra.closure_error() < 1e-12


@pytest.mark.parametrize("signature", [(3,), (1, 1), (1, 3), (2, 2), (0, 4)])
def test_so_preserves_its_metric(signature):
    p = signature[0] if len(signature) == 2 else 0
    form = torch.diag(torch.tensor([-1.0] * p + [1.0] * (sum(signature) - p), dtype=torch.float64))
    basis = known.so(*signature).basis
    assert (basis.mT @ form + form @ basis).abs().max() == 0


def test_sp_preserves_the_symplectic_form_and_u_the_complex_structure():
    eye, zero = torch.eye(2).double(), torch.zeros(2, 2).double()
    form = torch.cat([torch.cat([zero, eye], 1), torch.cat([-eye, zero], 1)])
    basis = known.sp(4).basis
    assert (basis.mT @ form + form @ basis).abs().max() == 0
    basis = known.u(2).basis
    assert (basis @ form - form @ basis).abs().max() == 0
    assert (basis + basis.mT).abs().max() == 0


def test_coincidences():
    assert known.sp(2).distance(known.sl(2)) < 1e-12
    assert known.u(1).distance(known.so(2)) < 1e-12
    assert known.galilei(1).distance(known.heisenberg()) < 1e-12
    assert known.euclidean(1).distance(known.shear(2)) < 1e-12


def test_the_shear_moves_the_first_coordinate():
    moved = known.shear(2).exp(torch.tensor([2.0])) @ torch.tensor([0.0, 1.0]).double()
    assert moved.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("call", [lambda: known.so(), lambda: known.so(1, 2, 3), lambda: known.so(-1, 2)])
def test_bad_signatures_are_refused(call):
    with pytest.raises(InputError, match=r"`signature` must be one or two sizes"):
        call()


def test_bad_sizes_are_refused():
    with pytest.raises(InputError, match=r"`size` must be even, got 3"):
        known.sp(3)
    with pytest.raises(InputError, match=r"`n` must be an integer of at least 1, got 0"):
        known.gl(0)


CASES = [
    *[(known.cyclic(n), n, 0, f"C{n}") for n in (1, 2, 3, 4, 6, 12)],
    *[(known.dihedral(n), 2 * n, 0, f"D{n}") for n in (3, 4, 5, 12)],
    (known.dihedral(1), 2, 0, "C2"),
    (known.dihedral(2), 4, 0, "V4"),
    (known.tetrahedral(), 12, 0, "A4"),
    (known.octahedral(), 24, 0, "S4"),
    (known.icosahedral(), 60, 0, "A5"),
    (known.special_orthogonal(3), 1, 3, "C1"),
    (known.orthogonal(2), 2, 1, "C2"),
    (known.orthogonal(4), 2, 6, "C2"),
    (known.lorentz(1), 1, 6, "C1"),
    (known.lorentz(2), 2, 6, "C2"),
    (known.lorentz(), 4, 6, "V4"),
    (known.general_linear_plus(2), 1, 4, "C1"),
    (known.general_linear(3), 2, 9, "C2"),
    (known.special_linear(2), 1, 3, "C1"),
]


@pytest.mark.parametrize(("group", "order", "dimension", "components"), CASES)
def test_catalogue(group, order, dimension, components):
    assert (group.components, group.dimension, group.component_group) == (order, dimension, components)
    assert torch.equal(group.cosets[0], torch.eye(group.size, dtype=torch.float64))


def test_polyhedral_groups_are_rotations():
    for group in (known.tetrahedral(), known.octahedral(), known.icosahedral()):
        eye = torch.eye(3, dtype=torch.float64)
        torch.testing.assert_close(group.cosets @ group.cosets.mT, eye.expand_as(group.cosets))
        torch.testing.assert_close(torch.linalg.det(group.cosets), torch.ones(group.components).double())


def test_icosahedral_moves_vertices_to_vertices():
    golden = (1 + 5**0.5) / 2
    vertex = torch.tensor([0.0, 1.0, golden], dtype=torch.float64)
    orbit = {tuple((x + 0.0).round(decimals=6).tolist()) for x in known.icosahedral().act(vertex)}
    assert len(orbit) == 12
    assert len({tuple(abs(v) for v in x) for x in orbit}) == 3


@pytest.mark.parametrize("build", [known.cyclic, known.dihedral, known.orthogonal, known.general_linear])
def test_bad_size(build):
    with pytest.raises(InputError, match="at least"):
        build(0)


def test_bad_components():
    with pytest.raises(InputError, match="1, 2 or 4"):
        known.lorentz(3)
