"""What is left of a linear fit, asked in closed form: do products of the components of neighbourhoods explain it?"""

from __future__ import annotations

__all__ = ["Products", "explained"]

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.geometry.convolution import convolve
from atlasd.prediction.trivial import centre_crop

_RIDGES = (1e-4, 1e-2, 1.0, 100.0)
_FOLDS = 4


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
        z = convolve(centre_crop(x, need), self.filters[None], -self.shift[None])
        first, second = torch.triu_indices(len(self.filters), len(self.filters))
        return z[:, :, first] * z[:, :, second]


def explained(features: Tensor, targets: Tensor) -> Tensor:
    """What features explain of targets, each fold of the samples by a fit to the others, `(B, K, C', Q)`.

    Of several ridges the one is taken that explains most.

    Arguments:
        features: With shape `(B, K, P, Q)`.
        targets: With shape `(B, K, C', Q)`.
    """
    ones = torch.cat([features, torch.ones_like(features[:, :, :1])], dim=2).double()
    targets = targets.double()
    grams, pulls = ones @ ones.mT, ones @ targets.mT  # (B, K, P, P), (B, K, P, C')
    out = torch.zeros(len(_RIDGES), *targets.shape, dtype=torch.float64)
    fold = torch.arange(len(ones)) % _FOLDS
    for k in range(min(_FOLDS, len(ones))):
        values, frame = torch.linalg.eigh(grams[fold != k].sum(0))
        along = frame.mT @ pulls[fold != k].sum(0)
        for out_of_fold, ridge in zip(out, _RIDGES, strict=True):
            weight = frame @ (along / (values + ridge * values.mean(-1, keepdim=True)).unsqueeze(-1))
            out_of_fold[fold == k] = torch.einsum("kpc,bkpq->bkcq", weight, ones[fold == k])
    left = (targets - out).square().flatten(1).sum(1)
    return out[int(left.argmin())]
