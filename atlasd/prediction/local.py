"""Local maps in closed form: of the features of a neighbourhood, their products and their kinks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import Any

import torch
from torch import Tensor

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.geometry.resample import convolve
from atlasd.prediction.predictor import ClosedForm, FittedPredictor, Folds
from atlasd.prediction.stencil import disc
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_ROWS = 2048
"""Pixels whose features are formed together: they fit into the cache."""


@storable()
@dataclass(frozen=True, eq=False)
class Dictionary:
    """What is formed of a neighbourhood.

    Arguments:
        frame: Components of the neighbourhood, each of unit size, `(Z, C, F)`.
        triples: Components whose products of three are formed, `(T, 3)`.
        lines: Components whose fourth and fifth powers are formed, `(L,)`.
        mixtures: Mixtures of components whose absolute values are taken, `(Z, A)`.
        offsets: What is added to the mixtures before, `(A,)`.
        disc: Which pixels of the box belong to the neighbourhood, `(width,) * d`.
        half: Half the width of the box.
    """

    mean: Tensor
    frame: Tensor
    triples: Tensor
    lines: Tensor
    mixtures: Tensor
    offsets: Tensor
    disc: Tensor
    half: int

    names = ("second order", "third order", "second order with kinks", "third order with kinks")

    def features(self, x: Tensor) -> Tensor:
        """Neighbourhoods `(M, C, F)` to features `(M, ...)`: pixels, products of two, of three, absolute values."""
        centred = x - self.mean[:, None]
        z = torch.einsum("mcf,zcf->mz", centred, self.frame)
        i, j = torch.triu_indices(z.shape[1], z.shape[1])
        return torch.cat([centred.flatten(1), z[:, i] * z[:, j], self.powers(z), self.bends(z)], dim=-1)

    def powers(self, z: Tensor) -> Tensor:
        """Products of three components `(*, Z)`, and higher powers of some."""
        i, j, k = self.triples.unbind(-1)
        line = z[..., self.lines]
        square = line * line
        return torch.cat([z[..., i] * z[..., j] * z[..., k], square * square, square * square * line], dim=-1)

    def bends(self, z: Tensor) -> Tensor:
        """Absolute values of mixtures of components `(M, Z)`."""
        return torch.addmm(self.offsets.to(z.dtype), z, self.mixtures.to(z.dtype)).abs_()

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of pixels, products of two, products of three, and absolute values."""
        size, channels, pixels = self.frame.shape
        powers = len(self.triples) + 2 * len(self.lines)
        return channels * pixels, size * (size + 1) // 2, powers, self.mixtures.shape[1]

    def columns(self, kind: int) -> Tensor:
        """Places of the features that belong to a kind of `names`."""
        first, second, third, kinks = self.counts
        parts = [torch.arange(first + second)]
        if kind in (1, 3):
            parts.append(first + second + torch.arange(third))
        if kind in (2, 3):
            parts.append(first + second + third + torch.arange(kinks))
        return torch.cat(parts)

    def map(self, solution: Tensor, sums: Any, shape: tuple[int, ...]) -> LocalMap:
        """The map of weights `(K, F + 1, O)` of features in the units of the normal equations."""
        weight = solution[:, :-1] / sums.size[:, None]
        bias = solution[:, -1] - sums.mean @ weight  # (K, O)
        linear, second, cubes, kinks = weight.split(self.counts, dim=1)
        size, channels, _ = self.frame.shape
        charts, outputs = len(weight), weight.shape[-1]
        i, j = torch.triu_indices(size, size)
        form = weight.new_zeros(charts, outputs, size, size)
        form[..., i, j] = second.mT
        stencil = weight.new_zeros(charts, outputs, channels, self.disc.numel())
        stencil[..., self.disc.flatten()] = linear.mT.unflatten(2, (channels, -1))
        bias = bias - torch.einsum("kocf,c->ko", stencil, self.mean)
        return LocalMap(self, stencil.unflatten(3, tuple(self.disc.shape)), bias, form, cubes, kinks, shape)


@storable("dictionary", "stencil", "bias", "form", "cubes", "kinks", "shape")
class LocalMap:
    """Patches `(B, K, C, *in)` to outputs `(B, K, O, *shape)`, without padding.

    Arguments:
        dictionary: What is formed of neighbourhoods.
        stencil: Weights of the pixels, `(K, O, C, *width)`.
        bias: The constant, `(K, O)`.
        form: Weights of products of two components, `(K, O, Z, Z)`.
        cubes: Weights of products of three and of higher powers, `(K, T, O)`.
        kinks: Weights of absolute values, `(K, A, O)`.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        stencil: Tensor,
        bias: Tensor,
        form: Tensor,
        cubes: Tensor,
        kinks: Tensor,
        shape: tuple[int, ...],
    ) -> None:
        self.dictionary, self.stencil, self.bias = dictionary, stencil, bias
        self.form, self.cubes, self.kinks, self.shape = form, cubes, kinks, tuple(shape)
        self._cubic, self._bent = bool(cubes.any()), bool(kinks.any())

    @property
    def need(self) -> tuple[int, ...]:
        """Spatial shape of the inputs that it looks at."""
        return tuple(s + 2 * self.dictionary.half for s in self.shape)

    def narrowed(self, width: int) -> LocalMap:
        """The same for the middle of the outputs, at most so many pixels wide, or one more to keep the centre."""
        shape = tuple(min(s, width + (s - width) % 2) for s in self.shape)
        return LocalMap(self.dictionary, self.stencil, self.bias, self.form, self.cubes, self.kinks, shape)

    def __call__(self, x: Tensor) -> Tensor:
        x = centre_crop(x, self.need)
        y = convolve(x, self.stencil, self.bias)
        z = self._components(x)  # (K, B Q, Z)
        weights = [w.to(z.dtype) for w in (self.form.movedim(1, 2).flatten(2), self.cubes, self.kinks)]
        charts = zip(z, *weights, strict=True)
        rest = torch.stack([torch.cat([self._curved(part, *w) for part in of.split(_ROWS)]) for of, *w in charts])
        return y + rest.unflatten(1, (len(x), *self.shape)).movedim((0, -1), (1, 2))

    def _curved(self, z: Tensor, form: Tensor, cubes: Tensor, kinks: Tensor) -> Tensor:
        """What is not linear, of components `(M, Z)`, `(M, O)`; forms of all outputs side by side, `(Z, O Z)`."""
        # One product for all outputs, then one sum over components for each.
        out = ((z @ form).unflatten(-1, (-1, z.shape[-1])) * z.unsqueeze(-2)).sum(-1)
        out = out + self.dictionary.powers(z) @ cubes if self._cubic else out
        return out + self.dictionary.bends(z) @ kinks if self._bent else out

    def _components(self, x: Tensor) -> Tensor:
        """Components of every neighbourhood, `(K, B Q, Z)`."""
        d = len(self.shape)
        frame, disc = self.dictionary.frame, self.dictionary.disc
        kernel = frame.new_zeros(*frame.shape[:2], disc.numel())
        kernel[..., disc.flatten()] = frame
        centred = x - self.dictionary.mean.reshape(-1, *[1] * d).to(x.dtype)
        z = convolve(centred, kernel.unflatten(2, tuple(disc.shape))[None])
        return z.movedim((1, 2), (0, -1)).flatten(1, -2)


_WHITE = 24
"""Principal components of the neighbourhood in which directions of bending are looked for."""


@dataclass(frozen=True, kw_only=True)
class LocalPredictor(ClosedForm):
    """A stencil, and beside it products and kinks of principal components of the neighbourhood of a pixel.

    Second order holds squared gradients and transport by a field; third order reactions; kinks, absolute values of
    mixtures of two components, hold lengths of gradients and thresholds. The simplest kind that costs no skill on
    held-out pixels is taken. Charts share one law where that costs no skill, too. All is solved in closed form from
    pixels drawn at random.

    Arguments:
        width: The largest width of the neighbourhood in pixels, odd.
        components: Principal components of each channel of which products are formed, or up to two more: pairs stay
            together. 6 hold the second order.
        few: Components of each channel of which products of three are formed; 3 hold a value and its gradient.
        bent: Directions of strongest bending for each output, at most two outputs.
        angles: Mixtures of each pair of components whose absolute value is taken.
        pixels: The most pixels drawn for each chart.
        ridges: Candidate ridge strengths, relative to the mean square of the features.
        slack: Share of the held-out error that a simpler kind, or one law for all charts, may cost.
    """

    width: int = 9
    components: int = 8
    few: int = 3
    ridges: tuple[float, ...] = (1e-8, 1e-6, 1e-4, 1e-2)
    bent: int = 4
    angles: int = 8
    pixels: int = 3000
    slack: float = 0.05

    def __post_init__(self) -> None:
        if self.width < 3 or self.width % 2 == 0:
            raise InputError(f"`width` must be odd and at least 3, got {self.width}.")

    def fit_folds(self, folds: Folds, *, progress: Progress) -> list[list[FittedPredictor]]:
        """Maps for every fold, as `ClosedForm` says."""
        samples = folds.samples
        radii = samples.atlas.radii
        if not samples.is_field or samples.classes or radii is None or radii[0] <= radii[1]:
            raise InputError(
                "`predictor` must not be a LocalPredictor for vectors, classes or whole fields; "
                "use MLPPredictor, ConvPredictor or an atlas."
            )
        half = min(self.width // 2, radii[0] - radii[1])
        x, y, rows = self._draw(folds, half)
        dictionary = self._dictionary(x, y, samples, half)
        sums = _Sums(dictionary, x, y, rows, folds.count)
        kind, ridge, apart = self._choose(sums, samples.outputs, folds.wanted)
        shape = tuple(samples.targets(torch.arange(1)).shape[3:])

        def maps(k: int) -> list[LocalMap]:
            solution = sums.solve(kind, ridge, k, apart=apart)
            return [dictionary.map(part, sums, shape) for part in solution.split(samples.outputs, dim=-1)]

        return folds.fitted(
            [maps(k) for k in folds.wanted],
            kind=f"{dictionary.names[kind]} on {2 * half + 1}-pixel discs",
            reach=half + 0.5,
        )

    def _draw(self, folds: Folds, half: int) -> tuple[Tensor, Tensor, Tensor]:
        """Neighbourhoods `(K, M, C, F)`, targets with plants `(K, M, O)`, and the fold of every row, `(M,)`."""
        generator = stream(0, "fit", "pixels")
        samples, used = folds.samples, folds.used
        used = samples.in_order(used[torch.randperm(len(used), generator=generator)[: self.pixels]])
        per = max(1, self.pixels // len(used))
        inside = disc(half, samples.size).flatten()
        inputs, outputs = [], []
        for index in used.split(64):
            x, y = folds.read(index)
            d = samples.size
            x = centre_crop(x, tuple(s + 2 * half for s in y.shape[3:]))
            for axis in range(d):
                x = x.unfold(3 + axis, 2 * half + 1, 1)
            x = x.flatten(3 + d).flatten(3, 2 + d)  # (B, K, C, Q, width^d)
            where = torch.rand(len(index), x.shape[3], generator=generator).argsort(1)[:, : min(per, x.shape[3])]
            b = torch.arange(len(index))[:, None]
            inputs.append(x.movedim(3, 1)[b, where][..., inside].flatten(0, 1))  # (B P, K, C, F)
            outputs.append(y.flatten(3).movedim(3, 1)[b, where].flatten(0, 1))
        rows = folds.fold[used].repeat_interleave(inputs[0].shape[0] // min(64, len(used)))
        return torch.cat(inputs).movedim(1, 0).double(), torch.cat(outputs).movedim(1, 0).double(), rows

    def _dictionary(self, x: Tensor, y: Tensor, samples: Samples, half: int) -> Dictionary:
        """Components of the neighbourhood, the same for all charts, and what is formed of them.

        These are principal components of every channel, and what the best linear map gives for every output: where a
        map is a curve of one linear function of the inputs, least squares find that function (Brillinger). The pixel
        itself comes third, and directions along which outputs are bent most last.
        """
        channels, pixels = x.shape[2:]
        mean = x.mean((0, 1, 3))  # (C,)
        centred = (x - mean[:, None]).flatten(0, 1)  # (K M, C, F)
        covariance = torch.einsum("mcf,mcg->cfg", centred, centred) / len(centred)
        values, vectors = torch.linalg.eigh(covariance)
        rank = _whole(values.flip(-1), min(self.components, pixels))
        size = values[:, -rank:].clamp_min(1e-8 * values.amax(-1, keepdim=True).clamp_min(1e-30)).sqrt()
        principal = (vectors[..., -rank:] / size[:, None]).flip(-1).mT  # (C, R, F), the largest first
        frame = torch.zeros(channels, rank, channels, pixels, dtype=torch.float64)
        frame[torch.arange(channels), :, torch.arange(channels)] = principal
        wide = centred.flatten(1)
        gram = wide.mT @ wide
        ridge = 1e-6 * gram.diagonal().mean() * torch.eye(len(gram), dtype=torch.float64)
        target = y[..., : samples.outputs].flatten(0, 1)
        best = torch.linalg.solve(gram + ridge, wide.mT @ (target - target.mean(0))).mT  # (O, C F)
        # What happens at the pixel itself may be large beside what is to be tested: a reaction beside a diffusion.
        best = torch.cat([best, torch.eye(channels * pixels, dtype=torch.float64)[pixels // 2 :: pixels]])
        best = best / (wide @ best.mT).std(0).clamp_min(1e-30)[:, None]
        bent = _bent(wide, target, self.bent)
        count = channels * rank
        lines = list(range(count, count + len(best)))
        few = [c * rank + r for c in range(channels) for r in range(min(self.few, rank))]
        triples = torch.tensor(list(combinations_with_replacement([*few, *lines], 3))).reshape(-1, 3)
        last = count + len(lines)
        groups = [range(c * rank, c * rank + min(4, rank)) for c in range(channels)]
        groups += [range(last + o * self.bent, last + (o + 1) * self.bent) for o in range(len(bent) // self.bent)]
        pairs = [pair for group in groups for pair in combinations(group, 2)]
        angles = (torch.arange(self.angles, dtype=torch.float64) + 0.5) * math.pi / self.angles
        mixtures = torch.zeros(last + len(bent), (len(pairs) + len(lines)) * self.angles, dtype=torch.float64)
        offsets = torch.zeros(mixtures.shape[1], dtype=torch.float64)
        for place, (i, j) in enumerate(pairs):
            columns = slice(place * self.angles, (place + 1) * self.angles)
            mixtures[i, columns], mixtures[j, columns] = angles.cos(), angles.sin()
        for place, line in enumerate(lines, start=len(pairs)):
            columns = slice(place * self.angles, (place + 1) * self.angles)
            mixtures[line, columns], offsets[columns] = 1.0, torch.linspace(-2.0, 2.0, self.angles).double()
        frame = torch.cat([frame.reshape(count, -1), best, bent]).unflatten(1, (channels, pixels))
        return Dictionary(mean, frame, triples, torch.tensor(lines), mixtures, offsets, disc(half, samples.size), half)

    def _choose(self, sums: _Sums, outputs: int, folds: Sequence[int]) -> tuple[int, float, bool]:
        """Number of the kind, ridge, and whether charts have laws of their own."""

        def best(kind: int, apart: bool) -> tuple[float, float]:
            return min((sums.loss(kind, ridge, folds[0], outputs, apart=apart), ridge) for ridge in self.ridges)

        shared = [best(kind, False) for kind in range(len(sums.dictionary.names))]
        least = min(shared)[0]
        kind = next(k for k, (loss, _) in enumerate(shared) if loss <= (1 + self.slack) * least)
        own = best(kind, True)
        if own[0] * (1 + self.slack) < shared[kind][0]:
            return kind, own[1], True
        return kind, shared[kind][1], False


def _whole(values: Tensor, least: int) -> int:
    """Number of components, at least so many or up to two more, after which descending eigenvalues `(C, F)` fall most.

    Components of isotropic fields come in pairs that rotate into each other: one without the other would see an axis.
    """
    ends = range(least, min(least + 2, values.shape[-1] - 1) + 1)
    drops = {r: float((values[:, r - 1] / values[:, r].clamp_min(1e-300)).min()) for r in ends}
    return max(drops, key=drops.__getitem__, default=least)


def _bent(wide: Tensor, target: Tensor, count: int) -> Tensor:
    """Directions along which outputs are bent most, `count` for each of at most two, `(b, D)`, each of unit size.

    Principal Hessian directions: eigenvectors of the second moments of whitened inputs, weighted by the output. Samples
    far out count less, since tails are heavy.

    Arguments:
        wide: Inputs `(M, D)` of mean zero.
        target: Outputs `(M, O)`.

    References:
        Li, On principal Hessian directions for data visualization and dimension reduction, JASA 87 (1992).
    """
    values, vectors = torch.linalg.eigh(wide.mT @ wide / len(wide))
    rank = min(_WHITE, wide.shape[1])
    size = values[-rank:].clamp_min(1e-8 * values[-1].clamp_min(1e-30)).sqrt()
    frame = vectors[:, -rank:] / size
    z = wide @ frame
    z = z / (1 + z.square().mean(-1, keepdim=True)).sqrt()
    z = z - z.mean(0)
    z = torch.cat([z, torch.ones_like(z[:, :1])], dim=1)
    found = []
    for y in target.mT[:2]:
        # What is linear in the inputs bends nothing.
        rest = y - z @ torch.linalg.lstsq(z, y[:, None]).solution[:, 0]
        moment = torch.einsum("m,mi,mj->ij", rest, z[:, :-1], z[:, :-1]) / len(z)
        bends, directions = torch.linalg.eigh(moment)
        found.append((frame @ directions[:, bends.abs().argsort(descending=True)[:count]]).mT)
    made = torch.cat(found)
    return made / (wide @ made.mT).std(0).clamp_min(1e-30)[:, None]


class _Sums:
    """Normal equations of all charts and folds, and the rows that choose."""

    def __init__(self, dictionary: Dictionary, x: Tensor, y: Tensor, rows: Tensor, folds: int) -> None:
        self.dictionary, self.rows, self.y = dictionary, rows, y
        features = torch.stack([dictionary.features(part) for part in x])  # (K, M, F)
        self.mean, self.size = features.mean((0, 1)), features.std((0, 1)).clamp_min(1e-12)
        self.features = torch.cat([(features - self.mean) / self.size, torch.ones_like(features[..., :1])], dim=-1)
        parts = [self.features[:, rows == k] for k in range(folds)]
        self.gram = torch.stack([p.mT @ p for p in parts])  # (folds, K, F + 1, F + 1)
        self.right = torch.stack([p.mT @ y[:, rows == k] for k, p in enumerate(parts)])

    def solve(self, kind: int, ridge: float, fold: int, *, apart: bool) -> Tensor:
        """Weights with the constant last, `(K, F + 1, O)`, from all folds but one; zero for terms of other kinds."""
        others = [k for k in range(len(self.gram)) if k != fold]
        gram, right = self.gram[others].sum(0), self.right[others].sum(0)
        if not apart:
            gram, right = gram.sum(0, keepdim=True), right.sum(0, keepdim=True)
        keep = torch.cat([self.dictionary.columns(kind), torch.tensor([gram.shape[-1] - 1])])
        rows = gram[:, -1:, -1:]
        charge = ridge * torch.ones(len(keep), dtype=torch.float64)
        charge[-1] = 0.0
        normal = gram[:, keep][:, :, keep] / rows + torch.diag(charge + 1e-12)
        solved = torch.zeros_like(right)
        solved[:, keep] = torch.linalg.solve(normal, right[:, keep] / rows)
        return solved.expand(len(self.features), -1, -1)

    def loss(self, kind: int, ridge: float, fold: int, outputs: int, *, apart: bool) -> float:
        """Squared error of the targets on held-out pixels, in units of their spread."""
        weight = self.solve(kind, ridge, fold, apart=apart)[..., :outputs]
        mine = self.rows == fold
        y = self.y[:, mine, :outputs]
        error = (self.features[:, mine] @ weight - y).square().sum((0, 1))
        value = float((error / (y - y.mean((0, 1))).square().sum((0, 1)).clamp_min(1e-300)).mean())
        return value if math.isfinite(value) else math.inf
