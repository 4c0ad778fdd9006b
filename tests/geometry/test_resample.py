"""Fields between their pixels, as mixtures of a few, and under stencils."""

import pytest
import torch
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.geometry.resample import FieldSpan, convolve, frame_of, pixel_grid, resample, span_of
from atlasd.geometry.splines import FieldSpline
from atlasd.runtime.random import stream


@pytest.mark.parametrize("samples", [1, 5, 131])
@pytest.mark.parametrize("channels, outputs", [(1, 1), (2, 1), (2, 3)])
@pytest.mark.parametrize("space", [(9, 8), (6, 5, 7)])
def test_charts_have_stencils_of_their_own(samples, channels, outputs, space):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(samples, 3, channels, *space, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, outputs, channels, *[3] * len(space), generator=generator, dtype=torch.float64)
    bias = torch.randn(3, outputs, generator=generator, dtype=torch.float64)
    run = functional.conv2d if len(space) == 2 else functional.conv3d
    wanted = torch.stack([run(x[:, k], weight[k], bias[k]) for k in range(3)], dim=1)
    torch.testing.assert_close(convolve(x, weight, bias), wanted)
    torch.testing.assert_close(convolve(x, weight[:1], bias[:1])[:, 2], run(x[:, 2], weight[0], bias[0]))


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


def fields(rank: int, *lead: int, space=(9, 8)) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(rank, *space, generator=generator)
    return torch.tensordot(torch.randn(*lead, rank, generator=generator), basis, 1)


@pytest.mark.parametrize("space", [(9, 8), (6, 5, 7)])
def test_mixtures_are_read_as_the_fields_themselves(space):
    x = fields(4, 20, 3, 2, space=space)
    span, spline = span_of(FieldSpline(x, len(space))), FieldSpline(x, len(space))
    assert isinstance(span, FieldSpan) and span.mixture.shape == (20, 3, 2, 4)
    points = 1 + 3 * torch.rand(5, 1, 1, 11, len(space), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(span.at(points), spline.at(points), atol=2e-4, rtol=1e-4)
    # Where points differ from chart to chart, the fields themselves are read.
    apart = points.expand(-1, 1, 3, -1, -1)
    torch.testing.assert_close(span.at(apart), spline.at(apart))


def test_fields_that_are_no_mixtures_of_few_stay():
    x = fields(60, 20, 1, 1)
    assert isinstance(span_of(FieldSpline(x)), FieldSpline)


def test_frame_leaves_out_less_than_interpolation_does():
    rows = fields(5, 200).flatten(1).double() + 1e-3 * fields(40, 200).flatten(1).double()
    frame = frame_of(rows, 60)
    assert frame is not None and frame.shape[1] <= 45
    left = rows - rows @ frame @ frame.mT
    assert left.norm() <= 1.01e-5 * rows.norm()
    assert frame_of(rows, 20) is None
