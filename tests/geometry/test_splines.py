"""B-splines: scipy's coefficients and values, exact polynomials, every path, and derivatives."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid
from atlasd.geometry.splines import FieldSpline, pixel_slopes, spline_weights
from atlasd.runtime.random import stream

SHAPES = [(17,), (15, 18), (9, 8, 10)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
orders = pytest.mark.parametrize("order", [1, 3, 5])


def noise(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=stream(seed, "noise"), dtype=torch.float64).to(dtype)


def inner(shape, count=40, margin=0.0, seed=0):
    size = torch.tensor(shape, dtype=torch.float64)
    u = torch.rand(count, len(shape), generator=stream(seed, "points"), dtype=torch.float64)
    return margin + u * (size - 1 - 2 * margin)


@orders
@pytest.mark.parametrize("shape", [(60,), (50, 53), (36, 35, 34)], ids=str)
def test_values_are_those_of_scipy(shape, order):
    """Far from the edge, beyond which scipy continues fields otherwise: that fades by 0.43 with each pixel."""
    x, d, far = noise(*shape), len(shape), 14
    g = torch.matrix_exp(0.3 * noise(d, d, seed=1)).numpy()
    wanted = tuple(s - 4 for s in shape)
    centre = (np.array(shape) - 1) / 2
    offset = centre - g @ ((np.array(wanted) - 1) / 2)
    expected = ndimage.affine_transform(x.numpy(), g, offset, output_shape=wanted, order=order, mode="mirror")
    points = pixel_grid(wanted, dtype=torch.float64) @ torch.from_numpy(g).mT + torch.from_numpy(centre)
    inside = ((points >= far) & (points <= torch.tensor(shape) - 1 - far)).all(-1)
    assert inside.sum() > 20
    found = FieldSpline(x[None], dimensions=d, order=order).at(points[inside])[0]
    np.testing.assert_allclose(found.numpy(), expected.reshape(-1)[inside.numpy()], atol=5e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_every_kind_of_float(dtype):
    x = noise(2, 12, 12)
    found = FieldSpline(x.to(dtype)).at(inner((12, 12)))
    rounding = 40 * torch.finfo(dtype).eps
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), FieldSpline(x).at(inner((12, 12))), atol=rounding, rtol=0)


@shapes
def test_cubics_are_exact_up_to_the_edge(shape):
    def cubic(p):
        return 1 + (p**3 / 100).sum(-1) - (p[..., 0] * p[..., -1]) / 10

    d = len(shape)
    corner = torch.tensor([(s - 1) / 2 for s in shape], dtype=torch.float64)
    field = cubic(pixel_grid(shape, dtype=torch.float64) + corner).reshape(1, *shape)
    points = inner(shape)
    torch.testing.assert_close(FieldSpline(field, dimensions=d).at(points)[0], cubic(points))


def test_waves_near_the_edge(waves):
    """Waves of 12 pixels or longer, half a pixel and more inside."""
    points = inner((25, 25), count=400, margin=0.5)
    fine = waves(20, (73, 73), length=36.0, dtype=torch.float64)
    found = FieldSpline(fine[..., ::3, ::3]).at(points)
    assert (found - FieldSpline(fine).at(3 * points)).square().mean().sqrt() < 3e-4


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (2, 3), (4, 4)])
def test_small_fields(shape):
    x = noise(2, 1, *shape)
    pixels = pixel_grid(shape, dtype=torch.float64) + torch.tensor([(s - 1) / 2 for s in shape])
    spline = FieldSpline(x)
    assert torch.equal(spline.at(pixels), x.flatten(-2))
    torch.testing.assert_close(spline.with_gradient(pixels)[0], x.flatten(-2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("fill", ["border", "zeros"])
def test_leading_axes_broadcast(fill, dtype):
    x = noise(3, 2, 4, 9, 10, dtype=dtype)  # (B, K, C, *S)
    sets = torch.stack([inner((9, 10), count=7, margin=-1.5, seed=s) for s in range(6)])
    spline = FieldSpline(x, fill=fill)

    def one(points, b, k):
        return FieldSpline(x[b, k], fill=fill).at(points)

    cases = {
        (7, 2): lambda m, b, k: sets[0],
        (6, 1, 1, 7, 2): lambda m, b, k: sets[m],
        (3, 2, 7, 2): lambda m, b, k: sets[2 * b + k],
        (1, 2, 7, 2): lambda m, b, k: sets[k],
        (3, 1, 2, 7, 2): lambda m, b, k: sets[2 * m + k],
    }
    points = {
        (7, 2): sets[0],
        (6, 1, 1, 7, 2): sets[:, None, None],
        (3, 2, 7, 2): sets.reshape(3, 2, 7, 2),
        (1, 2, 7, 2): sets[None, :2],
        (3, 1, 2, 7, 2): sets.reshape(3, 1, 2, 7, 2),
    }
    for shape, pick in cases.items():
        assert points[shape].shape == shape
        found = spline.at(points[shape])
        elements = shape[0] if len(shape) == 5 else 1
        lead = (elements,) if len(shape) == 5 else ()
        assert found.shape == (*lead, 3, 2, 4, 7)
        found = found.reshape(elements, 3, 2, 4, 7)
        for m in range(elements):
            for b in range(3):
                for k in range(2):
                    torch.testing.assert_close(found[m, b, k], one(pick(m, b, k), b, k))


def test_many_points_go_in_parts():
    x, points = noise(3, 2, 9, 9), inner((9, 9), count=12_000).reshape(6, 1, 2000, 2)
    few = torch.stack([FieldSpline(x).at(one[0]) for one in points])
    torch.testing.assert_close(FieldSpline(x).at(points), few)
    torch.testing.assert_close(FieldSpline(x.requires_grad_()).at(points).detach(), few)


def test_no_points():
    assert FieldSpline(noise(3, 2, 6, 6)).at(torch.zeros(0, 2)).shape == (3, 2, 0)
    assert FieldSpline(noise(3, 2, 6, 6)).at(torch.zeros(0, 1, 4, 2)).shape == (0, 3, 2, 4)
    assert FieldSpline(noise(0, 2, 6, 6)).at(torch.zeros(5, 2)).shape == (0, 2, 5)


@orders
@pytest.mark.parametrize("fill", ["border", "zeros"])
def test_differentiable_in_points_and_values(order, fill):
    x = noise(2, 1, 7, 8).requires_grad_()
    points = inner((7, 8), count=6, margin=-0.7, seed=3).reshape(2, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, p: FieldSpline(x, order=order, fill=fill).at(p), (x, points))


@shapes
@pytest.mark.parametrize("order", [1, 5])
@pytest.mark.parametrize("fill", ["border", "zeros"])
def test_slopes_are_derivatives(shape, order, fill):
    d = len(shape)
    points = inner(shape, margin=-0.6)
    spline = FieldSpline(noise(2, 3, *shape), dimensions=d, order=order, fill=fill)
    value, slopes = spline.with_gradient(points)
    torch.testing.assert_close(value, spline.at(points))
    assert len(slopes) == d
    for slope, tangent in zip(slopes, torch.eye(d, dtype=torch.float64), strict=True):
        same, expected = torch.func.jvp(spline.at, (points,), (tangent.expand_as(points),))
        torch.testing.assert_close(same, value)
        torch.testing.assert_close(slope, expected)


@shapes
def test_slopes_at_pixels(shape):
    x, d = noise(2, 3, *shape), len(shape)
    pixels = pixel_grid(shape, dtype=torch.float64) + torch.tensor([(s - 1) / 2 for s in shape])
    _, slopes = FieldSpline(x, dimensions=d).with_gradient(pixels)
    for axis in range(d):
        torch.testing.assert_close(pixel_slopes(x, axis - d).flatten(-d), slopes[axis])
    one = torch.ones(3, 1)
    assert torch.equal(pixel_slopes(one, -1), torch.zeros(3, 1))


def test_batches_of_function_transforms():
    x, points = noise(2, 8, 8), torch.stack([inner((8, 8), count=5, seed=s) for s in range(3)])
    found = torch.func.vmap(lambda p: FieldSpline(x).at(p))(points)
    torch.testing.assert_close(found, FieldSpline(x[None]).at(points[:, None])[:, 0])


@orders
def test_weights_sum_to_one(order):
    u = torch.rand(20, generator=stream(0, "u"), dtype=torch.float64)
    weights = spline_weights(u, order)
    assert weights.shape == (20, order + 1) and (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(20, dtype=torch.float64))
    torch.testing.assert_close(weights.flip(-1), spline_weights(1 - u, order))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 2}, "`order` must be 1, 3 or 5, got 2"),
        ({"fill": "wrap"}, "`fill` must be 'border' or 'zeros', got 'wrap'"),
    ],
)
def test_unknown_options(options, message):
    with pytest.raises(InputError, match=message):
        FieldSpline(torch.zeros(1, 4, 4), **options)
