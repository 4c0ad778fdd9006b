"""A context-guided network for pixel classes: what is at a pixel, around it, and in the whole patch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.prediction.networks import ChartNetworks
from atlasd.prediction.neural import PUBLISHED, Architecture, Blueprint, FromBlueprint, rebuilt
from atlasd.prediction.train import Schedule
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.codec import storable
from atlasd.studies.networks import class_weights


class _Block(nn.Module):
    """Local and surrounding context side by side, joined, then weighed by the context of the whole."""

    def __init__(self, inputs: int, outputs: int, dilation: int, stride: int) -> None:
        super().__init__()
        half = outputs // 2
        self.residual = inputs == outputs and stride == 1
        self.reduce = nn.Sequential(
            nn.Conv2d(inputs, half, 1 if stride == 1 else 3, stride, 0 if stride == 1 else 1, bias=False),
            nn.BatchNorm2d(half),
            nn.PReLU(half),
        )
        self.local = nn.Conv2d(half, half, 3, padding=1, groups=half, bias=False)
        self.around = nn.Conv2d(half, half, 3, padding=dilation, dilation=dilation, groups=half, bias=False)
        self.joint = nn.Sequential(nn.BatchNorm2d(2 * half), nn.PReLU(2 * half), nn.Conv2d(2 * half, outputs, 1))
        narrow = max(outputs // 8, 2)
        self.gate = nn.Sequential(nn.Linear(outputs, narrow), nn.ReLU(), nn.Linear(narrow, outputs), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        z = self.reduce(x)
        z = self.joint(torch.cat([self.local(z), self.around(z)], dim=1))
        z = z * self.gate(z.mean((-2, -1)))[..., None, None]
        return x + z if self.residual else z


class _CGNet(nn.Module):
    """The network of one chart: images `(B, C, H, W)` to logits `(B, classes, H, W)`."""

    def __init__(self, channels: int, classes: int, widths: tuple[int, int, int], blocks: tuple[int, int]) -> None:
        super().__init__()
        a, b, c = widths

        def convolution(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.PReLU(outputs)
            )

        self.stem = nn.Sequential(convolution(channels, a, 2), convolution(a, a, 1), convolution(a, a, 1))
        # The input itself is seen again at every stage.
        self.second = nn.ModuleList(
            _Block(a + channels if i == 0 else b, b, 2, 2 if i == 0 else 1) for i in range(blocks[0])
        )
        self.third = nn.ModuleList(
            _Block(2 * b + channels if i == 0 else c, c, 4, 2 if i == 0 else 1) for i in range(blocks[1])
        )
        self.head = nn.Conv2d(2 * c + 2 * b + channels + a, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        size = tuple(x.shape[-2:])
        half = functional.avg_pool2d(x, 3, 2, 1)
        first = self.stem(x)
        second = self._stage(self.second, torch.cat([first, half], dim=1))
        quarter = functional.avg_pool2d(half, 3, 2, 1)
        third = self._stage(self.third, torch.cat([second, quarter], dim=1))
        levels = [third, torch.cat([second, quarter], dim=1), first]
        joined = [functional.interpolate(z, first.shape[-2:], mode="bilinear", align_corners=False) for z in levels]
        return functional.interpolate(self.head(torch.cat(joined, dim=1)), size, mode="bilinear", align_corners=False)

    @staticmethod
    def _stage(blocks: nn.ModuleList, x: Tensor) -> Tensor:
        entered = z = blocks[0](x)
        for block in blocks[1:]:
            z = block(z)
        return torch.cat([entered, z], dim=1)


@storable("architecture", "weights", read=rebuilt)
class ChartCGNet(ChartNetworks):
    """One network for every chart: inputs `(B, K, C, *in)` to logits `(B, K, classes, *out)`.

    Arguments:
        widths: Channels of the three stages.
        blocks: Context-guided blocks of the second and the third.
    """

    def __init__(
        self,
        charts: int,
        channels: int,
        classes: int,
        shape: tuple[int, ...],
        *,
        widths: tuple[int, int, int],
        blocks: tuple[int, int],
        generator: torch.Generator,
    ) -> None:
        super().__init__((_CGNet(channels, classes, widths, blocks) for _ in range(charts)), channels)
        self.shape = tuple(shape)
        with torch.no_grad():
            for weight in self.charts.parameters():
                if weight.ndim > 1:  # torch's own start would use the global seed
                    bound = math.sqrt(6.0 / weight[0].numel())
                    weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * bound)
            for layer in self.charts.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
                    layer.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        return centre_crop(super().forward(x), self.shape)


@dataclass(frozen=True, kw_only=True)
class CGNetPredictor(FromBlueprint):
    """A context-guided network per chart, as for the climate of the paper.

    Arguments:
        widths: Channels of its three stages.
        blocks: Context-guided blocks of the second and the third stage.
        background_weight: Weight of class 0 in the loss.

    References:
        Wu et al., CGNet: a light-weight context guided network for semantic segmentation (2018).
    """

    widths: tuple[int, int, int] = (32, 64, 128)
    blocks: tuple[int, int] = (3, 21)
    background_weight: float = 1.0
    schedule: Schedule = Schedule(epochs=30, batch=16, learning_rate=1e-3, patience=30)

    @classmethod
    def published(cls, **changes: Any) -> CGNetPredictor:
        """The training of the paper's climate, thirty passes, nothing cut short; `changes` are other settings."""
        return replace(cls(schedule=replace(PUBLISHED, epochs=30)), **changes)

    def blueprint(self, samples: Samples) -> Blueprint:
        """The networks of all charts for these samples."""
        weights, radii = class_weights(samples, 0, self.background_weight), samples.atlas.radii
        if radii is None:
            raise InputError("`atlas` must have charts for a CGNetPredictor, got the whole field; use another one.")
        shape = tuple(samples.targets(torch.zeros(1, dtype=torch.long)).shape[2:])
        make = Architecture(
            ChartCGNet,
            (len(samples.atlas), samples.x.shape[1], samples.classes, shape),
            {"widths": self.widths, "blocks": self.blocks},
        )
        # It sees all of its patch, and zeros beyond: the margin is what keeps those away.
        return Blueprint(make, f"CGNet {'-'.join(map(str, self.widths))}", float(radii[0] - radii[1]), weights)
