"""Predictors for sets of vectors: learned quadratic forms of pooled momenta, and a sum over tokens.

Most invariants of matrix groups are built of bilinear forms. `MomentPredictor` learns which ones: it pools a few
weighted sums of the tokens, takes all products of their components, and learns combinations of these. No metric is
assumed, all components share one unit, and a set is seen without its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.prediction.networks import initialise, uniform
from atlasd.prediction.neural import Architecture, FitsMany, fit_modules
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.train import Job, Schedule
from atlasd.runtime.progress import Progress

_LADDER = (1.0, 10.0, 100.0, 1000.0)
"""Scales of a form under asinh: a mass is resolved near zero and far from it."""
_SLOW = 0.01
"""Steps of the forms relative to those of the other weights: they start near the answer."""
_BINS = 400
_FLOOR = 1e-4
"""Directions of the products that vary less than this share of the largest are noise of the data."""


class _Units(nn.Module):
    """What every network on vectors has: one unit for all components, and the units of the outputs."""

    unit: Tensor
    out_shift: Tensor
    out_scale: Tensor

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.register_buffer("unit", torch.ones(()))
        self.register_buffer("out_shift", torch.zeros(outputs))
        self.register_buffer("out_scale", torch.ones(outputs))

    def tokens(self, x: Tensor) -> Tensor:
        """Inputs `(B, 1, n)` or `(B, 1, P, n)` in units of their size, `(B, 1, P, n)`."""
        return (x if x.ndim == 4 else x.unsqueeze(2)) / self.unit


def _perceptron(widths: Sequence[int], generator: torch.Generator) -> nn.ModuleList:
    layers = nn.ModuleList(skip_init(nn.Linear, a, b) for a, b in pairwise(widths))
    initialise(layers, generator)
    return layers


def _through(layers: nn.ModuleList, z: Tensor, last: bool = False) -> Tensor:
    """SiLU between layers, and after the last one if asked for."""
    for i, layer in enumerate(layers):
        z = layer(z)
        z = functional.silu(z) if last or i < len(layers) - 1 else z
    return z


class MomentNetwork(_Units):
    r"""A perceptron on :math:`\mathrm{asinh}(F_h)`, with quadratic forms F of pooled vectors.

    :math:`V_q = \sum_p w_q(|p|)\, p`, :math:`F_h = \sum_{q \le r} V_q^T W_{hqr} V_r`, w and W learned; the first
    pool is the plain sum.

    Arguments:
        components: Size n of a token.
    """

    white: Tensor
    first: Tensor

    def __init__(
        self,
        components: int,
        outputs: int,
        *,
        pools: int,
        forms: int,
        hidden: Sequence[int],
        generator: torch.Generator,
    ) -> None:
        super().__init__(outputs)
        n = components
        pairs = [(q, r) for q in range(pools) for r in range(q, pools)]
        # A vector with itself gives n (n + 1) / 2 products, two vectors n^2: areas are among their forms.
        places = [(q, r, i, j) for q, r in pairs for i in range(n) for j in range(i if q == r else 0, n)]
        self.register_buffer("places", torch.tensor([(q * n + i, r * n + j) for q, r, i, j in places]).mT)
        self.sizes = _perceptron((1, 16, pools - 1), generator) if pools > 1 else None
        terms = len(places) + pools * n
        self.change = nn.Parameter(torch.zeros(forms, terms))
        self.register_buffer("first", uniform((forms, terms), 1, generator))
        self.register_buffer("white", torch.eye(terms))
        self.layers = _perceptron((forms, *hidden, outputs), generator)

    def products(self, x: Tensor) -> Tensor:
        """Products of components of pooled vectors, and these themselves, `(B, 1, terms)`.

        Forms alone would be even: nothing odd could be learned.
        """
        p = self.tokens(x)
        if self.sizes is None:
            v = p.sum(2)
        else:
            # Padding is zero and stays zero, whatever its weight.
            size = (p.square().sum(-1, keepdim=True) + 1e-6).log() / 2
            w = torch.cat([torch.ones_like(size), _through(self.sizes, size)], dim=-1)
            v = torch.einsum("bkpq,bkpi->bkqi", w, p).flatten(2)
        places = self.get_buffer("places")
        return torch.cat([v[..., places[0]] * v[..., places[1]], v], dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """Inputs `(B, 1, n)` or `(B, 1, P, n)` to outputs `(B, 1, outputs)`."""
        forms = (self.first + _SLOW * self.change) @ self.white
        return _through(self.layers, torch.asinh(self.products(x) @ forms.mT)) * self.out_scale + self.out_shift

    @torch.no_grad()
    def start(self, x: Tensor, y: Tensor, classes: int, generator: torch.Generator) -> None:
        """Takes the forms that go with the targets best as the first ones, in closed form.

        With the products whitened, the canonical correlations with the bins of the targets (or the classes) say
        which combinations the targets depend on. The rest of the forms is random.

        Arguments:
            x: Inputs `(B, 1, *in)`.
            y: Targets `(B, 1, outputs)`, or classes `(B, 1)`.
        """
        f = self.products(x).double().flatten(0, 1)
        # Products of heavy-tailed vectors are wild: each sample counts by how large its own are.
        size = f.square().sum(1)
        share = 1 / (size + size.median().clamp_min(1e-300))
        share = share / share.sum()
        f = f - share @ f
        values, vectors = torch.linalg.eigh((share * f.mT) @ f)
        white = vectors / values.clamp_min(0.0).sqrt().clamp_min(_FLOOR * float(values[-1]) ** 0.5)
        u = f @ white
        if classes:
            hard = y.flatten() if y.ndim == 2 else y.flatten(0, 1).argmax(-1)
            parts = [(hard == c).nonzero().flatten() for c in range(classes)]
        else:
            bins = min(_BINS, len(f) // 10)
            parts = [part for column in y.flatten(1).mT for part in column.argsort().tensor_split(bins)]
        parts = [part for part in parts if len(part)]
        means = torch.stack([share[part] @ u[part] / share[part].sum() ** 0.5 for part in parts])
        _, correlation, directions = torch.linalg.svd(means, full_matrices=False)
        noise = (len(parts) * float(share.square().sum())) ** 0.5
        count = len(self.first) // (2 * len(_LADDER))
        kept = directions[:count][correlation[:count] > 2 * noise]
        known = torch.cat([kept * scale for scale in _LADDER])
        rest = torch.randn(len(self.first) - len(known), u.shape[1], generator=generator, dtype=torch.float64)
        self.first.copy_(torch.cat([known, rest / u.shape[1] ** 0.5]))
        self.white.copy_(white.mT)
        # The random ones speak softly at first: they are there for what the others leave over.
        if len(known):
            self.layers[0].get_parameter("weight")[:, len(known) :] *= 0.1


class SetNetwork(_Units):
    """A perceptron on the sum of a perceptron of every token; tokens of zeros do not count.

    Arguments:
        components: Size n of a token.
        inner: Widths of the perceptron of a token.
    """

    def __init__(
        self, components: int, outputs: int, *, inner: Sequence[int], hidden: Sequence[int], generator: torch.Generator
    ) -> None:
        super().__init__(outputs)
        self.inner = _perceptron((components, *inner), generator)
        self.outer = _perceptron((inner[-1], *hidden, outputs), generator)

    def forward(self, x: Tensor) -> Tensor:
        """Inputs `(B, 1, n)` or `(B, 1, P, n)` to outputs `(B, 1, outputs)`."""
        p = self.tokens(x)
        present = (p != 0).any(-1, keepdim=True).to(p.dtype)
        pooled = (_through(self.inner, p, last=True) * present).sum(2)
        return _through(self.outer, pooled) * self.out_scale + self.out_shift


@dataclass(frozen=True, kw_only=True)
class MomentPredictor(FitsMany):
    """Quadratic forms of pooled vectors, then a perceptron; see `MomentNetwork`.

    Arguments:
        pools: The most weighted sums of the tokens; the first is the plain sum, and where that alone explains
            the targets, the others are left out.
        forms: Quadratic forms that are learned.
        hidden: Widths of the perceptron on them.
        enough: Held-out skill at which the plain sum is enough.
        schedule: How to train.

    Example:
        >>> from atlasd.prediction.fit import fit_predictor
        >>> x = torch.randn(500, 2, 3, generator=torch.Generator().manual_seed(0))
        >>> square = x.sum(1).square().sum(-1)
        >>> fit_predictor(x, square, predictor=MomentPredictor()).skill > 0.99
        True
    """

    pools: int = 2
    forms: int = 16
    hidden: tuple[int, ...] = (32,)
    enough: float = 0.999
    schedule: Schedule = Schedule(epochs=60, batch=256, learning_rate=1e-2, patience=20, steps=800, polish=400)

    def __post_init__(self) -> None:
        if min(self.pools, self.forms, *self.hidden) < 1:
            raise InputError(f"`pools`, `forms` and `hidden` must be positive, got {self}.")

    def fit_many(self, jobs: Sequence[Job], *, seed: int, progress: Progress) -> list[FittedPredictor]:
        """Fits one network for each job, all at once."""
        samples = jobs[0].samples
        outputs = _outputs(samples, "MomentPredictor")

        def start(network: nn.Module, job: Job, generator: torch.Generator) -> None:
            assert isinstance(network, MomentNetwork)
            part = job.train[:20_000]
            network.start(samples.inputs(part), job.samples.targets(part), samples.classes, generator)

        def fitted(pools: int) -> list[FittedPredictor]:
            options = {"pools": pools, "forms": self.forms, "hidden": self.hidden}
            return fit_modules(
                Architecture(MomentNetwork, (samples.size, outputs), options),
                jobs, self.schedule, start=start,
                kind=f"moments, {pools} pools, {self.forms} forms", reach=0.0, seed=seed, progress=progress,
            )  # fmt: skip

        # Class labels are never explained in full: there the plain sum cannot be seen to be enough.
        if samples.classes or self.pools == 1:
            return fitted(self.pools)
        plain = fitted(1)
        if plain[0].skill >= self.enough:
            return plain
        more = fitted(self.pools)
        return more if more[0].skill > plain[0].skill else plain


@dataclass(frozen=True, kw_only=True)
class DeepSetsPredictor(FitsMany):
    """A perceptron of every token, a sum, and a perceptron on it; see `SetNetwork`.

    Arguments:
        inner: Widths of the perceptron of a token.
        hidden: Widths of the perceptron on the sum.
        schedule: How to train.
    """

    inner: tuple[int, ...] = (64, 64)
    hidden: tuple[int, ...] = (64,)
    schedule: Schedule = Schedule(epochs=500, batch=256, learning_rate=1e-2, patience=500, steps=12_000, polish=800)

    def __post_init__(self) -> None:
        if not self.inner or min(*self.inner, *self.hidden, 1) < 1:
            raise InputError(f"`inner` and `hidden` must be positive, got {self}.")

    def fit_many(self, jobs: Sequence[Job], *, seed: int, progress: Progress) -> list[FittedPredictor]:
        """Fits one network for each job, all at once."""
        samples = jobs[0].samples
        outputs = _outputs(samples, "DeepSetsPredictor")
        return fit_modules(
            Architecture(SetNetwork, (samples.size, outputs), {"inner": self.inner, "hidden": self.hidden}),
            jobs, self.schedule,
            kind=f"deep sets {'-'.join(map(str, self.inner))}", reach=0.0, seed=seed, progress=progress,
        )  # fmt: skip


def _outputs(samples: Samples, name: str) -> int:
    if samples.is_field:
        raise InputError(f"`predictor` must not be a {name} for fields; use StencilPredictor or ConvPredictor.")
    assert samples.y is not None
    return samples.classes or samples.y.shape[-1]
