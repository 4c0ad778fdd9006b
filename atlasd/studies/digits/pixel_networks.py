"""Networks that name the class of every pixel, plain or with a group, trained and scored alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.algebra.group import Group
from atlasd.nn.grid_cnn import GroupActivation, GroupBatchNorm2d, GroupConv2d
from atlasd.nn.representations import FieldType, resolve
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.networks import Trained, train_network


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The shape of a network and how it is trained; the same for all that are compared.

    Arguments:
        channels: Channels after every layer, the input's first and the classes last.
        dilated: Layers (counted from 1) with dilation 2.
        halve: The first layer goes to half the resolution, and the classes back to the whole.
        learning_rate: Of Adam; the peak of a one-cycle schedule if `cycle`.
        cycle: Whether the learning rate rises and falls.
        background: Weight of the last class in the loss, the others having 1.
    """

    channels: Sequence[int]
    dilated: Sequence[int] = ()
    halve: bool = False
    epochs: int = 1
    batch: int = 16
    learning_rate: float = 1e-3
    cycle: bool = False
    background: float = 0.005


def pixel_network(plan: Plan, group: Group | None, kind: FieldType | str, generator: torch.Generator) -> nn.Sequential:
    """Layers of 5 x 5 pixels with LeakyReLU and then batch norm between them.

    Arguments:
        plan: The shape; widths are rounded to whole fields.
        group: The group, or `None` for plain convolutions.
        kind: How the channels between the layers transform.
    """
    fields = None if group is None else resolve(kind, group)
    size = 1 if fields is None else fields.size
    inner = [max(1, round(c / size)) * size for c in plan.channels[1:-1]]
    widths = [plan.channels[0], *inner, plan.channels[-1]]
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths), start=1):
        first, last = i == 1, i == len(widths) - 1
        dilation = 2 if i in plan.dilated else 1
        # Six pixels at every second place lie evenly about the centre: half the resolution, and rotations stay exact.
        kernel, stride = (6, 2) if plan.halve and first else (5, 1)
        if group is None or fields is None:
            layers.append(_plain(a, b, kernel, stride, 2 * dilation, dilation, generator))
        else:
            layers.append(
                GroupConv2d(
                    a, b, kernel, group=group, stride=stride, padding=2 * dilation, dilation=dilation,
                    in_type="trivial" if first else fields, out_type="trivial" if last else fields, generator=generator,
                )
            )  # fmt: skip
        if last:
            break
        if group is None or fields is None:
            layers += [nn.LeakyReLU(), nn.BatchNorm2d(b)]
        else:
            layers.append(GroupActivation(b, group=group, field_type=fields, activation=nn.LeakyReLU()))
            layers.append(GroupBatchNorm2d(b, group=group, field_type=fields))
    if plan.halve:
        layers.append(nn.Upsample(scale_factor=2, mode="bilinear"))
    return nn.Sequential(*layers)


def _plain(
    a: int, b: int, kernel: int, stride: int, padding: int, dilation: int, generator: torch.Generator
) -> nn.Conv2d:
    layer: nn.Conv2d = nn.utils.skip_init(nn.Conv2d, a, b, kernel, stride, padding, dilation)
    nn.init.kaiming_uniform_(layer.weight, a=math.sqrt(5), generator=generator)
    assert layer.bias is not None
    nn.init.uniform_(layer.bias, -1 / math.sqrt(a * kernel**2), 1 / math.sqrt(a * kernel**2), generator=generator)
    return layer


def fit_pixels(
    network: nn.Module, x: Tensor, y: Tensor, plan: Plan, *, seed: int, progress: Progress, label: str
) -> Trained:
    """Trains on fields `(N, C, H, W)` and classes `(N, H, W)`."""
    weight = torch.ones(plan.channels[-1])
    weight[-1] = plan.background

    def loss(part: Tensor) -> Tensor:
        given, truth = x[part].to(weight.device), y[part].to(weight.device).long()
        return functional.cross_entropy(network(given), truth, weight=weight)

    return train_network(
        network,
        loss,
        torch.arange(len(x)),
        plan,
        generator=stream(seed, "pixels", "order"),
        progress=progress,
        label=label,
        cycle=0.2 if plan.cycle else None,
    )


def digit_accuracy(network: nn.Module, x: Tensor, y: Tensor, background: int, batch: int = 50) -> float:
    """Share of the pixels that are not background whose class is right, each pixel counted once."""
    right = count = 0
    network.eval()
    with torch.no_grad():
        for part, truth in zip(x.split(batch), y.split(batch), strict=True):
            ink = truth != background
            right += int((network(part).argmax(1)[ink] == truth[ink]).sum())
            count += int(ink.sum())
    return right / max(count, 1)
