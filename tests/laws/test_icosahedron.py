"""The laws of the icosahedral grid: layers commute with its 60 rotations, constants stay, harmonics go over exactly."""

import pytest
import torch
from torch import nn

from atlasd.nn import (
    HexConv,
    HexUpsample,
    IcosahedralProjection,
    IcosahedralUNet,
    icosahedral_grid,
)
from atlasd.runtime.random import stream

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
KERNELS = [{}, {"flat": True}, {"flat": True, "own": True}]
KERNEL_NAMES = ["hexagon", "flat", "own"]
FIELDS = ("scalar", "regular")


class FixedDirections(nn.Module):
    """The negative control: a weight for each direction of each vertex's frame, in one orientation only."""

    def forward(self, x):
        grid = icosahedral_grid(2)
        near = torch.cat([x[..., None], x[..., grid.neighbours] * grid.shares.to(x)], -1)
        return near @ torch.tensor([1.0, 2.0, -1.0, 0.5, 0.0, -2.0, 1.0]).to(x)


def field(kind, resolution, channels=2, dtype=torch.float32):
    directions = (6,) if kind == "regular" else ()
    shape = (2, channels, *directions, len(icosahedral_grid(resolution)))
    return torch.randn(shape, generator=stream(0, "field"), dtype=torch.float64).to(dtype)


def worst(layer, x, resolution, outgoing):
    """The largest relative error over all 60 rotations."""
    before, after = icosahedral_grid(resolution), icosahedral_grid(outgoing)
    with torch.no_grad():
        y = layer(x)
        errors = [layer(before.rotate(x, r)) - after.rotate(y, r) for r in before.rotations]
    return float(torch.stack([e.abs().max() for e in errors]).max() / y.abs().max())


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=KERNEL_NAMES)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("out_field", FIELDS)
@pytest.mark.parametrize("in_field", FIELDS)
def test_convolutions_commute_with_the_rotations(in_field, out_field, stride, kernel, dtype):
    options = {"in_field": in_field, "out_field": out_field, "generator": stream(0, "weights")}
    layer = HexConv(2, 3, resolution=2, stride=stride, **kernel, **options).to(dtype)
    assert worst(layer, field(in_field, 2, dtype=dtype), 2, 3 - stride) < TOLERANCE[dtype]


def test_upsampling_commutes_with_the_rotations():
    assert worst(HexUpsample(resolution=2), field("scalar", 2), 2, 3) < 1e-5


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("kernel", KERNELS, ids=KERNEL_NAMES)
def test_the_network_commutes_with_the_rotations(kernel, training):
    network = IcosahedralUNet(2, 3, channels=(4, 8, 8), resolution=2, **kernel, generator=stream(0, "weights"))
    x = field("scalar", 2)
    network(x)
    assert worst(network.train(training), x, 2, 2) < 1e-5


def test_several_regular_layers_commute_with_the_rotations():
    options = {"in_field": "regular", "generator": stream(0, "weights")}
    network = nn.Sequential(
        HexConv(2, 4, resolution=3, out_field="regular", generator=stream(1, "weights")),
        nn.ReLU(),
        HexConv(4, 4, resolution=3, stride=2, out_field="regular", **options),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        HexConv(4, 3, resolution=2, **options),
    )
    assert worst(network, field("scalar", 3), 3, 2) < 1e-5


def test_weights_of_fixed_directions_do_not_commute():
    assert worst(FixedDirections(), field("scalar", 2), 2, 2) > 0.1


def test_a_rotation_that_is_not_of_the_icosahedron_is_no_symmetry_of_the_grid():
    grid = icosahedral_grid(2)
    angle = torch.tensor(0.3, dtype=torch.float64)
    turn = torch.eye(3, dtype=torch.float64)
    turn[0, 0] = turn[1, 1] = angle.cos()
    turn[0, 1], turn[1, 0] = -angle.sin(), angle.sin()
    nearest = torch.cdist(grid.points @ turn.mT, grid.points).amin(-1)
    assert float(nearest.max()) > 0.05
    for r in grid.rotations:
        moved = grid.points[grid.permutation(r)]
        torch.testing.assert_close(moved, grid.points @ r.mT)


@pytest.mark.parametrize("in_field", FIELDS)
@pytest.mark.parametrize("out_field", FIELDS)
def test_constants_stay_constants(in_field, out_field):
    x = torch.ones_like(field(in_field, 3))
    layer = HexConv(2, 3, resolution=3, in_field=in_field, out_field=out_field, generator=stream(0, "weights"))
    with torch.no_grad():
        y = layer(x)
    torch.testing.assert_close(y, y[..., :1].expand_as(y), atol=1e-5, rtol=1e-5)


def test_upsampling_keeps_constants():
    y = HexUpsample(resolution=3)(torch.full((1, 1, 642), 3.5))
    torch.testing.assert_close(y, torch.full_like(y, 3.5))


GRIDS = {
    "poles": (torch.linspace(90, -90, 49), torch.arange(72) * 5.0),
    "no poles, upwards": (torch.linspace(-87.5, 87.5, 36), torch.arange(72) * 5.0 + 2.5),
    "from -180": (torch.linspace(90, -90, 49), torch.arange(72) * 5.0 - 180),
}


def harmonic(points, degree):
    """Some spherical harmonic of a degree: the real part of (x + iy)^m times a function of z."""
    x, y, z = points.unbind(-1)
    functions = [torch.ones_like(x), y, x * z, x * (5 * z * z - 1), (x * x - y * y) * (7 * z * z - 1)]
    return functions[degree]


def on_map(rows, columns, degree):
    rows, columns = torch.deg2rad(rows.double())[:, None], torch.deg2rad(columns.double())[None]
    points = torch.stack([rows.cos() * columns.cos(), rows.cos() * columns.sin(), rows.sin() + 0 * columns], -1)
    return harmonic(points, degree)


@pytest.mark.parametrize("degree", range(4))
@pytest.mark.parametrize("name", GRIDS)
def test_low_harmonics_go_over_exactly(name, degree):
    projection = IcosahedralProjection(3, *GRIDS[name])
    field, exact = on_map(*GRIDS[name], degree), harmonic(projection.grid.points, degree)
    torch.testing.assert_close(projection.to_grid(field), exact, atol=1e-10, rtol=0)
    torch.testing.assert_close(projection.to_map(exact), field, atol=1e-10, rtol=0)


@pytest.mark.parametrize("name", GRIDS)
def test_interpolation_alone_is_of_second_order(name):
    errors = []
    for resolution in (3, 4):
        projection = IcosahedralProjection(resolution, *GRIDS[name], degree=-1)
        values = harmonic(projection.grid.points, 4)
        errors.append(float((projection.to_map(values) - on_map(*GRIDS[name], 4)).abs().max()))
    assert 1e-4 < errors[1] < errors[0] / 3.3  # the control: not exact, and four times better on the finer grid


@pytest.mark.parametrize("name", GRIDS)
def test_higher_harmonics_are_near(name):
    projection = IcosahedralProjection(3, *GRIDS[name])
    exact = harmonic(projection.grid.points, 4)
    error = (projection.to_grid(on_map(*GRIDS[name], 4)) - exact).abs().max() / exact.abs().max()
    assert 1e-6 < float(error) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("kernel", KERNELS, ids=KERNEL_NAMES)
def test_the_papers_network_commutes_with_the_rotations(kernel):
    network = IcosahedralUNet(**kernel, generator=stream(0, "weights")).eval()
    assert worst(network, field("scalar", 6, channels=16)[:1], 6, 6) < 1e-5
