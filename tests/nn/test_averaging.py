"""Averages over a group are equivariant; the model alone is not."""

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction, VectorAction
from atlasd.nn import vector
from atlasd.nn.checks import field_error


@pytest.fixture
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1))


@pytest.mark.parametrize("group", [ad.known.cyclic(4), ad.known.dihedral(4), ad.known.cyclic(2)], ids=str)
def test_finite_groups_are_exact(group, network, waves):
    x = waves(2, (12, 12))
    ad.assert_equivariant(ad.symmetrize(network, group), group, x, tolerance=1e-5)
    with pytest.raises(AssertionError, match="not equivariant"):
        ad.assert_equivariant(network, group, x, tolerance=1e-2)


def test_it_is_the_plain_average(network, waves):
    x = waves(2, (12, 12))
    by_hand = sum(network(x.rot90(k, dims=(2, 3))).rot90(-k, dims=(2, 3)) for k in range(4)) / 4
    torch.testing.assert_close(ad.symmetrize(network, ad.known.cyclic(4))(x), by_hand)


def test_compact_groups_are_sampled(network, waves):
    x, group = waves(2, (31, 31)), ad.known.special_orthogonal(2)
    g = group.algebra.exp(torch.tensor([0.7]))
    even = ad.symmetrize(network, group, samples=32)
    assert len(even.elements) == 32
    assert field_error(even, x, g, radius=9) < 0.25 * field_error(network, x, g, radius=9)


def test_outputs_without_places_are_invariant(network, waves):
    classify = nn.Sequential(network, nn.AdaptiveAvgPool2d(2), nn.Flatten())
    x, group = waves(2, (12, 12)), ad.known.dihedral(4)
    ad.assert_equivariant(ad.symmetrize(classify, group), group, x, tolerance=1e-5)
    assert field_error(classify, x, group.cosets).max() > 0.01


def test_vectors_and_other_actions():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)), torch.randn(5, 3)
    group = ad.known.octahedral()
    ad.assert_equivariant(ad.symmetrize(model, group), group, x, tolerance=1e-4)
    turning = nn.Linear(3, 3)
    action = VectorAction(rho_out=lambda g: g)
    even = ad.symmetrize(turning, group, action=action)
    ad.assert_equivariant(even, group, x, action=action, tolerance=1e-4)
    # Schur: what is left of a linear map is a multiple of the identity, and no shift.
    torch.testing.assert_close(even(x), x * turning.weight.trace() / 3)
    with pytest.raises(AssertionError):
        ad.assert_equivariant(turning, group, x, action=action, tolerance=1e-2)


def test_structured_and_vector_outputs():
    torch.manual_seed(0)
    inner, x, group = nn.Linear(3, 4), torch.randn(20, 3), ad.known.octahedral()

    parts = nn.Sequential(inner, nn.Tanh(), nn.Linear(4, 3))
    moving = ad.symmetrize(parts, group, outputs=vector())
    ad.assert_equivariant(moving, group, x, outputs=vector())
    with pytest.raises(AssertionError):
        ad.assert_equivariant(parts, group, x, outputs=vector())
    still = ad.symmetrize(Tuple(inner), group)
    ad.assert_equivariant(still, group, x)


class Tuple(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        y = self.inner(x).exp()
        return y[:, :1], {"rest": y[:, 1]}


def test_gradients_reach_the_model(network, waves):
    even = ad.symmetrize(network, ad.known.cyclic(4))
    even(waves(1, (8, 8))).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.abs().sum() > 0) for p in network.parameters())


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        (ad.known.general_linear_plus(2), "got GL\\+\\(2\\).*stretches without bound"),
        (ad.Group(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])), "shear or stretch without bound"),
        (ad.known.lorentz(), "O\\(1,3\\).*stretches without bound"),
    ],
    ids=["GL", "shear", "lorentz"],
)
def test_unbounded_groups_are_refused_with_the_reason(group, reason):
    with pytest.raises(InputError, match=reason):
        ad.symmetrize(nn.Identity(), group)


def test_what_cannot_be_moved_is_said():
    with pytest.raises(InputError, match="say how the group acts"):
        ad.symmetrize(nn.Identity(), ad.known.cyclic(4))(torch.zeros(2, 5))
    assert isinstance(ad.symmetrize(nn.Identity(), ad.known.cyclic(4), action=GridAction()).action, GridAction)


def test_both_doors_open_to_the_function():
    import atlasd
    from atlasd.nn import symmetrize

    assert callable(symmetrize) and symmetrize is atlasd.symmetrize
