"""The trivial models, and skill against them."""

import pytest
import torch

from atlasd.prediction.trivial import Batches, centre_crop, chart_skill, fit_pointwise, pooled_skill


def batches(x, y):
    return Batches(lambda index: (x[index], y[index]), torch.arange(len(x)), 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pointwise_part_of_a_cubic_is_the_cubic(dtype):
    x = torch.randn(24, 2, 1, 9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    inner = centre_crop(x, (5, 5))
    y = torch.cat([1 + 2 * inner - inner**3, inner**2], dim=2)
    part = fit_pointwise(batches(x, y))
    assert part.coefficients.shape == (2, 4, 2)
    torch.testing.assert_close(part(x, (5, 5)), y, atol=1e-4, rtol=1e-4)


def test_pointwise_part_of_a_difference_is_nothing():
    x = torch.randn(64, 1, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    y = x[..., 2:7, 3:8] - x[..., 2:7, 1:6]
    assert fit_pointwise(batches(x, y))(x, (5, 5)).square().mean() < 0.02 * y.square().mean()


def test_weights_of_pixels_count():
    x = torch.randn(24, 1, 1, 3, 3, generator=torch.Generator().manual_seed(0))
    y = x.clone()
    y[..., 0, 0] = 50.0
    weight = torch.ones(3, 3)
    weight[0, 0] = 0.0
    fitted = fit_pointwise(batches(x, y), weight)(x, (3, 3))
    torch.testing.assert_close(fitted[..., 1:, :], y[..., 1:, :], atol=1e-4, rtol=1e-4)


def test_a_constant_channel_does_no_harm():
    x = torch.randn(24, 1, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    x[:, :, 1] = 4.0
    y = 3 * x[:, :, :1]
    torch.testing.assert_close(fit_pointwise(batches(x, y))(x, (3, 3)), y, atol=1e-4, rtol=1e-4)


def test_space():
    x = torch.randn(8, 1, 1, 5, 5, 5, generator=torch.Generator().manual_seed(0))
    inner = centre_crop(x, (3, 3, 3))
    torch.testing.assert_close(fit_pointwise(batches(x, inner))(x, (3, 3, 3)), inner, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("error", "constant", "pointwise", "skill"),
    [
        (0.1, 1.0, None, 0.9),
        (0.1, 1.0, 0.5, 0.8),
        (0.5, 1.0, 2.0, 0.5),
        (3.0, 1.0, None, -1.0),
        (0.0, 0.0, None, 0.0),  # a constant is already exact: nothing to be skilled at
        (0.0, 1.0, 0.0, 0.0),  # so is a pointwise map
    ],
)
def test_skill(error, constant, pointwise, skill):
    values = [None if v is None else torch.tensor([v], dtype=torch.float64) for v in (error, constant, pointwise)]
    assert chart_skill(*values).item() == pytest.approx(skill)


@pytest.mark.parametrize(("skills", "pooled"), [([0.5], 0.5), ([0.9, 0.8, -1.0], 0.8), ([0.0, 0.1, 0.8, 0.9], 0.8)])
def test_charts_over_an_obstacle_do_not_hide_the_others(skills, pooled):
    assert pooled_skill(torch.tensor(skills)) == pytest.approx(pooled)
