"""Units far from one: squares of such numbers leave the range of float32, and some that of float64."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import blur, draw_waves, field_atlas, plane_waves

UNITS = {"targets large": (1.0, 1e20), "targets small": (1.0, 1e-20), "inputs small": (1e-30, 1.0)}
LARGE = {"inputs large": (1e39, 1.0)}  # beyond float32
CASES = [
    pytest.param(numbers, *factors, id=f"{name}, {str(numbers).removeprefix('torch.')}")
    for numbers, units in ((torch.float32, UNITS), (torch.float64, UNITS | LARGE))
    for name, factors in units.items()
]


def find(x, y, numbers, of_inputs=1.0, of_targets=1.0, **options):
    """A discovery on data in other units and another type of numbers."""
    x, y = ((v.double() * unit).to(numbers) for v, unit in ((x, of_inputs), (y, of_targets)))
    return ad.discover(x, y, progress=False, **options)


def points():
    return torch.randn(400, 2, generator=stream(11, "extreme units"), dtype=torch.float64)


def round_map(x):
    return (-x.square().sum(-1) / 2).exp()


def broken_map(x):
    return (3 * x[:, 0]).sin() + x[:, 0] * x[:, 1].exp()


@pytest.mark.parametrize("numbers, of_inputs, of_targets", CASES)
def test_vectors(numbers, of_inputs, of_targets):
    x = points()
    assert find(x, round_map(x), numbers, of_inputs, of_targets).group.name == "O(2)"


@pytest.mark.parametrize("numbers, of_inputs, of_targets", CASES[::3])
def test_vectors_without_symmetry(numbers, of_inputs, of_targets):
    x = points()
    plain = find(x, broken_map(x), torch.float64).group
    found = find(x, broken_map(x), numbers, of_inputs, of_targets).group
    assert found.dimension == plain.dimension == 0 and found.name == plain.name


@pytest.mark.parametrize(
    "numbers, of_inputs, of_targets",
    [CASES[0], CASES[-1], *(pytest.param(*case.values, marks=pytest.mark.slow, id=case.id) for case in CASES[2:-1:2])],
)
def test_fields(numbers, of_inputs, of_targets):
    u = plane_waves(*draw_waves(60, stream(11, "extreme units")), size=48)
    found = find(u, blur(u, 2.0), numbers, of_inputs, of_targets, atlas=field_atlas())
    assert found.group.name == "O(2)"


def test_numbers_that_float32_cannot_hold_are_refused():
    with pytest.raises(InputError, match="`x` must be finite"):
        find(points(), round_map(points()), torch.float32, 1e39)


@pytest.mark.parametrize("sizes", [(1e-3, 1e3), (1e-4, 1e8)])
def test_columns_of_other_sizes_in_one_table(sizes, tmp_path):
    """In raw units such a rotation looks like a shear, and its mirror like a singular matrix."""
    x = points()
    found = find(x * torch.tensor(sizes, dtype=torch.float64), round_map(x), torch.float64)
    assert found.group.name == ad.load(found.save(tmp_path)).group.name == "O(2)"


@pytest.mark.parametrize("of_inputs", [1e-300, 1e160])
def test_sizes_whose_products_vanish_are_refused(of_inputs):
    with pytest.raises(InputError, match="give it in other units"):
        find(points(), round_map(points()), torch.float64, of_inputs)
