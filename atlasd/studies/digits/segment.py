"""A predictor of pixel classes that sees its whole patch: strided convolutions down, mirrored ones up again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.prediction.networks import ChartNetworks, initialise
from atlasd.prediction.neural import PUBLISHED, Architecture, Blueprint, FromBlueprint, rebuilt
from atlasd.prediction.train import Schedule
from atlasd.runtime.codec import storable
from atlasd.studies.networks import class_weights


class _Segmenter(nn.Module):
    """The network of one chart: images `(B, C, H, W)` to logits `(B, classes, H, W)`."""

    def __init__(self, channels: int, classes: int, widths: tuple[int, ...], skips: bool = True) -> None:
        super().__init__()
        self.skips = skips
        down, up = [channels, *widths], [*widths[::-1], classes]
        self.down = nn.ModuleList(skip_init(nn.Conv2d, a, b, 3, stride=2, padding=1) for a, b in pairwise(down))
        self.up = nn.ModuleList(skip_init(nn.ConvTranspose2d, a, b, 3, stride=2, padding=1) for a, b in pairwise(up))
        self.norms = nn.ModuleList(nn.BatchNorm2d(w) for w in (*widths, *widths[-2::-1]))

    def forward(self, x: Tensor) -> Tensor:
        levels = []
        for i, layer in enumerate(self.down):
            levels.append(x)
            x = self.norms[i](functional.leaky_relu(layer(x)))
        for i, layer in enumerate(self.up):
            level = levels[-1 - i]
            x = layer(x, output_size=tuple(level.shape[-2:]))
            if i < len(self.up) - 1:
                x = self.norms[len(self.down) + i](functional.leaky_relu(x))
                x = x + level if self.skips else x
        return x


@storable("architecture", "weights", read=rebuilt)
class ChartSegmenter(ChartNetworks):
    """One encoder and decoder for every chart: inputs `(B, K, C, H, W)` to logits `(B, K, classes, H, W)`.

    Arguments:
        options: `widths` and `skips`, as in `SegmentPredictor`.
    """

    def __init__(self, charts: int, channels: int, classes: int, *, generator: torch.Generator, **options: Any) -> None:
        super().__init__((_Segmenter(channels, classes, **options) for _ in range(charts)), channels)
        for chart in self.charts:
            assert isinstance(chart, _Segmenter)
            initialise(chart.down, generator)
            initialise(chart.up, generator)


@dataclass(frozen=True, kw_only=True)
class SegmentPredictor(FromBlueprint):
    """Pixel classes from all of a patch at once, as for the digits of the paper.

    Its receptive field is the patch: use it where what lies outside the patch is empty, as around a digit.

    Arguments:
        widths: Channels of the encoder, halving the image at each; the decoder mirrors them.
        skips: Whether each level of the decoder also gets that of the encoder, so that what passes through the
            middle need not draw the outline; `False` is the paper's.
        background: A class that counts less in the loss; `None` for none.
    """

    widths: tuple[int, ...] = (32, 64, 64, 64)
    skips: bool = True
    background: int | None = None
    background_weight: float = 0.1
    schedule: Schedule = Schedule(epochs=20, batch=64, learning_rate=3e-3, patience=20)

    @classmethod
    def published(cls, **changes: Any) -> SegmentPredictor:
        """The paper's network and training, twenty passes, the background a tenth; `changes` are other settings."""
        return replace(cls(skips=False, schedule=replace(PUBLISHED, epochs=20)), **changes)

    def blueprint(self, samples: Samples) -> Blueprint:
        """The networks of all charts for these samples."""
        weights, radii = class_weights(samples, self.background, self.background_weight), samples.atlas.radii
        if radii is not None and radii[0] != radii[1]:
            raise InputError(f"`out_radius` must equal `in_radius` for a SegmentPredictor, got {radii[1]}, {radii[0]}.")
        shape = (len(samples.atlas), samples.x.shape[1], samples.classes)
        make = Architecture(ChartSegmenter, shape, {"widths": self.widths, "skips": self.skips})
        return Blueprint(make, f"encoder and decoder {'-'.join(map(str, self.widths))}", 0.0, weights)
