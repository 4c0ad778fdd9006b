"""Which groups are compact, and even samples of those that are."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.nn.groups import haar_sample, invariant_form, unbounded_direction
from atlasd.runtime.random import stream

COMPACT = [
    ad.known.cyclic(3), ad.known.dihedral(4), ad.known.special_orthogonal(2), ad.known.orthogonal(2),
    ad.known.special_orthogonal(3), ad.known.orthogonal(4), ad.known.icosahedral(),
]  # fmt: skip
UNBOUNDED = [
    ad.known.general_linear_plus(2), ad.known.special_linear(2), ad.Group(ad.known.scaling(2)), ad.known.lorentz(),
    ad.Group(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])), ad.Group(torch.tensor([[[0.2, -1.0], [1.0, 0.2]]])),
]  # fmt: skip


@pytest.mark.parametrize("group", COMPACT, ids=str)
def test_compact_groups_keep_a_scalar_product(group):
    form = invariant_form(group)
    torch.testing.assert_close(form, torch.eye(group.size, dtype=torch.float64))
    # In other coordinates it is another one.
    change = torch.eye(group.size, dtype=torch.float64)
    change[0, 0], change[0, 1] = 2.0, 0.3
    back = torch.linalg.inv(change)
    moved = invariant_form(ad.Group(change @ group.algebra.basis @ back, change @ group.cosets @ back))
    expected = back.mT @ back
    torch.testing.assert_close(moved, expected / torch.linalg.det(expected) ** (1 / group.size))


@pytest.mark.parametrize("group", UNBOUNDED, ids=repr)
def test_others_keep_none(group):
    assert invariant_form(group) is None
    assert "without bound" in unbounded_direction(group)


@pytest.mark.parametrize("group", COMPACT, ids=str)
def test_samples_are_even(group):
    elements = haar_sample(group, 400, generator=stream(0, "haar"))
    assert all(group.contains(g) for g in elements[:5])
    # The mean of an irreducible representation vanishes.
    assert elements.mean(0).abs().max() < 0.1
    if group.dimension == 0:
        assert len(elements) == group.components


def test_wrong_input():
    with pytest.raises(InputError, match="`samples` must be at least 1"):
        haar_sample(ad.known.orthogonal(2), 0, generator=stream(0))
