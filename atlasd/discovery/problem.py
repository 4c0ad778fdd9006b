"""What every search and the verdict are given: maps, an action, data in standard units, and the window that counts."""

from __future__ import annotations

__all__ = ["Problem", "in_comparison"]

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.ambient import Ambient
from atlasd.data.samples import Samples, chart_blocks
from atlasd.data.units import Units
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.resample import pixel_grid
from atlasd.prediction.crossfit import CrossFit
from atlasd.prediction.predictor import PredictorSpec, compared, has_parts, narrowed, part_of, selected
from atlasd.prediction.trivial import LinearPart, PointwisePart
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
        action: How matrices transform inputs and outputs.
        samples: Inputs and targets.
        known: Whether the map is a given function, known everywhere.
        radius: Radius of the disc of outputs that count, in pixels; `None` for vectors.
        reach: Radius of the map's receptive field, in pixels.
        pointwise: The part of the targets that looks at one pixel only, and so commutes with every transformation.
        classes: Number of classes, 0 for regression.
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

    def with_function(self, function: Function | None) -> Problem:
        """The same question about another map, which every sample is asked of; `None` for the same maps."""
        if function is None:
            return self
        return replace(self, functions=(function,), fold=torch.zeros_like(self.fold), fits=None)

    def blocks(self) -> list[range]:
        """Charts as they are worked on together: blocks of fixed size, where the maps know their parts."""
        known = self.is_field and all(has_parts(f) for f in self.functions)
        return chart_blocks(self.charts) if known else [range(self.charts)]

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
            shape: Spatial shape of the outputs.
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
