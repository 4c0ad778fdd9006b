"""Small problems with exact answers."""

import pytest
import torch
from torch.nn import functional

from atlasd.discovery.prepare import prepare
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream

TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


def convolve(x, kernel):
    """Each pixel becomes a weighted sum of its neighbours, with the border repeated."""
    reach = kernel.shape[-1] // 2
    return functional.conv2d(functional.pad(x, (reach,) * 4, mode="replicate"), kernel[None, None].to(x))


def blur(x):
    """A round Gaussian, minus the centre, so that it is no map of the same pixel."""
    p = torch.arange(-2.0, 3.0)
    kernel = torch.exp(-(p[:, None] ** 2 + p[None, :] ** 2) / 2)
    return convolve(x, kernel / kernel.sum()) - 0.5 * x


def generic(x):
    """A stencil without any symmetry: a slope, a curvature and a twist in unrelated directions."""
    kernel = torch.zeros(5, 5)
    kernel[2, 3], kernel[2, 1], kernel[1, 2] = 1.0, -1.0, 0.7
    kernel[0, 0], kernel[4, 1], kernel[3, 4] = 1.5, -1.1, 0.9
    return convolve(x, kernel)


def problem_of(function, x, **options):
    """The problem that a search is given for a function."""
    return prepare(x, function=function, seed=0, progress=Silent(), **options)[0]


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=stream(seed, "normal"), dtype=torch.float64).to(dtype)


def degrees(found, expected):
    """Angle between two algebras."""
    return torch.rad2deg(torch.tensor(found.distance(expected), dtype=torch.float64).clamp_max(1.0).asin()).item()


@pytest.fixture(scope="session")
def exact():
    """The helpers above, by name."""

    class Exact:
        turn = TURN
        blur = staticmethod(blur)
        generic = staticmethod(generic)
        problem_of = staticmethod(problem_of)
        normal = staticmethod(normal)
        degrees = staticmethod(degrees)

    return Exact
