"""Regression of vectors in closed form: monomials, and bumps around some of the data, with a ridge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement, product
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.errors import InputError
from atlasd.prediction.predictor import ClosedForm, FittedPredictor, Folds
from atlasd.prediction.skill import strongest_wave
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_ROWS, _CACHED = 1024, 1 << 16
"""Inputs whose features are formed together, and values of bumps: they stay in the cache."""
_LOOKED = 3000
"""Samples whose held-out errors choose features and ridge."""
_FEW = 200
"""Bumps that are enough to compare widths."""
_LEAST_BUMPS = 10
"""Bumps of a pair with which it is worth beginning."""
_JITTER = 1e-10
"""What is added to covariances of bumps: they are singular to rounding."""
_LEAST = 1e-6
"""The smallest probability that is told."""


@dataclass(frozen=True, kw_only=True)
class FormPredictor(ClosedForm):
    """Ridge regression on monomials, alone or with bumps; held-out data say which, and how much ridge.

    Exact where the law is a polynomial, and hard to beat where it is smooth and components are few. Bumps are Gaussian,
    for laws without kinks, or Matern functions of order 5/2, which follow kinks, and heavy tails of the inputs. Sums of
    normal equations serve all folds, and all that is planted.

    Arguments:
        widths: Widths of the bumps, relative to the size of the inputs; Matern functions are twice as wide.
        ridges: Ridge strengths, relative to the mean square of the features.
        waves: The most plane waves that are added where errors hold them: no smooth feature follows a short one.

    Example:
        >>> from atlasd.prediction.fit import fit_predictor
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> fit_predictor(x, x.square().sum(-1), predictor=FormPredictor()).skill > 0.9999
        True
    """

    degree: int = 4
    widths: tuple[float, ...] = (0.17, 0.35, 0.7, 1.5, 3.0)
    bumps: int = 800
    most: int = 1000
    ridges: tuple[float, ...] = (1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    waves: int = 4

    chooses: ClassVar[bool] = True
    """Features follow from the targets: with something planted in them, they are chosen anew."""

    @property
    def quick(self) -> FormPredictor:
        """The recipe for targets with something planted: few bumps are enough to notice it.

        Waves are planted: a search for waves would find them, and tell nothing about other breakings.
        """
        return replace(self, bumps=min(self.bumps, _FEW), waves=0)

    def __post_init__(self) -> None:
        if min(self.degree, self.bumps, self.most) < 1 or not self.ridges:
            raise InputError(
                f"`degree`, `bumps` and `most` must be positive, got {self}; leave them at their defaults."
            )

    def fit_folds(self, folds: Folds, *, progress: Progress) -> list[list[FittedPredictor]]:
        """Maps for every fold, as `ClosedForm` says."""
        samples, wanted, fewest = folds.samples, folds.wanted, folds.fewest
        if samples.is_field:
            raise InputError("`predictor` must not be a FormPredictor for fields; leave it at its default.")
        used = samples.in_order(folds.used)
        drawn = used[torch.randperm(len(used), generator=stream(0, "fit", "bumps"))]
        near = _rows(samples, drawn[: max(self.bumps, _LOOKED)])

        def best(kinds: list[_Features]) -> tuple[float, _Sums, float]:
            sums = [_Sums(features, folds, used, drawn[:_LOOKED]) for features in kinds]
            tried = [
                (loss, s, r) for s in sums for loss, r in zip(s.losses(self.ridges, wanted), self.ridges, strict=True)
            ]
            return min(tried, key=lambda found: found[0])

        # Few bumps say which width is best, and many are used.
        tokens = samples.x.shape[1] if samples.x.ndim == 3 else 1
        loss, sums, ridge = best(self._kinds(near, fewest, _FEW, tokens))
        if len(sums.features.centres):
            kinds = self._kinds(near, fewest, self.bumps, tokens)
            more = best([f for f in kinds if f.shape == sums.features.shape])
            loss, sums, ridge = min((loss, sums, ridge), more, key=lambda found: found[0])
        for _ in range(self.waves):
            wave = strongest_wave(*sums.left(near, ridge, wanted), stream(0, "fit", "waves"))
            more = (math.inf, sums, ridge) if wave is None else best([sums.features.with_wave(wave)])
            if more[0] >= loss:
                break
            loss, sums, ridge = more
        return folds.fitted(
            [sums.maps(ridge, k, classes=samples.classes) for k in folds.wanted], kind=sums.features.name
        )

    def _kinds(self, x: Tensor, count: int, bumps: int, tokens: int) -> list[_Features]:
        """Features that a number of samples allows, for inputs like `(M, D)`, with so many bumps at most.

        Bumps fill a space of a few dimensions. Differences of two vectors of a set are such a space, and forces between
        two bodies are functions of them.
        """
        inputs = x.shape[1]
        kinds: list[_Features] = []
        for degree in range(1, self.degree + 1):
            if degree == 1 or math.comb(inputs + degree, degree) <= min(self.most, count // 2):
                kinds.append(_Features(f"polynomial of degree {degree}", inputs, degree))
        bumps = min(bumps, self.bumps, count, self.most - math.comb(inputs + 2, 2))
        if bumps <= 0:
            return kinds
        pairs = tokens * (tokens - 1) // 2
        apart = _differences(x, tokens).flatten(0, 1) if pairs and bumps >= _LEAST_BUMPS * pairs else x[:0]
        for w, kinked in product(self.widths, (False, True)):
            name, w = f"{'kinked ' * kinked}bumps of width {w:g}", w * (1 + kinked)
            size = float(x.square().sum(-1).mean().sqrt())
            kinds.append(_Features(f"{bumps} {name}", inputs, 2, x[:bumps], w * size, kinked))
            if len(apart):
                size, each = float(apart.square().sum(-1).mean().sqrt()), bumps // pairs
                one = _Features(f"{each} {name} for each pair", inputs, 2, apart[:each], w * size, kinked, tokens)
                all_of_them = replace(one, name=f"{bumps} {name} for all pairs", centres=apart[:bumps], alike=True)
                kinds += [one, all_of_them]
        return kinds


def _differences(x: Tensor, tokens: int) -> Tensor:
    """Differences of all pairs of the vectors `(M, P n)` of a set, `(M, pairs, n)`."""
    i, j = torch.triu_indices(tokens, tokens, 1)
    x = x.unflatten(1, (tokens, -1))
    return x[:, i] - x[:, j]


def _rows(samples: Samples, index: Tensor) -> Tensor:
    """Inputs of some samples as rows `(M, D)`."""
    return samples.inputs(index)[:, 0].flatten(1).double()


def _values(samples: Samples, index: Tensor) -> Tensor:
    """Targets of some samples as rows; shares of the classes, where these are the targets."""
    y = samples.targets(index)[:, 0]
    return functional.one_hot(y, samples.classes).double() if samples.classes and y.ndim == 1 else y.double()


@storable()
@dataclass(frozen=True, eq=False)
class _Features:
    """Monomials of inputs `(M, D)` up to a degree, and bumps around centres `(C, D)`, as columns `(M, F)`.

    With several tokens, bumps are those of the differences of each pair of them, around centres `(C, n)`; or their
    sums over all pairs, in either sense, where tokens are alike.
    """

    name: str
    inputs: int
    degree: int
    centres: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    width: float = 1.0
    kinked: bool = False
    tokens: int = 1
    alike: bool = False
    waves: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))

    def with_wave(self, wave: Tensor) -> _Features:
        """The same with one plane wave `(D,)` more."""
        waves = torch.cat([self.waves.reshape(-1, self.inputs), wave[None]])
        name = f"{self.name.split(' with ')[0]} with {len(waves)} wave{'s' * (len(waves) > 1)}"
        return replace(self, name=name, waves=waves)

    @property
    def shape(self) -> tuple[float, bool, int, bool]:
        """What tells kinds of bumps apart."""
        return self.width, self.kinked, self.tokens, self.alike

    def __call__(self, x: Tensor) -> Tensor:
        columns = []
        power: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(x[:, 0])}
        for degree in range(1, self.degree + 1):
            for term in combinations_with_replacement(range(self.inputs), degree):
                power[term] = power[term[:-1]] * x[:, term[-1]]
                columns.append(power[term])
        out = torch.stack(columns, dim=-1)
        if len(self.waves):
            phase = x @ self.waves.mT.to(x.dtype)
            out = torch.cat([out, phase.cos(), phase.sin()], dim=-1)
        if len(self.centres):
            centres = self.centres.to(x.dtype) / self.width
            x = (x if self.tokens == 1 else _differences(x, self.tokens)) / self.width
            rows = max(_CACHED // (len(centres) * x.shape[1:-1].numel()), 16)
            parts = [self._bumps(part, centres) for part in x.split(rows)]
            out = torch.cat([out, torch.cat(parts)], dim=-1)
        return out

    def frame(self, spread: Tensor) -> Tensor:
        """Combinations of the columns that a ridge holds small alike, `(F, F)`.

        Monomials count in their own spread `(F,)`. Bumps are combined to functions without covariance: a regression on
        them is the best guess of a random function whose covariance the bumps are, and more of them make it no worse.
        """
        if not len(self.centres):
            return (1 / spread).diag()
        x = self.centres / self.width
        both = self._bumps(x if self.tokens == 1 else x[:, None], x)
        # Squared distances of centres that are far out are known up to rounding of their own squares.
        jitter = _JITTER + len(x) * torch.finfo(x.dtype).eps * float(x.square().sum(-1).max())
        root = torch.linalg.cholesky(both + jitter * torch.eye(len(x), dtype=torch.float64))
        white = torch.linalg.inv(root).mT
        pairs = self.tokens * (self.tokens - 1) // 2 if self.tokens > 1 and not self.alike else 1
        return torch.block_diag((1 / spread[: -pairs * len(x)]).diag(), *[white] * pairs)

    def _bumps(self, x: Tensor, centres: Tensor) -> Tensor:
        """Bumps of unit width around centres `(C, n)` at `(M, n)`, or at places `(M, P, n)` side by side or summed."""
        # -|x - c|^2 / 2, without an array for each term.
        ones = torch.ones_like
        level = torch.cat([x, -0.5 * x.square().sum(-1, keepdim=True), ones(x[..., :1])], dim=-1)
        ends = torch.cat([centres, ones(centres[:, :1]), -0.5 * centres.square().sum(-1, keepdim=True)], dim=-1)
        if not self.alike:
            return self._profile(level @ ends.mT).flatten(1)
        ends = torch.cat([ends, torch.cat([-centres, ends[:, x.shape[-1] :]], dim=-1)])  # the mirror images beside them
        return self._profile(level @ ends.mT).sum(1).unflatten(-1, (2, -1)).sum(1)

    def _profile(self, level: Tensor) -> Tensor:
        """A bump by minus half of the squared distance, which is the exponent of a Gaussian one."""
        if not self.kinked:
            return level.exp()
        r = (-10 * level).clamp_min(1e-20).sqrt()  # sqrt(5) times the distance
        return torch.addcmul(1 + r, r, r, value=1 / 3) * (-r).exp()


class _Sums:
    """Normal equations of one kind of features, fold by fold, and some of the rows to choose by."""

    def __init__(self, features: _Features, folds: Folds, used: Tensor, looked: Tensor, batch: int = 2048) -> None:
        samples, fold, count = folds.samples, folds.fold, folds.count
        self.features, self.outputs = features, samples.classes or samples.outputs
        near = features(_rows(samples, looked))
        # A monomial that one wild sample rules is not worth its weight: the ridge sees standard columns.
        self.mean, self.frame = near.mean(0), features.frame(near.std(0).clamp_min(1e-12))
        self.near, self.wanted, self.near_fold = (near - self.mean) @ self.frame, _values(samples, looked), fold[looked]
        # Outputs in standard units are comparable as they are: a component of a velocity that does not change is small.
        standard = samples.units is not None and len(samples.units.outputs) > 0
        self.scale = torch.ones(1, dtype=torch.float64) if standard else self.wanted.std(0).clamp_min(1e-300)
        self.gram = torch.zeros(count, near.shape[1] + 1, near.shape[1] + 1, dtype=torch.float64)
        self.right: Tensor | None = None
        for index in used.split(batch):
            x = samples.inputs(index)
            columns = (features(x[:, 0].flatten(1).double()) - self.mean) @ self.frame
            columns = torch.cat([columns, torch.ones_like(columns[:, :1])], dim=-1)
            y = torch.cat([_values(samples, index), *(plant(x)[:, 0].double() for plant in folds.plants)], dim=-1)
            if self.right is None:
                self.right = torch.zeros(count, columns.shape[1], y.shape[1], dtype=torch.float64)
            for k in range(count):
                mine = fold[index] == k
                self.gram[k] += columns[mine].mT @ columns[mine]
                self.right[k] += columns[mine].mT @ y[mine]

    def solve(self, ridges: Sequence[float], fold: int, outputs: int | None = None) -> Tensor:
        """Weights from all folds but one with the constant last, `(R, F + 1, O)`; NaN where rounding forbids it.

        Arguments:
            outputs: How many columns are solved for; all by default, with what is planted.
        """
        assert self.right is not None
        gram, right = (part.sum(0) - part[fold] for part in (self.gram, self.right[..., :outputs]))
        rows = gram[-1, -1]
        mean, target = gram[:-1, -1:] / rows, right[-1:] / rows
        covariance = gram[:-1, :-1] / rows - mean @ mean.mT
        diagonal = torch.eye(len(covariance), dtype=torch.float64) * covariance.new_tensor(ridges)[:, None, None]
        factor, failed = torch.linalg.cholesky_ex(covariance + diagonal)
        weight = torch.cholesky_solve((right[:-1] / rows - mean @ target).expand(len(ridges), -1, -1), factor)
        weight = torch.where(failed[:, None, None] > 0, torch.nan, weight)
        return torch.cat([weight, target - mean.mT @ weight], dim=1)

    def losses(self, ridges: Sequence[float], folds: Sequence[int]) -> list[float]:
        """Squared error of the targets on held-out samples for each ridge, infinite where rounding forbids one."""
        total = sum(self._errors(ridges, k).square().sum((1, 2)) for k in folds)
        return torch.as_tensor(total).nan_to_num(math.inf).tolist()

    def left(self, x: Tensor, ridge: float, folds: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Inputs, of rows `(M, D)` from which those to choose by were taken first, and held-out errors `(M, O)`."""
        order = torch.cat([(self.near_fold == k).nonzero().flatten() for k in folds])
        return x[order], torch.cat([self._errors([ridge], k)[0] for k in folds])

    def _errors(self, ridges: Sequence[float], fold: int) -> Tensor:
        """Errors of the held-out samples of a fold for each ridge, `(R, M, O)`."""
        weight = self.solve(ridges, fold, self.outputs)
        mine = self.near_fold == fold
        return (self.near[mine] @ weight[:, :-1] + weight[:, -1:] - self.wanted[mine]) / self.scale

    def maps(self, ridge: float, fold: int, *, classes: int) -> list[_Forms]:
        """The map of the targets, and after it those of the plants."""
        (weight,) = self.solve([ridge], fold)
        raw = self.frame @ weight[:-1]
        both = zip(raw.split(self.outputs, dim=-1), (weight[-1] - self.mean @ raw).split(self.outputs), strict=True)
        return [_Forms(self.features, part, shift, classes) for part, shift in both]


@storable("features", "weight", "shift", "classes")
class _Forms:
    """The fitted map: inputs `(B, 1, *in)` to outputs `(B, 1, O)`; logarithms of probabilities for classes."""

    def __init__(self, features: _Features, weight: Tensor, shift: Tensor, classes: int = 0) -> None:
        self.features, self.weight, self.shift, self.classes = features, weight, shift, classes

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1).flatten(1).double()
        y = torch.cat([self.features(part) @ self.weight for part in rows.split(_ROWS)])
        out = (y + self.shift).unflatten(0, x.shape[:2])
        return (out.clamp_min(_LEAST).log() if self.classes else out).to(x.dtype)
