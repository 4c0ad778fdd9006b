"""The measure and the assertion, on modules and on functions."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction
from atlasd.nn import field_error, scalar, vector
from atlasd.runtime.random import stream

TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def rotation(degrees):
    return torch.matrix_exp(torch.deg2rad(torch.tensor(float(degrees), dtype=torch.float64)) * TURN)


def test_equivariance_error_takes_any_module_and_any_angle(waves):
    torch.manual_seed(0)
    x, action = waves(3, (25, 25)), GridAction()
    blur, plain = nn.AvgPool2d(3, 1, 1), nn.Conv2d(1, 2, 3, padding=1)

    def inner(a, b):
        return (a - b)[..., 7:-7, 7:-7].square().mean((2, 3))

    for degrees in (90, 30, -77):
        error = ad.equivariance_error(blur, action, x, rotation(degrees), distance=inner)
        assert error.shape == (3, 1) and error.mean() < (1e-10 if degrees == 90 else 1e-4)
        assert ad.equivariance_error(plain, action, x, rotation(degrees), distance=inner).mean() > 1e-3
    g = rotation(20).requires_grad_()
    ad.equivariance_error(plain, action, x, g).sum().backward()
    assert g.grad is not None and bool(g.grad.abs().sum() > 0)


def test_error_is_relative(waves):
    x = waves(2, (25, 25))
    uneven = nn.Sequential(nn.Conv2d(1, 1, 5, padding=2))
    small = lambda x: 1e-3 * uneven(x)  # noqa: E731
    torch.testing.assert_close(field_error(uneven, x, TURN), field_error(small, x, TURN), rtol=1e-4, atol=0)
    several = field_error(uneven, x, torch.stack([TURN, rotation(45)]))
    assert several.shape == (2,) and float(several[0]) == pytest.approx(float(field_error(uneven, x, TURN)))


def test_modules_are_asked_in_evaluation_mode_and_left_as_they_were(waves):
    norm = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.5)).train()
    before = norm[0].running_mean.clone()
    assert field_error(norm, waves(2, (9, 9)), TURN) < 1e-6
    assert norm.training and torch.equal(norm[0].running_mean, before)


def test_rectangles_are_compared_where_a_turn_leaves_them(waves):
    assert field_error(nn.Identity(), waves(2, (15, 31)), TURN) < 1e-6
    assert field_error(nn.Identity(), waves(2, (15, 31)), rotation(45)) < 0.05


def test_continuous_groups_are_sampled(waves):
    x = waves(2, (31, 31), length=16.0)
    ad.assert_equivariant(nn.Identity(), ad.known.orthogonal(2), x, tolerance=0.05, radius=10)
    ad.assert_equivariant(nn.Identity(), ad.known.general_linear_plus(2), x, tolerance=0.05, radius=6)
    with pytest.raises(AssertionError, match=r"above 0\.05 under"):
        ad.assert_equivariant(lambda x: x.roll(3, -1), ad.known.orthogonal(2), x, tolerance=0.05, radius=10)


def test_every_output_counts_in_its_own_spread():
    x = torch.randn(64, 1, 5, 5, generator=stream(0))
    broken = lambda x: torch.stack([x[:, 0, 0, 0], 1e5 + x[:, 0, 0, 1]], 1)  # noqa: E731
    whole = lambda x: torch.stack([x.mean((1, 2, 3)), 1e5 + 0 * x.sum((1, 2, 3)) + x[:, 0, 0, 1]], 1)  # noqa: E731
    for model in (broken, whole):
        with pytest.raises(AssertionError, match="not equivariant"):
            ad.assert_equivariant(model, ad.known.cyclic(4), x, tolerance=0.05)
    # Control: the same offset on outputs that are invariant.
    right = lambda x: torch.stack([x.mean((1, 2, 3)), 100 + x.square().mean((1, 2, 3))], 1)  # noqa: E731
    ad.assert_equivariant(right, ad.known.cyclic(4), x, tolerance=1e-3)


def test_constant_outputs_prove_nothing():
    x, group = torch.randn(8, 1, 5, 5, generator=stream(0)), ad.known.cyclic(4)
    with pytest.raises(AssertionError, match="cannot tell: the output is constant"):
        ad.assert_equivariant(lambda x: torch.ones(len(x)), group, x)
    with pytest.raises(AssertionError, match=r"cannot tell: \[1\] is constant"):
        ad.assert_equivariant(lambda x: torch.stack([x.mean((1, 2, 3)), torch.ones(len(x))], 1), group, x)


def test_structured_outputs():
    x, group = torch.randn(8, 1, 6, 6, generator=stream(0)), ad.known.cyclic(4)
    blur = nn.AvgPool2d(3, 1, 1)
    both = lambda x: {"field": blur(x), "class": (x.mean((2, 3)), x.amax((2, 3)))}  # noqa: E731
    ad.assert_equivariant(both, group, x)
    broken = lambda x: {"field": blur(x), "class": (x.mean((2, 3)), x[..., 0, 0])}  # noqa: E731
    with pytest.raises(AssertionError, match=r"output class\.1"):
        ad.assert_equivariant(broken, group, x)
    with pytest.raises(InputError, match="got str"):
        ad.assert_equivariant(lambda x: "words", group, x)


def test_vectors_that_transform():
    x, group = torch.randn(30, 3, generator=stream(0)), ad.known.special_orthogonal(3)
    forward = lambda x: x * x.square().sum(-1, keepdim=True)  # noqa: E731
    ad.assert_equivariant(forward, group, x, outputs=vector())
    with pytest.raises(AssertionError, match="not equivariant"):
        ad.assert_equivariant(forward, group, x, outputs=3 * scalar())
    with pytest.raises(InputError, match=r"could be vectors.*outputs=vector\(\)"):
        ad.assert_equivariant(forward, group, x)


def test_every_part_keeps_its_mode(waves):
    net = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 1, 3, padding=1)).eval()
    wrapped = ad.symmetrize(net, ad.known.cyclic(4))
    assert not wrapped.training
    ad.assert_equivariant(wrapped, ad.known.cyclic(4), waves(2, (9, 9)))
    assert not any(m.training for m in wrapped.modules())
    mixed = nn.Sequential(nn.BatchNorm2d(1).eval(), nn.Dropout(0.1)).train()
    mixed[0].eval()
    field_error(mixed, waves(2, (9, 9)), TURN)
    assert mixed.training and mixed[1].training and not mixed[0].training


def test_nan_is_not_equivariant():
    with pytest.raises(AssertionError):
        ad.assert_equivariant(lambda x: x * float("nan"), ad.known.cyclic(4), torch.rand(1, 1, 5, 5))


def test_wrong_input(waves):
    with pytest.raises(InputError, match="`radius` must leave some pixels"):
        field_error(nn.Identity(), waves(1, (8, 8)), TURN, radius=0.1)


Pair = namedtuple("Pair", "mean field")


@dataclass
class Answer:
    mean: torch.Tensor
    field: torch.Tensor
    nothing: None = None


@pytest.mark.parametrize("kind", [Pair, Answer, lambda mean, field: {"mean": mean, "field": (field, None)}])
def test_outputs_of_any_structure_are_checked_and_averaged(kind):
    x, group = torch.randn(8, 1, 5, 5, generator=stream(0)), ad.known.cyclic(4)
    ad.assert_equivariant(lambda x: kind(x.mean((1, 2, 3)), x > 0), group, x)
    with pytest.raises(AssertionError, match="output field"):
        ad.assert_equivariant(lambda x: kind(x.mean((1, 2, 3)), x.cumsum(-1) > 0), group, x)

    class Uneven(nn.Module):
        def forward(self, x):
            return kind(x[:, 0, 0, 0], x.cumsum(-1))

    averaged = ad.symmetrize(Uneven(), group)
    ad.assert_equivariant(averaged, group, x, tolerance=1e-5)
    assert type(averaged(x)) is type(kind(x, x))


def test_algebras_discoveries_and_arrays_are_taken():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    found = ad.discover(x, function=lambda p: p.square().sum(-1), cosets=False, progress=False)
    for group in (ad.known.so(2), found):
        ad.assert_equivariant(lambda p: p.square().sum(-1), group, x.numpy(), tolerance=0.02)
        with pytest.raises(AssertionError, match="not equivariant"):
            ad.assert_equivariant(lambda p: p[:, 0], group, x)
    with pytest.raises(InputError, match="`group` must be a group, an algebra or a discovery, got Tensor"):
        ad.assert_equivariant(lambda p: p[:, 0], torch.eye(2), x)


def test_outputs_without_tensors_are_refused():
    with pytest.raises(InputError, match="must return at least one tensor"):
        ad.assert_equivariant(lambda p: {}, ad.known.cyclic(4), torch.randn(4, 1, 5, 5))


def test_both_parts_of_complex_outputs_count():
    x = torch.randn(8, 1, 9, 9, generator=torch.Generator().manual_seed(0))

    def model(z):
        return torch.complex(z.square().sum((1, 2, 3)), z[:, 0, 0, 0])

    ad.assert_equivariant(lambda z: model(z).real.to(torch.complex64) * (1 + 1j), ad.known.cyclic(4), x)
    with pytest.raises(AssertionError, match="output imag"):
        ad.assert_equivariant(model, ad.known.cyclic(4), x)
