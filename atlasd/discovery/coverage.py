"""Coverage: whether a transformed input still lies where data are."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.limits import LEVEL, TWO_SIDED
from atlasd.prediction.trivial import centre_crop

_OWN = 1 - LEVEL
"""Share of the data themselves that counts as lying where data are."""
_PATCHES = 3000
_LARGE = 8
_ROWS, _LOOKED = 4096, 1024


def summary(x: Tensor) -> Tensor:
    """What places inputs `(*, n)` or sets `(*, P, n)` among others, `(*, F)`.

    Distances between sets of many tokens hardly tell one from another. Their sum and their second moments do.
    """
    flat = x.flatten(-2) if x.ndim > 2 else x
    if x.ndim == 2 or flat.shape[-1] <= _LARGE:
        return flat
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1])
    second = torch.einsum("...pi,...pj->...ij", x, x)[..., i, j]
    return torch.cat([x.sum(-2), second.sign() * second.abs().sqrt()], dim=-1)


def quadric(x: Tensor) -> Tensor:
    """Components and their products of inputs `(B, n)`, or of the sums of sets `(B, P, n)`, with shape `(B, F)`.

    Where data lie near a quadric, as particles of nearly one mass or jets of nearly one momentum do, distances hardly
    tell; some combination of products that hardly varies does.
    """
    total = (x.sum(-2) if x.ndim > 2 else x).double()
    i, j = torch.triu_indices(x.shape[-1], x.shape[-1])
    return torch.cat([total, total[..., i] * total[..., j]], dim=-1)


class VectorCoverage:
    """Vectors no farther from the data than the data lie from each other, on no other side of a quadric near them.

    Arguments:
        x: Inputs in standard units, with shape `(B, n)` or `(B, P, n)`.
        errors: Those of the label of each, held out, `(B, O)`.
    """

    def __init__(self, x: Tensor, errors: Tensor) -> None:
        rows = summary(x).float()
        self.scale = rows.std(0).clamp_min(1e-6)
        self.rows = rows / self.scale
        least, near = zip(*(self._neighbours(i) for i in torch.arange(len(x)).split(_LOOKED)), strict=True)
        self.limit, self.near = torch.cat(least).quantile(_OWN), torch.cat(near)
        losses = errors.square().sum(1)
        self.level, self.spread = losses[self.near].mean(1), losses.std()
        self.shared = self._shared(errors)
        products = quadric(x)
        self.shift, self.size = products.mean(0), products.std(0).clamp_min(1e-12)
        products = (products - self.shift) / self.size
        self.axes = torch.linalg.eigh(products.mT @ products / len(products)).eigenvectors
        along = products @ self.axes
        # Most data are nowhere among the most extreme; one wild sample says nothing about where the others are.
        ranks = along.argsort(0).argsort(0) * (2 / max(len(along) - 1, 1)) - 1
        most = float(ranks.abs().amax(1).quantile(_OWN))
        low, high = along.quantile(torch.tensor([0.5 - most / 2, 0.5 + most / 2], dtype=along.dtype), dim=0)
        margin = 0.05 * (high - low) + 1e-6
        self.low, self.high = low - margin, high + margin
        tokens = x.reshape(-1, x.shape[-1]).double()
        tokens = tokens[(tokens != 0).any(-1)]
        # Energies are positive: along their mean, data may lie on one side of the origin only.
        self.mean = tokens.mean(0) / tokens.mean(0).norm().clamp_min(1e-300)
        along = tokens @ self.mean
        self.ends = float(along.min()), float(along.max())

    def _neighbours(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """How far samples are from the nearest other, `(B,)`, and the numbers of a few near them, their own first."""
        apart, own = torch.cdist(self.rows[index], self.rows), torch.arange(len(index))
        apart[own, index] = torch.inf
        least = apart.amin(1)
        apart[own, index] = 0.0
        return least, apart.topk(max(round(len(self.rows) ** (1 / 3)), 1), largest=False).indices

    def __call__(self, moved: Tensor) -> tuple[Tensor, Tensor]:
        """Whether each of `(B, *in)` does, and the sample nearest to it, or 0 if not, both `(B,)`."""
        along = ((quadric(moved) - self.shift) / self.size) @ self.axes
        inside = ((along >= self.low) & (along <= self.high)).all(-1)
        side = moved.double() @ self.mean
        within = ((side >= self.ends[0]) & (side <= self.ends[1])) | (moved == 0).all(-1)
        # Neighbours cost most: only what lies on the right side of all is compared with every sample.
        asked = (inside & (within if within.ndim == 1 else within.all(-1))).nonzero().flatten()
        apart, nearest = self.nearest(moved[asked])
        covered, there = torch.zeros(len(moved), dtype=torch.bool), torch.zeros(len(moved), dtype=torch.long)
        covered[asked], there[asked] = apart <= self.limit, nearest
        return covered, there

    def nearest(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """How far the sample nearest to each of `(B, *in)` is, and its number, both `(B,)`."""
        rows = summary(x).float() / self.scale
        found = [torch.cdist(part, self.rows).min(1) for part in rows.split(_ROWS)]
        return torch.cat([f.values for f in found]), torch.cat([f.indices for f in found])

    def _shared(self, errors: Tensor) -> float:
        """Share of the squares of errors `(B, O)` that neighbours have in common, 0 where it may be an accident.

        Noise has nothing in common; what a map has not learned does.
        """
        others = errors[self.near].sum(1) - errors
        products = (errors * others).sum(1) / max(self.near.shape[1] - 1, 1)
        clear = float(products.mean()) > TWO_SIDED * float(products.std()) / len(products) ** 0.5
        return float(products.mean() / errors.square().sum(1).mean().clamp_min(1e-300)) if clear else 0.0

    def worse(self, there: Tensor, here: Tensor, covered: Tensor) -> Tensor:
        """How much more it costs to predict labels where samples are taken than where they come from, `(M, B)`.

        Only what is beyond accident of the difference, a mean over neighbours. A contraction takes all samples
        to the same few neighbours, whose mean is known no better for being taken often.

        Arguments:
            there: Numbers of the samples nearest to the transformed ones, `(M, B)`.
            here: Those of the samples nearest to the samples themselves, `(B,)`.
            covered: Which of them count, `(M, B)`.
        """
        share = covered / covered.sum(1, keepdim=True).clamp_min(1.0)
        zero, m = share.new_zeros(len(there), len(self.level)), self.near.shape[1]
        weights = zero.scatter_add(1, there, share).scatter_add(1, here.expand_as(there), -share) / m
        each = zero.scatter_add(1, self.near.flatten().expand(len(there), -1), weights.repeat_interleave(m, dim=1))
        shift = self.level[there] - self.level[here]
        accident = TWO_SIDED * self.spread * each.norm(dim=1) / (share * shift).sum(1).abs().clamp_min(1e-300)
        return shift * (1 - accident).clamp_min(0.0)[:, None]


@dataclass(frozen=True, eq=False)
class FieldCoverage:
    """Patches that the principal components of the data explain, and that lie no farther out along them.

    Arguments:
        mean: Mean patch, `(F,)`.
        frame: Principal components, `(R, F)`.
        spread: Standard deviation along each, `(R,)`.
        rest: Share that the components leave unexplained of most data.
        radius: Mean squared whitened coordinate of most data.
        shape: Spatial shape of the middle of patches that is looked at, the same for all charts.
    """

    mean: Tensor
    frame: Tensor
    spread: Tensor
    rest: float
    radius: float
    shape: tuple[int, ...]

    @classmethod
    def of(cls, patches: Tensor, explained: float = 0.999) -> FieldCoverage:
        """Learns from one half of patches `(B, C, *shape)` what the other half looks like."""
        shape = tuple(patches.shape[2:])
        rows = _disc_rows(patches[:_PATCHES], len(shape)).float()
        half = len(rows) // 2
        mean = rows[:half].mean(0)
        _, s, v = torch.linalg.svd(rows[:half] - mean, full_matrices=False)
        share = s.square().cumsum(0) / s.square().sum().clamp_min(1e-30)
        rank = min(int((share < explained).sum()) + 1, max(half // 4, 1))
        frame = v[:rank].contiguous()
        spread = ((rows[:half] - mean) @ frame.mT).std(0).clamp_min(1e-12)
        made = cls(mean, frame, spread, 0.0, 0.0, shape)
        rest, radius = made._measure(rows[half:])
        return cls(mean, frame, spread, float(rest.quantile(_OWN)), float(radius.quantile(_OWN)), shape)

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        centred = rows.float() - self.mean
        inside = centred @ self.frame.mT
        total = centred.square().sum(-1).clamp_min(1e-30)
        rest = (total - inside.square().sum(-1)).clamp_min(0.0) / total
        return rest, (inside / self.spread).square().mean(-1)

    def __call__(self, patches: Tensor) -> Tensor:
        """Whether each of `(*, C, *S)` does, with shape `(*)`."""
        rest, radius = self._measure(_disc_rows(centre_crop(patches, self.shape), len(self.shape)))
        return (rest <= max(self.rest, 1e-3)) & (radius <= self.radius)


def _disc_rows(patches: Tensor, dimensions: int) -> Tensor:
    """Patches `(*, C, *S)` as rows `(*, F)`: the disc that no transformation of norm 1 fills from outside."""
    shape = patches.shape[-dimensions:]
    grid = torch.stack(torch.meshgrid(*(torch.linspace(-1, 1, s) for s in shape), indexing="ij"))
    disc = (grid.square().sum(0) <= 0.6).flatten()
    return patches.flatten(-dimensions)[..., disc].flatten(-2)
