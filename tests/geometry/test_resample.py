"""Interpolation: exact where it claims to be, the same by every path, and differentiable."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid, resample
from atlasd.runtime.random import stream

kinds = pytest.mark.parametrize("interpolation", ["bilinear", "spline"])
fills = pytest.mark.parametrize("fill", ["border", "zeros"])


def inner_points(shape, count=50, margin=0.0, seed=0):
    size = torch.tensor(shape, dtype=torch.float64)
    u = torch.rand(count, len(shape), generator=stream(seed, "points"), dtype=torch.float64)
    return margin + u * (size - 1 - 2 * margin)


def polynomial(p, degree):
    """One polynomial of each axis, and of their product."""
    value = 1 + sum((i + 1) * p[..., i] ** degree for i in range(p.shape[-1]))
    return value + (p[..., 0] * p[..., 1]) ** (degree if degree == 1 else 1)


@pytest.mark.parametrize(("interpolation", "degree"), [("bilinear", 1), ("spline", 3)])
@pytest.mark.parametrize("shape", [(9, 10), (8, 7, 9)])
def test_reproduces_polynomials(shape, interpolation, degree):
    corner = torch.tensor([(s - 1) / 2 for s in shape], dtype=torch.float64)
    nodes = pixel_grid(shape, dtype=torch.float64) + corner
    field = polynomial(nodes, degree).reshape(1, 1, *shape)
    points = inner_points(shape)
    found = resample(field, points, interpolation=interpolation)
    torch.testing.assert_close(found[0, 0], polynomial(points, degree))


@kinds
@fills
def test_pixels_are_themselves(interpolation, fill):
    field = torch.randn(2, 3, 6, 7, generator=stream(0, "field"))
    points = pixel_grid((6, 7)) + torch.tensor([2.5, 3.0])
    found = resample(field, points, interpolation=interpolation, fill=fill)
    assert torch.equal(found, field.flatten(-2))


@kinds
@fills
@pytest.mark.parametrize("shape", [(8, 9), (6, 7, 8)])
def test_every_path_agrees(shape, interpolation, fill):
    options = {"interpolation": interpolation, "fill": fill}
    field = torch.randn(3, 2, *shape, generator=stream(0, "field"), dtype=torch.float64)
    points = inner_points(shape, count=20, margin=-1.5)  # some lie outside
    shared = resample(field, points, **options)
    alone = torch.stack([resample(one[:1], points, **options)[0] for one in field[:, :1]])
    recorded = resample(field, points.clone().requires_grad_(), **options)
    traced = torch.func.vmap(lambda p: resample(field, p, **options))(points[None])[0]
    apart = resample(field, points.expand(3, *points.shape), **options)
    torch.testing.assert_close(recorded.detach(), shared)
    torch.testing.assert_close(traced, shared)
    torch.testing.assert_close(apart, shared)
    torch.testing.assert_close(alone, shared[:, 0])


@kinds
def test_outside(interpolation):
    field = torch.ones(1, 1, 5, 5)
    far = torch.tensor([[-9.0, 2.0], [2.0, 30.0]])
    assert torch.equal(resample(field, far, interpolation=interpolation, fill="zeros"), torch.zeros(1, 1, 2))
    assert torch.allclose(resample(field, far, interpolation=interpolation, fill="border"), torch.ones(1, 1, 2))


@kinds
def test_differentiable_in_positions_and_values(interpolation):
    field = torch.randn(1, 1, 6, 6, generator=stream(0, "field"), dtype=torch.float64, requires_grad=True)
    points = (torch.tensor([[2.3, 2.6], [1.2, 3.9]], dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda f, p: resample(f, p, interpolation=interpolation), (field, points))


@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (2, 3, 4)])
def test_pixel_grid_is_centred(shape):
    grid = pixel_grid(shape)
    assert grid.shape == (torch.tensor(shape).prod(), len(shape))
    torch.testing.assert_close(grid.mean(0), torch.zeros(len(shape)))
    torch.testing.assert_close(grid[-1], torch.tensor([(s - 1) / 2 for s in shape]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"interpolation": "nearest"}, "`interpolation` must be 'bilinear' or 'spline', got 'nearest'"),
        ({"fill": "wrap"}, "`fill` must be 'border' or 'zeros', got 'wrap'"),
    ],
)
def test_unknown_options(options, message):
    with pytest.raises(InputError, match=message):
        resample(torch.zeros(1, 1, 4, 4), torch.zeros(1, 2), **options)
