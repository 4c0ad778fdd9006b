"""Small networks, one per chart, evaluated together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from atlasd.prediction.trivial import centre_crop


class Network(nn.Module):
    """A network that is stored by its weights and its architecture, from which it is built again."""

    @property
    def weights(self) -> dict[str, Tensor]:
        """Parameters and buffers by name."""
        return dict(self.state_dict())


class ChartNetworks(Network):
    """A network of its own for every chart: inputs `(B, K, C, H, W)` to logits `(B, K, classes, H, W)`.

    One after the other: grouped convolutions are several times slower on a CPU.

    Arguments:
        charts: The networks, which take `(B, C, H, W)`.
        channels: Input channels C, each of which is shifted and scaled.
    """

    shift: Tensor
    scale: Tensor

    def __init__(self, charts: Iterable[nn.Module], channels: int) -> None:
        super().__init__()
        self.charts = nn.ModuleList(charts)
        self.register_buffer("shift", torch.zeros(len(self.charts), channels))
        self.register_buffer("scale", torch.ones(len(self.charts), channels))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.shift[..., None, None]) / self.scale[..., None, None]
        return torch.stack([chart(x[:, k]) for k, chart in enumerate(self.charts)], dim=1)


class ChartConv(Network):
    """Convolutions without padding, grouped so that every chart has its own weights.

    No padding: outputs near the edge of a patch would otherwise see the edge, which no symmetry moves.

    Arguments:
        residual: Adds a linear map of the centre pixel, so that the layers learn what is left.
        smooth: SiLU in place of LeakyReLU and batch norm.
    """

    shift: Tensor
    scale: Tensor
    out_shift: Tensor
    out_scale: Tensor

    def __init__(
        self,
        charts: int,
        channels_in: int,
        channels_out: int,
        shape: tuple[int, ...],
        *,
        hidden: int = 16,
        depth: int = 4,
        kernel: int = 3,
        residual: bool = False,
        smooth: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.charts, self.shape, self.residual, self.smooth = charts, shape, residual, smooth
        widths = [channels_in, *([hidden] * (depth - 1)), channels_out]
        convolution = {2: nn.Conv2d, 3: nn.Conv3d}[len(shape)]
        norm = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}[len(shape)]
        self.layers = nn.ModuleList(
            skip_init(convolution, charts * a, charts * b, kernel, groups=charts) for a, b in pairwise(widths)
        )
        self.norms = nn.ModuleList(norm(charts * b) for b in widths[1:-1]) if not smooth else nn.ModuleList()
        self.skip = nn.Parameter(torch.zeros(charts, channels_out, channels_in)) if residual else None
        self.register_buffer("shift", torch.zeros(charts, channels_in))
        self.register_buffer("scale", torch.ones(charts, channels_in))
        self.register_buffer("out_shift", torch.zeros(charts, channels_out))
        self.register_buffer("out_scale", torch.ones(charts, channels_out))
        initialise(self.layers, generator)

    def forward(self, x: Tensor) -> Tensor:
        ones = [1] * len(self.shape)
        x = (x - self.shift.reshape(*self.shift.shape, *ones)) / self.scale.reshape(*self.scale.shape, *ones)
        z = x.flatten(1, 2)
        for i, layer in enumerate(self.layers):
            z = layer(z)
            if i < len(self.layers) - 1:
                z = functional.silu(z) if self.smooth else self.norms[i](functional.leaky_relu(z))
        z = centre_crop(z, self.shape).unflatten(1, (self.charts, -1))
        if self.skip is not None:
            z = z + torch.einsum("koc,bkc...->bko...", self.skip, centre_crop(x, self.shape))
        return z * self.out_scale.reshape(*self.out_scale.shape, *ones) + self.out_shift.reshape(
            *self.out_shift.shape, *ones
        )


class VectorMLP(Network):
    """A perceptron on all tokens at once, in one common unit for all components.

    With `gated`, half of each hidden layer gates the other half: products of inputs, of which most invariants are
    made, are then one layer away, and no metric is assumed. Otherwise SiLU, better where outputs have a kink.

    Arguments:
        inputs: Number of input numbers (tokens times components).
    """

    unit: Tensor
    out_shift: Tensor
    out_scale: Tensor

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        hidden: Sequence[int],
        gated: bool = False,
        relu: bool = False,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.gated, self.bend = gated, functional.relu if relu else functional.silu
        widths = [inputs, *hidden]
        layers = [skip_init(nn.Linear, a, 2 * b if gated else b) for a, b in pairwise(widths)]
        self.layers = nn.ModuleList([*layers, skip_init(nn.Linear, widths[-1], outputs)])
        self.register_buffer("unit", torch.ones(()))
        self.register_buffer("out_shift", torch.zeros(outputs))
        self.register_buffer("out_scale", torch.ones(outputs))
        initialise(self.layers, generator)

    def forward(self, x: Tensor) -> Tensor:
        """Inputs `(B, 1, n)` or `(B, 1, P, n)` to outputs `(B, 1, outputs)`."""
        z = x.flatten(2) / self.unit
        for i, layer in enumerate(self.layers):
            z = layer(z)
            if i < len(self.layers) - 1:
                z = gate(z) if self.gated else self.bend(z)
        return z * self.out_scale + self.out_shift


def gate(z: Tensor) -> Tensor:
    """One half of the last axis times tanh of the other: smooth, and nearly a product where it is small."""
    a, b = z.chunk(2, dim=-1)
    return a * torch.tanh(b)


def uniform(shape: tuple[int, ...], fan: int, generator: torch.Generator) -> Tensor:
    """Weights of variance 1 / fan."""
    return (torch.rand(shape, generator=generator) * 2 - 1) * math.sqrt(3.0 / fan)


def initialise(layers: nn.ModuleList, generator: torch.Generator) -> None:
    """Kaiming-uniform weights from an explicit generator: torch's own would use the global seed."""
    with torch.no_grad():
        for layer in layers:
            weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
            fan = weight[0].numel() if not isinstance(layer, nn.ConvTranspose2d) else weight[:, 0].numel()
            bound = math.sqrt(3.0 / fan) * math.sqrt(2.0 / (1 + 0.01**2))
            weight.copy_((torch.rand(weight.shape, generator=generator) * 2 - 1) * bound)
            bias.copy_((torch.rand(bias.shape, generator=generator) * 2 - 1) / math.sqrt(fan))
