"""The problem that a discovery solves, one block of charts of it, and what a search for its generators promises."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.lie import Ambient
from atlasd.data.samples import Samples, chart_blocks
from atlasd.data.units import Units
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.resample import pixel_grid
from atlasd.prediction.crossfit import CrossFit
from atlasd.prediction.fit import narrowed, needed, selected
from atlasd.prediction.predictor import PredictorSpec, compared, has_parts, part_of
from atlasd.prediction.trivial import LinearPart, PointwisePart, centre_crop
from atlasd.runtime.codec import storable
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream

Function = Callable[[Tensor], Tensor]
_EDGE = 3
"""Pixels around the disc that counts in which outputs are still computed: interpolation reads them."""


@dataclass(frozen=True, eq=False)
class Problem:
    """One question: with which matrices do maps commute? All data are in standard units.

    Arguments:
        functions: One map for each fold, from inputs `(B, K, *in)` to outputs `(B, K, *out)`, in the space in which
            outputs are compared (probabilities for classes).
        fold: Number of the map that each sample was held out of, `(N,)`.
        known: Whether the map is a given function, known everywhere.
        radius: Radius of the disc of outputs that count, in pixels; `None` for vectors.
        reach: Radius of the map's receptive field, in pixels.
        pointwise: The part of the targets that looks at one pixel only, and so commutes with every transformation.
        background: The class whose pixels do not count; `None` for none.
        fits: The predictors behind `functions`; `None` for a given function.
        testable: Share of the spread of the targets that does not commute with everything by itself.
        recipe: How predictors are fitted, for a search that trains its own; `None` for a given function.
        common: For vectors that go to vectors, the part that commutes with every matrix; it is removed as well.
    """

    functions: tuple[Function, ...]
    fold: Tensor
    action: Action
    samples: Samples
    known: bool
    radius: float | None = None
    reach: float = 0.0
    pointwise: PointwisePart | None = None
    classes: int = 0
    background: int | None = None
    fits: CrossFit | None = None
    testable: float = 1.0
    recipe: PredictorSpec | None = None
    common: LinearPart | None = None

    @property
    def size(self) -> int:
        """Size n of the matrices."""
        n = self.samples.size
        return self.action.matrix_size(n) if isinstance(self.action, VectorAction | GridAction) else n

    @property
    def homogeneous(self) -> bool:
        """Whether matrices hold a translation, and have one row and column more than vectors have components."""
        return getattr(self.action, "homogeneous", False)

    def exponential(self, generators: Tensor) -> Tensor:
        """Elements of generators `(M, n, n)`."""
        own: Function = getattr(self.action, "exponential", torch.matrix_exp)
        return own(generators)

    @property
    def shifts(self) -> bool:
        """Whether generators may displace all vectors alike."""
        return self.size > self.samples.size

    @property
    def ambient(self) -> Ambient:
        """The group of all matrices that are looked at."""
        return Ambient(self.size, affine=self.homogeneous)

    @property
    def charts(self) -> int:
        """Number of charts K."""
        return len(self.samples.atlas)

    @property
    def is_field(self) -> bool:
        """Whether inputs are fields on a grid."""
        return self.samples.is_field

    @property
    def units(self) -> Units:
        """Standard units of the data."""
        assert self.samples.units is not None
        return self.samples.units

    @property
    def outputs(self) -> Function:
        """The map of the first fold, for searches that know no folds."""
        return self.functions[0]

    @property
    def search(self) -> Tensor:
        """Samples that the first map was not fitted to."""
        return (self.fold == 0).nonzero().flatten()

    def pick(self, most: int, after: int = 0) -> Tensor:
        """Indices of at most so many samples, drawn from all folds alike; others than the first few of them."""
        order = torch.randperm(len(self.fold), generator=stream(0, "pick"))
        return self.samples.in_order(order[after : after + most])

    def elsewhere(self, count: int) -> Problem:
        """Of a given function of vectors, the same question about so many inputs with the mean and moments of the data.

        What is searched on samples may not be judged on these alone: the best of many candidates is best by accident,
        too. Each input is the sum of the deviations of two samples. Fields have many pixels, and are asked as they are.
        """
        if self.is_field or not self.known:
            return self
        x, generator = self.inputs(self.pick(count)).squeeze(1), stream(0, "elsewhere")
        mean = x.reshape(-1, x.shape[-1]).mean(0)
        pairs = torch.stack([torch.randint(len(x) - 1, (count,), generator=generator), torch.arange(count) % len(x)])
        pairs[0] += pairs[0] >= pairs[1]  # never a sample with itself
        moved = self.units.raw_inputs(mean + (x[pairs] - mean).sum(0) / math.sqrt(2))
        return replace(self, samples=replace(self.samples, x=moved), fold=torch.zeros(count, dtype=torch.long))

    def inputs(self, index: Tensor) -> Tensor:
        """Inputs of some samples, `(B, K, *in)`."""
        return self.samples.inputs(index)

    patches = inputs

    def labels(self, index: Tensor, x: Tensor | None = None) -> Tensor:
        """What the data, or the given function, say of some samples, `(B, K, *out)`; one-hot for classes."""
        if self.known:
            with torch.no_grad():
                return self.functions[0](self.inputs(index) if x is None else x)
        y = self.samples.targets(index)
        if self.classes:
            return functional.one_hot(y, self.classes).movedim(-1, 2).float()
        if self.common is not None:
            return y - self.common(self.inputs(index) if x is None else x).to(y.dtype)
        return y

    @property
    def sharp(self) -> Problem:
        """The same question about the maps that fit best, where the verdict is given on smoother ones.

        These say more about inputs that are unlike the data, but what is smoothed differs from direction to direction.
        """
        sharp = () if self.fits is None else self.fits.sharp
        return replace(self, functions=in_comparison(self, sharp)) if sharp else self

    def with_function(self, function: Function | None) -> Problem:
        """The same question about another map, which every sample is asked of; `None` for the same maps."""
        if function is None:
            return self
        return replace(self, functions=(function,), fold=torch.zeros_like(self.fold), fits=None)

    def blocks(self) -> list[range]:
        """Charts as they are worked on together: blocks of fixed size, where the maps know their parts."""
        known = self.is_field and all(has_parts(f) for f in self.functions)
        return chart_blocks(self.charts) if known else [range(self.charts)]

    def middle(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs and labels of fields, these near the centre: beyond, a predictor may have seen what is not there."""
        x = self.inputs(index)
        y = self.labels(index, x)
        width = 2 * math.ceil(self.radius or 1.0) + 1
        return x, centre_crop(y, tuple(min(s, width + (s - width) % 2) for s in y.shape[3:]))

    def part(self, charts: range, keep: Sequence[int] | None = None) -> Problem:
        """The problem of one block of charts, or of some charts of the block, by their numbers inside it."""
        if len(charts) == self.charts and keep is None:
            return replace(self, fits=None)
        whole = len(charts) == self.charts
        functions = self.functions if whole else tuple(part_of(f, charts) for f in self.functions)
        samples = self.samples if whole else self.samples.part(charts)
        pointwise = self.pointwise
        if pointwise is not None and not whole:
            pointwise = pointwise.part(charts)
        if keep is not None:
            functions, samples = tuple(selected(f, keep) for f in functions), samples.part(keep)
            pointwise = None if pointwise is None else pointwise.part(keep)
        return replace(self, functions=functions, samples=samples, pointwise=pointwise, fits=None)

    def window(self, shape: tuple[int, ...], g: Tensor | None = None, inside: tuple[int, ...] | None = None) -> Tensor:
        """Weights in [0, 1] of the output pixels that count, with shape `shape` or `(*L, *shape)`.

        A disc, so that a rotation brings no corners in; with `g`, only pixels whose source under g lies inside the
        output patch, and whose receptive field has its source inside the input patch.

        Arguments:
            g: Group elements `(n, n)` or `(*L, n, n)`.
            inside: Spatial shape of the inputs.
        """
        if self.radius is None:
            return torch.ones(shape)
        p = pixel_grid(shape, dtype=torch.float64)
        badness = p.norm(dim=-1) / max(self.radius, 0.5)
        if g is not None:
            assert isinstance(self.action, GridAction)
            source = self.action.sources(g.detach(), p)  # (*L, Q, n)
            half = torch.tensor([max((s - 1) / 2 - 1, 0.5) for s in shape], dtype=torch.float64)
            badness = torch.maximum(badness, (source.abs() / half).amax(-1))
            if inside is not None:
                back = torch.linalg.inv(self.action.linear(g.detach().double()))
                spread = torch.linalg.matrix_norm(back, ord=2)[..., None] * self.reach
                room = min((s - 1) / 2 for s in inside)
                badness = torch.maximum(badness, (source.abs().amax(-1) + spread) / room)
        # A soft edge one pixel wide: the residual stays smooth in g.
        soft = torch.sigmoid((1 - badness) * 4 * max(self.radius, 1.0))
        return soft.reshape(*soft.shape[:-1], *shape)


def in_comparison(problem: Problem, functions: tuple[Function, ...]) -> tuple[Function, ...]:
    """Functions as they are compared: probabilities for classes, and only as far out as outputs count."""
    if problem.radius is not None:
        half = math.ceil(problem.radius) + _EDGE
        if problem.samples.atlas.radii is not None:
            # Beyond, a map would see what is not there, and splines are not local: they would carry it inwards.
            half = max(min(half, math.floor(problem.samples.atlas.radii[0] - problem.reach + 0.5)), 1)
        functions = tuple(narrowed(f, 2 * half + 1) for f in functions)
    return tuple(compared(f, problem.classes) for f in functions)


def null_loss(squares: Tensor, pulls: Tensor, counts: tuple[Tensor, Tensor], through: Tensor) -> Tensor:
    """Loss over pairs of different samples, from sums that know no pairs.

    Arguments:
        squares: Loss of each label against all predictions, in the mean, `(M, B, K)`.
        pulls: Loss of each prediction against all labels, in the mean, `(M, B, K)`.
        counts: Whether a sample counts, `(M, B, K)`, and how many do, `(M, 1, K)`.
        through: Loss of each label against its own prediction, `(M, B, K)`.
    """
    covered, number = counts
    other = (number - 1).clamp_min(1.0)
    # A sample is never paired with itself.
    squares, pulls = (number * squares - through) / other, (number * pulls - through) / other
    mean = (covered * squares).sum(1, keepdim=True) / number.clamp_min(1.0)
    return squares + pulls - mean


def looked_at(problem: Problem, x: Tensor) -> tuple[int, ...]:
    """Spatial shape of the middle of inputs `(B, K, C, *S)` that the maps look at."""
    whole = tuple(x.shape[3:])
    need = needed(problem.functions)
    return whole if need is None else tuple(min(a, b) for a, b in zip(need, whole, strict=True))


class Part:
    """One block of charts with its data, which are read where they are needed."""

    def __init__(self, problem: Problem, index: Tensor, coverage: Any) -> None:
        self.problem, self.index, self.coverage = problem, index, coverage
        self._data: tuple[Tensor, Tensor, Tensor] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_data": None}

    def forget(self) -> None:
        """Drops the data; they are read again when needed."""
        self._data = None

    @property
    def data(self) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs `(B, K, *in)`, labels and predictions `(B, K, *out)`, both without the pointwise part."""
        if self._data is None:
            x = self.problem.inputs(self.index)
            y = self.problem.labels(self.index, x)
            p = self.predict(x, self.problem.functions)
            if self.problem.pointwise is not None:
                y = centre_crop(y, tuple(p.shape[3:]))
                base = self.problem.pointwise(x, tuple(p.shape[3:]))
                y, p = y - base, p - base
            elif self.problem.is_field:
                y = centre_crop(y, tuple(p.shape[3:]))
            self._data = x, y.to(p.dtype), p
        return self._data

    def predict(self, x: Tensor, functions: Sequence[Function]) -> Tensor:
        """Outputs for inputs `(B, K, *in)` or `(M B, K, *in)` by the map that each sample was held out of."""
        with torch.no_grad():
            if len(functions) == 1:
                return functions[0](x)
            fold = self.problem.fold[self.index]
            fold = fold.repeat(len(x) // len(fold))
            out: Tensor | None = None
            for k, function in enumerate(functions):
                mine = (fold == k).nonzero().flatten()
                if not len(mine):
                    continue
                part = function(x[mine])
                out = part.new_zeros(len(x), *part.shape[1:]) if out is None else out
                out[mine] = part
            assert out is not None
            return out


_BLIND = 1e-9
"""Null level, relative to the largest, below which nothing depends on a direction: rounding."""


@storable()
@dataclass(frozen=True, eq=False)
class Proposal:
    """Generators that a search proposes, in standard units; the verdict is given elsewhere.

    Arguments:
        basis: Candidates, the most promising first, with shape `(k, n, n)`, in float64.
        spectrum: First-order residuals of all directions, ascending, where the search knows them.
        chart_basis: Each chart's own generators, with shape `(K, k, n, n)`, where computed.
        weights: Weights of the charts, `(K,)`, where the search left some out; 0 for those.
        untested: Number of directions on which nothing in the data depends.
        fixed: Whether the candidates are to be taken as they are, in this number.
        relevant: Orthonormal components on which the map depends, `(n, m)`; `None` for all.
        function: The predictors that were trained with the generators, where the search trains its own.
    """

    basis: Tensor
    spectrum: tuple[float, ...] = ()
    curves: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    chart_basis: Tensor | None = None
    notes: tuple[str, ...] = ()
    weights: Tensor | None = None
    untested: int = 0
    fixed: bool = False
    relevant: Tensor | None = None
    function: Callable[[Tensor], Tensor] | None = None


class Search(Protocol):
    """Finds generators of a problem's symmetry."""

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Proposal:
        """Proposes generators."""


def solve(residual: Tensor, null: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The generalised eigenproblem `G v = lambda D v` on the directions that the data depend on.

    Arguments:
        residual: G, with shape `(m, m)`.
        null: D, with shape `(m, m)`.

    Returns:
        Eigenvalues ascending `(r,)`, directions `(r, m)` of unit Frobenius norm, and the directions that nothing
        feels `(m - r, m)`.
    """
    size, frame = torch.linalg.eigh((null + null.mT) / 2)
    keep = size > _BLIND * size.max().clamp_min(1e-300)
    white = frame[:, keep] / size[keep].sqrt()
    values, vectors = torch.linalg.eigh(white.mT @ ((residual + residual.mT) / 2) @ white)
    directions = (white @ vectors).mT
    directions = directions / directions.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    return values.clamp_min(0.0), directions, frame[:, ~keep].mT
