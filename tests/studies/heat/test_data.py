"""The heat data: the simulator of the paper, its fields and its atlases."""

import numpy as np
import pytest
import torch

from atlasd.errors import InputError
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import ATLASES, BLOCK, SIZE, WALL, heat_atlas, heat_fields, heat_rate, simulate_heat


def naive(u, steps, source=True):
    """The paper's simulator as written: gradients of gradients by numpy, walls and block set after each step."""
    u = u.copy()
    rows, columns = (slice(int(lo * s), int(hi * s)) for (lo, hi), s in zip(BLOCK, u.shape, strict=True))

    def fix():
        u[0] = u[-1] = WALL
        u[:, 0] = u[:, -1] = WALL
        if source:
            u[rows, columns] = WALL

    fix()
    for _ in range(steps):
        second = [np.gradient(np.gradient(u, 0.1, axis=axis), 0.1, axis=axis) for axis in (0, 1)]
        u += 0.01 * (second[0] + second[1])
        fix()
    return u


def fields(samples, initial="isotropic", seed=0):
    return heat_fields(samples, initial=initial, generator=stream(seed, "heat"))


@pytest.mark.parametrize("source", [True, False])
@pytest.mark.parametrize(("height", "width"), [(128, 128), (21, 34)])
def test_agrees_with_numpy(height, width, source):
    x = torch.randn(2, 1, height, width, generator=stream(0, "heat"), dtype=torch.float64)
    y = simulate_heat(x, steps=5, source=source)
    for one, other in zip(x, y, strict=True):
        expected = naive(one[0].numpy(), 5, source)
        # The walls are stored in single precision where torch.where meets a Python number.
        np.testing.assert_allclose(other[0].numpy(), expected, atol=1e-6)


def test_fifty_steps_in_single_precision():
    x = fields(1, "separable")
    np.testing.assert_allclose(simulate_heat(x)[0, 0].numpy(), naive(x[0, 0].double().numpy(), 50), atol=1e-4)


def test_does_not_touch_its_input():
    x = fields(3)
    before = x.clone()
    simulate_heat(x, steps=2)
    assert torch.equal(x, before)


def test_walls_and_block_keep_their_value():
    y = simulate_heat(fields(2), steps=3)
    walls = torch.cat([y[..., 0, :], y[..., -1, :], y[..., 0], y[..., -1]], -1)
    assert torch.equal(walls, torch.full_like(walls, WALL))
    inside = y[..., 12:38, 25:64]
    assert torch.equal(inside, torch.full_like(inside, WALL))
    assert not torch.allclose(simulate_heat(fields(2), steps=3, source=False)[..., 12:38, 25:64], inside, atol=0.1)


def test_chunks_do_not_matter():
    x = fields(5)
    assert torch.equal(simulate_heat(x, steps=3, chunk=2), simulate_heat(x, steps=3))


@pytest.mark.parametrize("initial", ["separable", "isotropic"])
def test_fields_are_seeded(initial):
    a = fields(4, initial)
    assert a.shape == (4, 1, SIZE, SIZE) and a.dtype == torch.float32 and a.isfinite().all()
    assert torch.equal(a, fields(4, initial)) and not torch.equal(a, fields(4, initial, seed=1))


def test_separable_fields_are_sums_of_rows_and_columns():
    x = fields(4, "separable")
    mixed = x[..., 1:, 1:] - x[..., 1:, :-1] - x[..., :-1, 1:] + x[..., :-1, :-1]
    assert mixed.abs().max() < 1e-5
    x = fields(4, "isotropic")
    mixed = x[..., 1:, 1:] - x[..., 1:, :-1] - x[..., :-1, 1:] + x[..., :-1, :-1]
    assert mixed.abs().max() > 1e-3


@pytest.mark.parametrize("name", ATLASES)
def test_atlases_fit(name):
    atlas = heat_atlas(name)
    atlas.check((SIZE, SIZE))
    assert len(atlas) == {"nineteen": 19, "shadow": 20}.get(name, 3)
    assert sum(chart.distortion is not None for chart in atlas.charts) == (name == "sheared")


def test_most_charts_see_no_block():
    rows, columns = (slice(int(lo * SIZE), int(hi * SIZE)) for lo, hi in BLOCK)
    block = torch.zeros(1, 1, SIZE, SIZE)
    block[..., rows, columns] = 1.0
    patches = heat_atlas("shadow").output_patches(block).flatten(2).amax(-1)
    assert patches[:, :-1].sum() == 0 and patches[:, -1] == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: heat_atlas("four"), "`atlas` must be one of nineteen, three, sheared, shadow, got 'four'"),
        (lambda: fields(2, "waves"), "`initial` must be 'separable' or 'isotropic', got 'waves'"),
        (lambda: simulate_heat(torch.zeros(2, 2, 9, 9)), r"`x` must have shape \(N, 1, H, W\)"),
        (lambda: simulate_heat(torch.zeros(9, 9)), r"`x` must have shape \(N, 1, H, W\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_the_rate_is_the_laplacian_outside_the_block():
    u, v = torch.meshgrid(torch.arange(128.0).double(), torch.arange(128.0).double(), indexing="ij")
    x = torch.sin(0.12 * u + 0.08 * v)[None, None]
    inner = (..., slice(5, -5), slice(5, -5))
    exact = -(0.12**2 + 0.08**2) * x / 0.1**2
    torch.testing.assert_close(heat_rate(x, source=False)[inner], exact[inner], atol=1e-6, rtol=0)
    held = heat_rate(x)
    assert held[0, 0, 20, 40] == 0 and torch.equal(
        held[..., 70:120, 70:120], heat_rate(x, source=False)[..., 70:120, 70:120]
    )
    assert not torch.equal(held, heat_rate(x, source=False))
