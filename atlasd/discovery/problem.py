"""What every search is given: a map, an action, the data it may look at and the window that counts."""

from __future__ import annotations

__all__ = ["Problem", "Split"]

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from atlasd.geometry.actions import Action, GridAction
from atlasd.geometry.resample import pixel_grid
from atlasd.prediction.predictor import has_parts, part_of
from atlasd.prediction.samples import Inputs, chart_blocks
from atlasd.prediction.trivial import PointwisePart

Split = Literal["search", "test"]


@dataclass(frozen=True, eq=False)
class Problem:
    """One question: with which matrices does `outputs` commute?

    Arguments:
        outputs: The map from inputs `(B, K, *in)` to outputs `(B, K, *out)`, already in the space in which
            outputs are compared (probabilities for classes).
        action: How matrices move inputs and outputs.
        size: The size n of those matrices.
        patches: Inputs of given samples: indices `(B,)` to `(B, K, *in)`. Data are read as they are needed.
        search: Indices of the samples that a search may use.
        test: Indices of the samples that only the verdict may use.
        charts: The number of charts K.
        radius: Radius of the disc of outputs that count, in pixels; `None` for vectors.
        reach: Radius of the map's receptive field, in pixels.
        weights: Signal-to-noise weight of each chart, with shape `(K,)`, mean 1.
        noise: Share of each chart's output that its predictor does not explain, `(K,)`; zero for a given function.
        pointwise: The part of `outputs` that looks at one pixel only, and so commutes with every motion.
        targets: What the data say of given samples: indices `(B,)` to `(B, K, *out)`, class numbers for classes;
            `None` where a function stands in for the data.
        classes: Number of classes, 0 for regression.
        train: Indices of the samples that the predictor was fitted to; `None` for a given function.
        cone: Form Q `(n, n)` that vanishes on all vectors that a fitted map was shown, if there is one.
        sharp: The same question to the predictor's sharp twin, where it has one: for the last steps of a search.
    """

    outputs: Callable[[Tensor], Tensor]
    action: Action
    size: int
    patches: Callable[[Tensor], Tensor]
    search: Tensor
    test: Tensor
    charts: int
    radius: float | None = None
    reach: float = 0.0
    weights: Tensor | None = None
    noise: Tensor | None = None
    pointwise: PointwisePart | None = None
    targets: Callable[[Tensor], Tensor] | None = None
    classes: int = 0
    train: Tensor | None = None
    cone: Tensor | None = None
    sharp: Problem | None = None

    def psi(self, x: Tensor) -> Tensor:
        """The outputs `(B, K, *out)` without the part that commutes with every motion."""
        y = self.outputs(x)
        return y if self.pointwise is None else y - self.pointwise(x, tuple(y.shape[3:]))

    @property
    def is_field(self) -> bool:
        """Whether inputs are fields on a grid."""
        return isinstance(self.action, GridAction)

    def indices(self, split: Split) -> Tensor:
        """Samples of one split."""
        return self.search if split == "search" else self.test

    def batches(self, split: Split, size: int, limit: int | None = None) -> Iterator[Tensor]:
        """Inputs of one split, `size` samples at a time, at most `limit` samples."""
        index = self.indices(split)
        for part in index[: len(index) if limit is None else limit].split(size):
            yield self.patches(part)

    def chart_weights(self) -> Tensor:
        """Weights of the charts, with shape `(K,)`, in float64."""
        return torch.ones(self.charts, dtype=torch.float64) if self.weights is None else self.weights.double()

    def apart(self, errors: Tensor) -> Tensor:
        """Which charts stand apart `(K,)`: their errors `(K,)` are larger than a poor predictor explains."""
        noise = torch.zeros(self.charts, dtype=torch.float64) if self.noise is None else self.noise
        # Both sides of the criterion carry the predictor's noise, and chance may be less than what it is measured by.
        own = errors - 3 * noise
        lone = (own > 0) & (errors > 0.05) & (errors > 5 * errors.median())
        return lone | ((own > 0) & (errors > 0.1)) | (noise > 0.9)

    def blocks(self) -> list[range]:
        """Charts as they are worked on together: blocks of fixed size, where the map knows its parts."""
        known = self.is_field and has_parts(self.outputs) and isinstance(self.patches, Inputs)
        return chart_blocks(self.charts) if known else [range(self.charts)]

    def part(self, charts: range) -> Problem:
        """The problem of one block of charts, without lists of samples and targets: small enough to be sent."""
        none = self.search[:0]
        if len(charts) == self.charts:
            return replace(self, search=none, test=none, targets=None, sharp=None)
        assert isinstance(self.patches, Inputs)
        keep = slice(charts.start, charts.stop)
        return replace(
            self,
            outputs=part_of(self.outputs, charts),
            patches=self.patches.part(charts),
            pointwise=None if self.pointwise is None else self.pointwise.part(charts),
            weights=None if self.weights is None else self.weights[keep],
            noise=None if self.noise is None else self.noise[keep],
            charts=len(charts),
            search=none,
            test=none,
            targets=None,
            sharp=None,
        )

    def with_weights(self, weights: Tensor) -> Problem:
        """The same problem with other weights of the charts."""
        return replace(self, weights=weights)

    def window(self, shape: tuple[int, ...], g: Tensor | None = None, inside: tuple[int, ...] | None = None) -> Tensor:
        """Weights in [0, 1] of the output pixels that count, with shape `shape` or `(*L, *shape)`.

        A disc, so that a turn brings no corners in; with `g`, only pixels whose source under g lies inside the
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
            back = torch.linalg.inv(g.detach().double())
            source = p @ back.mT  # (*L, Q, n)
            half = torch.tensor([max((s - 1) / 2 - 1, 0.5) for s in shape], dtype=torch.float64)
            badness = torch.maximum(badness, (source.abs() / half).amax(-1))
            if inside is not None:
                spread = torch.linalg.matrix_norm(back, ord=2)[..., None] * self.reach
                room = min((s - 1) / 2 for s in inside)
                badness = torch.maximum(badness, (source.abs().amax(-1) + spread) / room)
        # A soft edge one pixel wide: the criterion stays smooth in g.
        soft = torch.sigmoid((1 - badness) * 4 * max(self.radius, 1.0))
        return soft.reshape(*soft.shape[:-1], *shape)
