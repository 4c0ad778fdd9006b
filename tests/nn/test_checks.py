"""The measure and the assertion, on modules and on functions."""

import pytest
import torch
from torch import nn

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction
from atlasd.nn import field_error

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


def test_nan_is_not_equivariant():
    with pytest.raises(AssertionError):
        ad.assert_equivariant(lambda x: x * float("nan"), ad.known.cyclic(4), torch.rand(1, 1, 5, 5))


def test_wrong_input(waves):
    with pytest.raises(InputError, match="`radius` must leave some pixels"):
        field_error(nn.Identity(), waves(1, (8, 8)), TURN, radius=0.1)
