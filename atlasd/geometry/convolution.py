"""Stencils of fields without padding, one for every chart."""

from __future__ import annotations

__all__ = ["convolve"]

import torch
from torch import Tensor
from torch.nn import functional

_SIDE_BY_SIDE = 128
"""Channels of one stencil each that are worked on together: with few, most of the processor's width stays idle."""
_CONVOLUTION = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}


def convolve(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Stencils `(K, O, C, *width)` of fields `(B, K, C, *S)`, with shape `(B, K, O, *(S - width + 1))`.

    Arguments:
        x: The fields.
        weight: One stencil for every chart, or one for all charts, `(1, O, C, *width)`.
        bias: What is added, `(K, O)`.
    """
    weight = weight.to(x.dtype)
    if len(weight) == 1 and x.shape[1] > 1:
        made = convolve(x.flatten(0, 1)[:, None], weight, bias)
        return made[:, 0].unflatten(0, x.shape[:2])
    charts, outputs, channels = weight.shape[:3]
    run = _CONVOLUTION[weight.ndim - 3]
    step = max(_SIDE_BY_SIDE // charts, 1) if channels == outputs == 1 else 1
    parts = []
    for part in (x[: len(x) // step * step], x[len(x) // step * step :]):
        if len(part):
            side = min(step, len(part))
            flat = part.reshape(-1, side * charts * channels, *x.shape[3:])
            stencils = weight.flatten(0, 1).repeat(side, *[1] * (weight.ndim - 2))
            made = run(flat, stencils, groups=side * charts)
            parts.append(made.reshape(len(part), charts, outputs, *made.shape[2:]))
    y = torch.cat(parts) if len(parts) > 1 else parts[0]
    return y if bias is None else y + bias.to(x.dtype)[(..., *[None] * (weight.ndim - 3))]
