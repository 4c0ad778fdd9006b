"""The catalogue of groups: orders, component groups and what each contains."""

import pytest
import torch

from atlasd.algebra import known as known
from atlasd.errors import InputError

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
