"""Fields are shifted by homogeneous matrices."""

import torch

import atlasd as ad
from atlasd.runtime.random import stream

SHIFT = ad.GridAction(translations=True, unit=2.0)


def matrix(generator):
    return torch.matrix_exp(torch.as_tensor(generator, dtype=torch.float64))


def test_a_shift_by_whole_pixels():
    x = torch.randn(2, 1, 9, 9, generator=stream(0, "x"), dtype=torch.float64)
    moved = SHIFT.on_input(matrix([[0, 0, 1.0], [0, 0, -0.5], [0, 0, 0]]), x)
    torch.testing.assert_close(moved[..., 2:, :-1], x[..., :-2, 1:])


def test_elements_compose_and_generators_are_their_slopes(waves):
    x = waves(2, (25, 25), dtype=torch.float64)
    a, b = torch.randn(2, 3, 3, generator=stream(1, "a"), dtype=torch.float64) * 0.1
    a[-1], b[-1] = 0.0, 0.0
    inner = (..., slice(8, -8), slice(8, -8))
    twice = SHIFT.on_input(matrix(a), SHIFT.on_input(matrix(b), x))
    torch.testing.assert_close(twice[inner], SHIFT.on_input(matrix(a) @ matrix(b), x)[inner], atol=2e-3, rtol=0)
    slope = (SHIFT.on_input(matrix(0.01 * a), x) - SHIFT.on_input(matrix(-0.01 * a), x)) / 0.02
    torch.testing.assert_close(SHIFT.input_generator(a, x)[inner], slope[inner], atol=3e-3, rtol=0)


def test_channels_turn_with_the_linear_part(waves):
    x = waves(2, (25, 25), channels=2, dtype=torch.float64)
    wind = ad.GridAction(rho_in=lambda g: g)
    both = ad.GridAction(rho_in=lambda g: g, translations=True)
    turn = matrix([[0, -0.4], [0.4, 0]])
    torch.testing.assert_close(both.on_input(torch.block_diag(turn, torch.ones(1, 1)), x), wind.on_input(turn, x))
