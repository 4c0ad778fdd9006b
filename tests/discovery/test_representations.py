"""How channels mix under rotations is found."""

import pytest
import torch
from torch.nn import functional

import atlasd as ad
from atlasd.discovery.prepare import prepare
from atlasd.discovery.representations import Weights, _check_memory, _mixing
from atlasd.errors import InputError
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream

ATLAS = ad.Atlas.at([(15, 15)], in_radius=13, out_radius=5)


def fields(samples, channels, seed=0):
    p = torch.arange(-7.0, 8.0)
    bell = torch.exp(-(p[:, None] ** 2 + p[None] ** 2) / 12.5)
    noise = torch.randn(samples * channels, 1, 45, 45, generator=stream(seed, "fields"))
    return functional.conv2d(noise, bell[None, None] / bell.sum() * 5).reshape(samples, channels, 31, 31)


def slope(field, axis):
    return torch.gradient(field, dim=axis)[0]


def vorticity(x):
    return (slope(x[:, 1], -2) - slope(x[:, 0], -1))[:, None]


def advection(x):
    return (x[:, 1] * slope(x[:, 0], -2) + x[:, 2] * slope(x[:, 0], -1))[:, None]


def preferred(x):
    return vorticity(x) + 2 * slope(slope(x[:, 0], -2), -2)[:, None] + slope(slope(x[:, 1], -2), -1)[:, None]


def test_names():
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    both = Weights(torch.block_diag(turn, torch.zeros(1, 1), 2 * turn))
    assert both.values == (0, 1, 2) and both.name == "scalar + vector + symmetric tensor without trace"
    torch.testing.assert_close(Weights(turn)(torch.matrix_exp(0.7 * turn)), torch.matrix_exp(0.7 * turn))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 0, 2, 4, 1], [4, 3, 2, 1, 0]])
def test_reflections_of_channels_in_any_order(order):
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double()
    matrix = torch.block_diag(turn, torch.zeros(1, 1).double(), 2 * turn)[order][:, order]
    made = Weights(matrix).mirrored([torch.pi, 0.0, 0.0])
    assert made.name == "pseudo-scalar + vector + symmetric tensor without trace"
    wanted = torch.diag(torch.tensor([1.0, -1.0, -1.0, 1.0, -1.0]).double()[order])
    torch.testing.assert_close(made.mirror, wanted)
    # A homomorphism: the product of a rotation and a reflection, and that of two reflections.
    flip = torch.diag(torch.tensor([1.0, -1.0]).double())
    a, b = torch.matrix_exp(0.7 * turn) @ flip, flip @ torch.matrix_exp(-1.9 * turn)
    torch.testing.assert_close(made(a) @ made(b), made(a @ b))
    torch.testing.assert_close(made(a) @ made(torch.matrix_exp(turn)), made(a @ torch.matrix_exp(turn)))


@pytest.mark.slow
def test_winds_without_names():
    x = fields(24, 2)
    found = ad.discover_representation(x, function=vorticity, atlas=ATLAS)
    assert found.symmetries.group.name == "O(2)"
    assert found.inputs.name == "vector" and found.outputs.name == "pseudo-scalar"


def chiral(x):
    """A function of vorticity and divergence that no reflection of their plane leaves as it is, up to a sign."""
    curl, spread = vorticity(x), slope(x[:, :1], -2) + slope(x[:, 1:], -1)
    return curl / curl.std() + ((curl + spread) / curl.std()) ** 2


@pytest.mark.slow
def test_a_sense_of_rotation_has_no_reflection():
    x = fields(24, 2)
    found = ad.discover_representation(x, function=chiral, atlas=ATLAS)
    assert found.symmetries.group.name == "SO(2)" and found.outputs.name == "scalar"


@pytest.mark.slow
def test_temperature_and_winds():
    found = ad.discover_representation(fields(24, 3), function=advection, atlas=ATLAS)
    assert found.inputs.name == "scalar + vector" and found.symmetries.verdict.symmetric


@pytest.mark.slow
def test_a_preferred_axis():
    found = ad.discover_representation(fields(24, 2), function=preferred, atlas=ATLAS)
    assert found.inputs is None and not found.symmetries.verdict.symmetric


def shallow_water(x):
    """Pressure and winds to how they change, rotating winds by the place itself."""
    p, u, v = x.unbind(1)
    change = slope(u, -2) + slope(v, -1), 0.6 * v - slope(p, -2), -0.6 * u - slope(p, -1)
    return torch.stack(change, dim=1)


def test_what_looks_at_one_pixel_mixes_channels_too():
    problem, _ = prepare(fields(24, 3), function=shallow_water, atlas=ATLAS, seed=0, progress=Silent())
    assert [w.values for w in _mixing(problem).sides] == [(0, 1)] * 2  # the sense of rotation has no reflection

    def broken(x):
        return shallow_water(x) + 0.5 * x[:, [1, 0, 0]]

    problem, _ = prepare(fields(24, 3), function=broken, atlas=ATLAS, seed=0, progress=Silent())
    assert _mixing(problem).left > 0.2


def test_too_many_channels():
    with pytest.raises(InputError, match=r"18000000 columns, and .* channels of each would fit"):
        _check_memory(3000, 3000, 2**24)


def test_bad_input():
    with pytest.raises(InputError, match="must be fields"):
        ad.discover_representation(torch.randn(30, 2), torch.randn(30))
