"""A U-Net on the icosahedral grid: gauge-equivariant under the six-fold turns, or flat for GL+(2)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor, nn

from atlasd.errors import InputError
from atlasd.nn.icosahedral_layers import HexConv, HexUpsample


class IcosahedralUNet(nn.Module):
    """Classes for every vertex from fields on the grid, down to coarser grids and up again.

    Each block is a convolution with hexagonal kernels, the mean over its six orientations, batch norm and ReLU (the
    last block has no ReLU). Blocks on the way down have stride 2 but for the first; on the way up fields are
    interpolated and put beside those of the way down. The sum over the six equal orientations ends it.

    With the channels of the paper and 16 variables it has 765,945 weights, and 111,321 if `flat`: 7 or 1 for each of
    109,104 pairs of channels, and for each of 739 channels a bias and the two numbers of its batch norm. Averaging
    before the nonlinearity leaves 2 of the 7 weights any effect: that of the centre and the mean of the ring.

    Arguments:
        in_channels: Variables that come in.
        classes: Scores that go out.
        channels: Of the blocks on the way down.
        resolution: Of the grid; at least the number of blocks down less one.
        flat: Whether all seven weights of a kernel are one: the model with GL+(2).
        own: Whether in a flat kernel the vertex itself counts by a number of its own for each channel that comes in.
        generator: The source of the first weights.

    Example:
        >>> network = IcosahedralUNet(resolution=6)
        >>> sum(p.numel() for p in network.parameters())
        765945
        >>> sum(p.numel() for p in IcosahedralUNet(resolution=6, flat=True).parameters())
        111321
    """

    def __init__(
        self,
        in_channels: int = 16,
        classes: int = 3,
        *,
        channels: Sequence[int] = (16, 32, 64, 128, 256),
        resolution: int = 6,
        flat: bool = False,
        own: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if not channels or min(channels, default=0) < 1:
            raise InputError(f"`channels` must be positive numbers, got {tuple(channels)}; the paper has 16 to 256.")
        if resolution < len(channels) - 1:
            raise InputError(
                f"`resolution` must be at least {len(channels) - 1} for {len(channels)} blocks down, got {resolution}; "
                "give fewer `channels`."
            )
        self.resolution = resolution
        self.in_channels, self.classes = in_channels, classes
        levels = range(resolution, resolution - len(channels), -1)
        before = (in_channels, *channels)
        conv = partial(HexConv, flat=flat, own=own, generator=generator)
        self.down = nn.ModuleList(
            _Block(conv(before[i], wide, resolution=min(levels[i] + 1, resolution), stride=2 if i else 1))
            for i, wide in enumerate(channels)
        )
        self.rise = nn.ModuleList(HexUpsample(resolution=level) for level in reversed(levels[1:]))
        self.up = nn.ModuleList(
            _Block(conv(channels[i] + channels[i + 1], channels[i], resolution=levels[i]))
            for i in reversed(range(len(channels) - 1))
        )
        self.last = _Block(conv(channels[0], classes, resolution=resolution), active=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scores `(B, classes, N)` from fields `(B, C, N)`."""
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
        kept.pop()
        for rise, block in zip(self.rise, self.up, strict=True):
            x = block(torch.cat([kept.pop(), rise(x)], 1))
        scores: Tensor = 6 * self.last(x)  # the sum over six orientations that are alike
        return scores


class _Block(nn.Module):
    """Convolution, mean over orientations, batch norm, and ReLU if `active`."""

    def __init__(self, conv: HexConv, active: bool = True) -> None:
        super().__init__()
        self.conv, self.active = conv, active
        self.norm = nn.BatchNorm1d(len(conv.weight))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.conv(x))
        return torch.relu(y) if self.active else y
