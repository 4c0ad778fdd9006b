"""The toys: their groups are symmetries, and nothing else to first order is."""

import pytest
import torch
from torch.func import jacrev, vmap

from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError
from atlasd.geometry.actions import VectorAction
from atlasd.runtime.random import stream
from atlasd.studies.toys.functions import toy, toys

every = pytest.mark.parametrize("each", toys(), ids=lambda each: each.name)


def inputs(each, samples=200):
    return each.sample(samples, stream(0, "toy", each.name)).double()


def moved(each, g, x):
    return each.function(VectorAction().on_input(g, x))


@every
def test_group_is_a_symmetry(each):
    x = inputs(each)
    for g in each.group.sample(30, generator=stream(1, each.name), scale=0.5):
        torch.testing.assert_close(moved(each, g, x), each.function(x), rtol=1e-8, atol=1e-8)


@every
def test_cosets_are_symmetries_and_a_group(each):
    x = inputs(each)
    for g in each.group.cosets:
        torch.testing.assert_close(moved(each, g, x), each.function(x), rtol=1e-8, atol=1e-8)
    # The table of a large group is slow and tests the group, not the toy.
    assert each.group.components > 8 or (each.group.cayley >= 0).all()


@every
def test_algebra_is_maximal(each):
    x = inputs(each, 500)
    slopes = vmap(jacrev(lambda z: each.function(z[None])[0].reshape(-1)))(x)
    tokens = x if x.ndim == 3 else x[:, None]
    slopes = slopes if x.ndim == 3 else slopes[:, :, None]
    # Rows of equal size: a steep sample, as of the arctangent near its jump, must not set the scale.
    rows = torch.einsum("sopa,spb->soab", slopes, tokens).flatten(2).flatten(0, 1)
    rows = rows / rows.norm(dim=-1, keepdim=True)
    _, sizes, right = torch.linalg.svd(rows, full_matrices=False)
    null = int((sizes < 1e-6 * sizes[0]).sum())
    assert null == each.group.dimension
    assert sizes[sizes.numel() - null - 1] > 1e-2 * sizes[0]
    found = LieAlgebra(right[sizes.numel() - null :].reshape(-1, each.size, each.size))
    assert found.distance(each.group.algebra) < 1e-4


@pytest.mark.parametrize("name", ["so2", "scaling2", "shear", "sl2", "c3", "cubic", "arctan"])
def test_mirror_is_broken_where_the_group_has_none(name):
    each = toy(name)
    x, mirror = inputs(each), torch.eye(each.size, dtype=torch.float64)
    mirror[-1, -1] = -1.0
    assert not torch.allclose(moved(each, mirror, x), each.function(x), atol=1e-2)


def test_half_turn_of_the_arctangent_is_near():
    each = toy("arctan")
    x = inputs(each, 2000)
    residual = (moved(each, -torch.eye(2).double(), x) - each.function(x)).abs()
    assert 1e-3 < residual.median() < 0.3


@pytest.mark.parametrize(
    ("name", "group"), [("d4", "D4"), ("d3", "D3"), ("c3", "C3"), ("cubic", "trivial"), ("arctan", "trivial")]
)
def test_names_of_finite_groups(name, group):
    assert toy(name).group.name == group


def test_weighted_sum_also_swaps_axes():
    # (x, y, z) -> (2 y, x / 2, z): the group is that of the cube in other units, not the signs alone.
    each = toy("signs")
    swap = torch.tensor([[0.0, 2.0, 0.0], [0.5, 0.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    assert each.group.components == 48
    assert (each.group.cosets - swap).abs().amax((1, 2)).min() < 1e-12
    unit = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    turned = unit[:, None] * each.group.cosets / unit
    torch.testing.assert_close(turned @ turned.mT, torch.eye(3, dtype=torch.float64).expand(48, 3, 3))


@every
def test_same_seed_same_inputs_and_finite_outputs(each):
    a, b = (each.sample(50, stream(3, "x")) for _ in range(2))
    assert torch.equal(a, b) and a.dtype == torch.float32
    y = each.function(a)
    assert y.shape[0] == 50 and y.dtype == torch.float32 and y.isfinite().all()


def test_unknown_name():
    with pytest.raises(InputError, match="`name` must be one of d4, arctan"):
        toy("d5")
