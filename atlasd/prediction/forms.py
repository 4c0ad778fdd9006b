"""Regression of vectors in closed form: monomials, or bumps around some of the data, with a ridge."""

from __future__ import annotations

__all__ = ["FormPredictor"]

import math
import time
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.samples import Samples
from atlasd.prediction.skill import measure_skill
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

_ROWS = 1024
"""Inputs whose features are formed together: they stay in the cache."""


@dataclass(frozen=True, kw_only=True)
class FormPredictor:
    """Ridge regression on monomials or on Gaussian bumps; held-out data say which, and how much ridge.

    Exact where the law is a polynomial, and hard to beat where it is smooth, components are few, and samples are
    some hundreds. Solved in closed form.

    Arguments:
        degree: The highest degree of monomials.
        widths: Widths of the bumps, relative to the size of the inputs.
        bumps: The most bumps.
        most: The most features.
        ridges: Ridge strengths, relative to the mean square of the features.

    Example:
        >>> from atlasd.prediction.fit import fit_predictor
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> fit_predictor(x, x.square().sum(-1), predictor=FormPredictor()).skill > 0.9999
        True
    """

    degree: int = 4
    widths: tuple[float, ...] = (0.7, 1.5, 3.0)
    bumps: int = 500
    most: int = 900
    ridges: tuple[float, ...] = (1e-12, 1e-9, 1e-7, 1e-5, 1e-3, 1e-2, 1e-1)

    def __post_init__(self) -> None:
        if min(self.degree, self.bumps, self.most) < 1 or not self.ridges:
            raise InputError(
                f"`degree`, `bumps` and `most` must be positive, got {self}; leave them at their defaults."
            )

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Solves every kind of features, and takes the best on `held_out`."""
        if samples.is_field or samples.classes:
            raise InputError("`predictor` must not be a FormPredictor for fields or classes; leave it at its default.")
        started = time.perf_counter()
        x, y = samples.inputs(train)[:, 0].flatten(1).double(), samples.targets(train)[:, 0].double()
        far, wanted = samples.inputs(held_out)[:, 0].flatten(1).double(), samples.targets(held_out)[:, 0].double()
        shift, scale = y.mean(0), y.std(0).clamp_min(1e-300)
        best: tuple[float, _Forms] | None = None
        for features in self._kinds(x, stream(seed, "fit", "bumps")):
            columns, there = features(x), features(far)
            mean, size = columns.mean(0), columns.std(0).clamp_min(1e-12)
            # A monomial that one wild sample rules is not worth its weight: the ridge sees standard columns.
            columns, there = (columns - mean) / size, (there - mean) / size
            gram, right = columns.mT @ columns / len(x), columns.mT @ ((y - shift) / scale) / len(x)
            eye = torch.eye(len(gram), dtype=torch.float64)
            for ridge in self.ridges:
                weight = torch.linalg.solve(gram + ridge * eye, right)
                loss = float(((there @ weight) * scale + shift - wanted).div(scale).square().mean())
                if math.isfinite(loss) and (best is None or loss < best[0]):
                    best = loss, _Forms(features, mean, size, weight * scale, shift)
        assert best is not None
        made = best[1]
        skill = measure_skill(made, samples, train, held_out)
        return FittedPredictor(
            function=made,
            kind=made.features.name,
            skill=skill.pooled,
            chart_skill=skill.charts,
            reach=0.0,
            samples=len(train),
            seconds=time.perf_counter() - started,
        )

    def _kinds(self, x: Tensor, generator: torch.Generator) -> list[_Features]:
        """Features that the number of samples allows for inputs `(N, D)`."""
        count, inputs = x.shape
        room = min(self.most, count // 2)
        kinds: list[_Features] = []
        for degree in range(1, self.degree + 1):
            if degree == 1 or math.comb(inputs + degree, degree) <= room:
                kinds.append(_Features(f"polynomial of degree {degree}", inputs, degree))
        second = math.comb(inputs + 2, 2)
        bumps = min(self.bumps, count // 2)
        if inputs <= 12 and second + bumps <= max(room, 60):
            centres = x[torch.randperm(count, generator=generator)[:bumps]]
            size = float(x.square().sum(-1).mean().sqrt())
            kinds += [
                _Features(f"{bumps} bumps of width {width:g}", inputs, 2, centres, width * size)
                for width in self.widths
            ]
        return kinds


@storable()
@dataclass(frozen=True, eq=False)
class _Features:
    """Monomials of inputs `(M, D)` up to a degree, and bumps around centres `(C, D)`, as columns `(M, F)`."""

    name: str
    inputs: int
    degree: int
    centres: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.float64))
    width: float = 1.0

    def __call__(self, x: Tensor) -> Tensor:
        columns = []
        power: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(x[:, 0])}
        for degree in range(1, self.degree + 1):
            for term in combinations_with_replacement(range(self.inputs), degree):
                power[term] = power[term[:-1]] * x[:, term[-1]]
                columns.append(power[term])
        out = torch.stack(columns, dim=-1)
        if len(self.centres):
            centres = self.centres.to(x.dtype) / self.width
            x = x / self.width
            # -|x - c|^2 / 2, without an array for each term.
            level = -0.5 * torch.cat([x.square().sum(-1, keepdim=True), torch.ones_like(x[:, :1])], dim=-1)
            rows = torch.cat([x, level], dim=-1)
            columns_of = torch.cat(
                [centres, torch.ones_like(centres[:, :1]), centres.square().sum(-1, keepdim=True)], -1
            )
            out = torch.cat([out, torch.exp(rows @ columns_of.mT)], dim=-1)
        return out


@storable("features", "mean", "size", "weight", "shift")
class _Forms:
    """The fitted map: inputs `(B, 1, *in)` to outputs `(B, 1, O)`."""

    def __init__(self, features: _Features, mean: Tensor, size: Tensor, weight: Tensor, shift: Tensor) -> None:
        self.features, self.mean, self.size, self.weight, self.shift = features, mean, size, weight, shift

    def __call__(self, x: Tensor) -> Tensor:
        weight = self.weight / self.size[:, None]
        constant = self.shift - self.mean @ weight
        rows = x.flatten(0, 1).flatten(1).double()
        y = torch.cat([self.features(part) @ weight for part in rows.split(_ROWS)])
        return (y + constant).unflatten(0, x.shape[:2]).to(x.dtype)
