"""Small prediction problems."""

import pytest
import torch
from torch.nn import functional

from atlasd.geometry.atlas import Atlas

KERNEL = torch.tensor([[0.0, 1.0, 0.0], [2.0, -3.0, 1.0], [0.5, 1.0, 0.0]]) / 4


def correlate(x, kernel=KERNEL):
    """Each pixel becomes a weighted sum of its neighbours."""
    return functional.conv2d(functional.pad(x, (1, 1, 1, 1), mode="replicate"), kernel[None, None].to(x))


@pytest.fixture(scope="session")
def two_charts():
    return Atlas.at([(8, 8), (12, 14)], in_radius=6, out_radius=4)


@pytest.fixture(scope="session")
def rough():
    """White noise, so that every weight of a stencil is seen: `(60, 1, 22, 24)`."""
    return torch.randn(60, 1, 22, 24, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="session")
def stencil_map():
    return correlate
