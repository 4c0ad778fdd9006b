"""What is left of a linear fit, asked in closed form: do products of the components of neighbourhoods explain it?"""

from __future__ import annotations

__all__ = ["Products", "explained"]

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.prediction.trivial import centre_crop

_CONVOLUTION = {2: functional.conv2d, 3: functional.conv3d}
_RIDGE = 1e-4


@dataclass(frozen=True, eq=False)
class Products:
    """Products of two principal components of neighbourhoods, those with themselves among them.

    Arguments:
        filters: One filter for each component, `(m, C, *width)`, with responses of unit size.
        shift: Mean response, `(m,)`.
    """

    filters: Tensor
    shift: Tensor

    @classmethod
    def of(cls, x: Tensor, width: int, components: int = 8) -> Products:
        """The leading components of neighbourhoods `width` pixels wide of fields `(B, K, C, *in)`."""
        channels, d = x.shape[2], x.ndim - 3
        x = x.double().flatten(0, 1)
        for axis in range(d):
            x = x.unfold(2 + axis, width, max(width // 2, 1))
        rows = x.movedim(1, 1 + d).flatten(0, d).flatten(1)  # (M, C width^d)
        rows = rows[:: max(len(rows) // 20_000, 1)]
        mean = rows.mean(0)
        _, s, v = torch.linalg.svd(rows - mean, full_matrices=False)
        spread = s / len(rows) ** 0.5
        kept = min(components, int((spread > 1e-6 * spread[0].clamp_min(1e-300)).sum()))
        frame = v[:kept] / spread[:kept, None].clamp_min(1e-300)
        return cls(frame.reshape(kept, channels, *[width] * d), frame @ mean)

    def __call__(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Products of fields `(B, K, C, *in)` for outputs of some shape, `(B, K, P, *shape)`."""
        width, d = self.filters.shape[-1], len(shape)
        need = tuple(s + width - 1 for s in shape)
        if any(have < want for have, want in zip(x.shape[3:], need, strict=True)):  # the whole field is one chart
            x = functional.pad(x.flatten(0, 1), (width // 2,) * 2 * d, mode="replicate").unflatten(0, x.shape[:2])
        flat = centre_crop(x, need).flatten(0, 1)
        z = _CONVOLUTION[d](flat, self.filters.to(x.dtype), -self.shift.to(x.dtype))
        first, second = torch.triu_indices(len(self.filters), len(self.filters))
        return (z[:, first] * z[:, second]).unflatten(0, x.shape[:2])


def explained(features: Tensor, targets: Tensor) -> Tensor:
    """What features explain of targets, each half of the samples by a fit to the other, `(B, K, C', Q)`.

    Arguments:
        features: With shape `(B, K, P, Q)`.
        targets: With shape `(B, K, C', Q)`.
    """
    ones = torch.cat([features, torch.ones_like(features[:, :, :1])], dim=2).double()
    halves = [slice(0, len(ones) // 2), slice(len(ones) // 2, None)]
    out = torch.zeros_like(targets, dtype=torch.float64)
    for fit, ask in (halves, halves[::-1]):
        rows, y = (z[fit].permute(1, 2, 0, 3).flatten(2) for z in (ones, targets.double()))  # (K, P, B Q)
        gram = rows @ rows.mT
        size = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
        ridge = _RIDGE * size * torch.eye(gram.shape[-1], dtype=torch.float64)
        weight = torch.linalg.solve(gram + ridge, rows @ y.mT)  # (K, P, C')
        out[ask] = torch.einsum("kpc,bkpq->bkcq", weight, ones[ask])
    return out
