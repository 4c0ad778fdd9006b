"""Stencils of fields: the same as torch's convolutions, in any packing."""

import pytest
import torch
from torch.nn import functional

from atlasd.geometry.convolution import convolve


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
