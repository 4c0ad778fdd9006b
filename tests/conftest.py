"""Shared by all tests: one thread each, the same random numbers, and smooth random fields."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.random import stream


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def same_numbers():
    """Every test draws the same numbers from the global generators, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def waves() -> Callable[..., Tensor]:
    """Makes sums of plane waves in random directions: `(N, C, *shape)`, by default 12 pixels long or longer."""

    def make(samples, shape, *, channels=1, length=12.0, seed=0, dtype=torch.float32, count=6):
        generator = stream(seed, "waves", *shape)
        d = len(shape)
        direction = torch.randn(samples, channels, count, d, generator=generator, dtype=torch.float64)
        direction = direction / direction.norm(dim=-1, keepdim=True)
        long = 1 + torch.rand(samples, channels, count, 1, generator=generator, dtype=torch.float64)
        phase = 2 * torch.pi * torch.rand(samples, channels, count, 1, generator=generator, dtype=torch.float64)
        angle = (2 * torch.pi / (length * long) * direction) @ pixel_grid(shape, dtype=torch.float64).mT + phase
        return (angle.cos().sum(2) / count**0.5).reshape(samples, channels, *shape).to(dtype)

    return make
