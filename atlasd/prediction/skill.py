"""Held-out skill of a predictor against the best trivial models, and what is left in its errors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.geometry.resample import convolve
from atlasd.limits import CLEAR
from atlasd.prediction.trivial import Batches, centre_crop, chart_skill, fit_pointwise, pooled_skill


@dataclass(frozen=True, eq=False)
class Skill:
    """Skill per chart, with shape `(K,)`, and pooled."""

    charts: Tensor
    pooled: float


def measure_skill(
    function: Callable[[Tensor], Tensor],
    samples: Samples,
    train: Tensor,
    held_out: Tensor,
    *,
    batch: int = 64,
    limit: int | None = None,
    inner: tuple[int, ...] | None = None,
) -> Skill:
    """Compares held-out errors with those of a constant and, on fields, of the best pointwise map.

    Arguments:
        function: The predictor, giving logits for classes.
        train: Indices that the trivial models may see.
        held_out: Indices that judge.
        limit: The most samples looked at on each side; by default 512, or 128 fields, each of which has many pixels.
        inner: Shape of the middle of the outputs that counts, all of them by default.
    """
    limit = limit or (128 if samples.is_field else 512)
    train, held_out = (samples.in_order(i[:: -(-len(i) // limit) or 1]) for i in (train, held_out))
    if samples.classes:
        return _class_skill(function, samples, train, held_out, batch)

    middle: Callable[[Tensor], Tensor] = (lambda y: y) if inner is None else partial(centre_crop, shape=inner)
    pairs = Batches(lambda index: (samples.inputs(index), middle(samples.targets(index))), train, batch)
    mean = sum(y.double().sum(0) for _, y in pairs) / len(train)
    assert isinstance(mean, Tensor)
    if samples.is_field:  # a constant may not depend on the pixel
        mean = mean.flatten(2).mean(-1)[(..., *([None] * samples.size))]
    pointwise = fit_pointwise(pairs) if samples.is_field else None
    totals = torch.zeros(3, len(samples.atlas), dtype=torch.float64)
    with torch.no_grad():
        for index in held_out.split(batch):
            x, y = samples.inputs(index), middle(samples.targets(index))
            guess = middle(function(x))
            guesses = [guess, mean.expand_as(y)]
            if pointwise is not None:
                guesses.append(pointwise(x, tuple(y.shape[3:])))
            for row, guess in enumerate(guesses):
                totals[row] += (guess - y).double().square().flatten(2).mean(-1).sum(0)
    charts = chart_skill(totals[0], totals[1], totals[2] if pointwise is not None else None)
    return Skill(charts, pooled_skill(charts))


def _class_skill(
    function: Callable[[Tensor], Tensor], samples: Samples, train: Tensor, held_out: Tensor, batch: int
) -> Skill:
    """Share of the entropy of the class frequencies that is explained."""
    counts = torch.zeros(len(samples.atlas), samples.classes, dtype=torch.float64)
    for index in train.split(batch):
        counts += _shares(samples.targets(index), samples.classes).flatten(3).sum((0, 3))
    prior = ((counts + 0.5) / (counts + 0.5).sum(-1, keepdim=True)).log()
    totals = torch.zeros(2, len(samples.atlas), dtype=torch.float64)
    with torch.no_grad():
        for index in held_out.split(batch):
            share = _shares(samples.targets(index), samples.classes).flatten(3)
            logits = torch.log_softmax(function(samples.inputs(index)).double(), dim=2).unsqueeze(-1).flatten(3)
            for row, guess in enumerate((logits, prior[None, :, :, None])):
                totals[row] -= (share * guess).sum(2).mean(-1).sum(0)
    charts = chart_skill(totals[0], totals[1])
    return Skill(charts, pooled_skill(charts))


def _shares(target: Tensor, classes: int) -> Tensor:
    """Probabilities `(B, K, classes, *pixels, 1)`: one-hot for classes, as they are where something was planted."""
    if target.is_floating_point():
        return target.double().unsqueeze(-1)
    return functional.one_hot(target, classes).movedim(-1, 2).double().unsqueeze(-1)


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


_STARTS, _KEPT = 256, 24
_FINEST = 5.0
"""The shortest waves that are looked for, in radians for each unit of the inputs' spread."""


def strongest_wave(x: Tensor, errors: Tensor, generator: torch.Generator) -> Tensor | None:
    r"""The wave vector `(D,)` at which errors have most power, where that is no accident; otherwise `None`.

    The power is :math:`|\sum_m e_m \exp(i k x_m)|^2 / \sum_m e_m^2`. In units of the spread of the inputs it falls as
    :math:`\exp(-|k - q|^2)` around its maximum at q, so that half of the gradient of its logarithm leads there.

    Arguments:
        x: Inputs, `(M, D)`.
        errors: `(M, O)`.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(1000, 3, generator=generator, dtype=torch.float64)
        >>> wave = strongest_wave(x, torch.sin(x @ x.new_tensor([2.0, -2.0, 1.0]))[:, None], generator)
        >>> (wave * wave[0].sign()).round().tolist()
        [2.0, -2.0, 1.0]
    """
    spread = x.std(0).clamp_min(1e-300)
    x = (x - x.mean(0)) / spread
    scaled = errors / errors.square().sum(0).sqrt().clamp_min(1e-300)
    waves = torch.randn(_STARTS, x.shape[1], generator=generator, dtype=x.dtype)
    length = _FINEST * torch.rand(_STARTS, 1, generator=generator, dtype=x.dtype)
    waves = length * waves / waves.norm(dim=1, keepdim=True)
    for count, steps in ((_STARTS, 3), (_KEPT, 12)):
        waves = waves[_power(x, scaled, waves)[0].argsort(descending=True)[:count]]
        for _ in range(steps):
            power, slope = _power(x, scaled, waves)
            waves = waves + slope / (2 * power.clamp_min(1e-300))[:, None]
            waves = waves * (2 * _FINEST / waves.norm(dim=1, keepdim=True).clamp_min(1e-300)).clamp_max(1.0)
    power, _ = _power(x, scaled, waves)
    best = int(power.argmax())
    return waves[best] / spread if float(power[best]) >= CLEAR**2 + errors.shape[1] else None


def _power(x: Tensor, errors: Tensor, waves: Tensor) -> tuple[Tensor, Tensor]:
    """Power `(S,)` of errors `(M, O)` at waves `(S, D)`, and its gradient `(S, D)`."""
    phase = waves @ x.mT  # (S, M)
    even, odd = phase.cos(), phase.sin()
    real, imaginary = even @ errors, odd @ errors  # (S, O)
    power = real.square() + imaginary.square()
    # d real = -sum e x sin, d imaginary = sum e x cos, summed over outputs.
    pull = imaginary @ errors.mT * even - real @ errors.mT * odd  # (S, M)
    return power.sum(1), 2 * pull @ x
