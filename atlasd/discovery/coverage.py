"""Coverage: whether a moved input is still of the kind that the predictor was fitted to."""

from __future__ import annotations

__all__ = ["Coverage", "Neighbours", "Range", "Totals"]

from collections.abc import Sequence
from copy import copy

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem
from atlasd.runtime.executor import Shared

_ROWS = 4000


class Coverage:
    """Compares what training inputs leave unexplained with what moved inputs leave unexplained.

    The principal directions of one half of the inputs explain nearly all of the other half. Inputs that a motion
    takes elsewhere are explained worse; the ratio is 1 for inputs as good as new ones and falls to 0.

    Arguments:
        problem: Action and window.
        x: Inputs as the predictor knows them, with shape `(B, K, *in)`.
        charts: Numbers of the charts that count, all by default.
        explained: Share of the variance that the principal directions keep.
    """

    _shared: list[Shared[Coverage]] | None = None

    def __init__(self, problem: Problem, x: Tensor, charts: Tensor | None = None, explained: float = 0.999) -> None:
        self.problem, self.charts = problem, charts
        rows = self._rows(x)
        generator = torch.Generator().manual_seed(0)
        self._learn(rows[torch.randperm(len(rows), generator=generator)[:_ROWS]], explained)

    @classmethod
    def of(cls, problem: Problem, index: Tensor, charts: Tensor | None = None, explained: float = 0.999) -> Coverage:
        """The same from numbers of samples, `(B,)`, read block by block: memory does not grow with the charts.

        Arguments:
            problem: Action, window and data.
            index: Samples as the predictor knows them.
            charts: Numbers of the charts that count, all by default.
            explained: Share of the variance that the principal directions keep.
        """
        made = cls.__new__(cls)
        made.problem, made.charts = problem, charts
        count = problem.charts if charts is None else len(charts)
        pick = torch.randperm(len(index) * count, generator=torch.Generator().manual_seed(0))[:_ROWS]
        rows: Tensor | None = None
        first = 0
        for block in problem.blocks():
            part = made.part(block)
            if part.charts is not None and not len(part.charts):
                continue
            x = part._rows(part.problem.patches(index))
            rows = x.new_zeros(len(pick), x.shape[1]) if rows is None else rows
            width = len(x) // len(index)  # row b * count + k is chart k of sample b
            mine = (pick % count >= first) & (pick % count < first + width)
            rows[mine] = x[(pick[mine] // count) * width + pick[mine] % count - first]
            first += width
        assert rows is not None
        made._learn(rows, explained)
        return made

    def part(self, charts: range) -> Coverage:
        """What one block of charts needs to measure its moved inputs."""
        other = copy(self)
        other._shared = None
        other.problem = self.problem.part(charts)
        if self.charts is not None:
            inside = (self.charts >= charts.start) & (self.charts < charts.stop)
            other.charts = self.charts[inside] - charts.start
        return other

    def shared(self, blocks: Sequence[range]) -> list[Shared[Coverage]]:
        """The parts of all blocks, ready to be sent once to each worker."""
        if self._shared is None:
            self._shared = [Shared(self.part(block)) for block in blocks]
        return self._shared

    def _learn(self, rows: Tensor, explained: float) -> None:
        half = len(rows) // 2
        self.mean = rows[:half].mean(0)
        _, s, v = torch.linalg.svd(rows[:half] - self.mean, full_matrices=False)
        share = s.square().cumsum(0) / s.square().sum().clamp_min(1e-300)
        rank = int((share < explained).sum()) + 1
        # A copy in the usual order: the rows of a matrix that is stored by columns would travel with all the others.
        self.frame = v[: min(rank, max(half // 4, 1))].contiguous()
        # Whitened radius: an input may also leave the data along directions that the data do have.
        self.spread = (rows[:half] - self.mean).matmul(self.frame.mT).std(0).clamp_min(1e-12)
        left, total, radius = self._measure(rows[half:])
        rest = left / total.mean().clamp_min(1e-300)
        self.rest = rest.mean().clamp_min(1e-12)
        self.radius = radius.quantile(0.5).clamp_min(1e-12) if len(radius) else torch.tensor(1.0)

    def _rows(self, x: Tensor) -> Tensor:
        """Inputs as rows; of fields only the disc that no motion fills from outside."""
        if self.charts is not None:
            x = x[:, self.charts]
        if not self.problem.is_field:
            return x.flatten(0, 1).flatten(1).float()
        d = self.problem.size
        shape = x.shape[-d:]
        grid = torch.stack(torch.meshgrid(*(torch.linspace(-1, 1, s) for s in shape), indexing="ij"))
        disc = (grid.square().sum(0) <= 0.6).flatten()
        return x.flatten(0, 1).flatten(-d)[..., disc].flatten(1).float()

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        centred = rows - self.mean
        inside = centred @ self.frame.mT
        total = centred.square().sum(-1)
        left = (total - inside.square().sum(-1)).clamp_min(0.0)
        return left, total, (inside / self.spread).square().mean(-1)

    def drift(self, moved: Tensor) -> Tensor:
        """What moved inputs `(B, K, *in)` leave unexplained, their squares and radii, with shape `(3, B, K)`."""
        return torch.stack(self._measure(self._rows(moved))).unflatten(1, (len(moved), -1))

    def best(self, moved: Tensor, count: int) -> Tensor:
        """Numbers of the `count` samples of moved inputs `(B, K, *in)` that are explained best."""
        return self.best_of(self.drift(moved), count)

    @staticmethod
    def best_of(drift: Tensor, count: int) -> Tensor:
        """The same from what `drift` gave."""
        return (drift[0] / drift[1].mean().clamp_min(1e-300)).mean(1).argsort()[:count]

    def __call__(self, moved: Tensor) -> float:
        """Coverage of moved inputs `(B, K, *in)`, from 0 to 1."""
        return self.score(self.drift(moved))

    def score(self, drift: Tensor) -> float:
        """The same from what `drift` gave."""
        left, total, radius = drift.flatten(1)
        rest = left / total.mean().clamp_min(1e-300)
        kept = float((self.rest + 1e-3) / (rest.mean() + 1e-3))
        near = float((3 * self.radius) / radius.quantile(0.5).clamp_min(1e-12))
        return max(0.0, min(1.0, kept)) * max(0.0, min(1.0, near))


class Neighbours:
    """Tells which vectors lie no farther from the data than the data lie from each other.

    Arguments:
        x: Inputs as the predictor knows them, with shape `(B, *in)`.
        share: Share of the data's own distances to their neighbours that counts as near.
        most: The most inputs that are kept to compare with.
    """

    def __init__(self, x: Tensor, share: float = 0.9, most: int = 2048) -> None:
        rows = x.flatten(1).float()[:most]
        self.scale = rows.std(0).clamp_min(1e-12)
        self.rows = rows / self.scale
        apart = torch.cdist(self.rows, self.rows).fill_diagonal_(float("inf"))
        self.limit = apart.amin(1).quantile(share)

    def __call__(self, moved: Tensor) -> Tensor:
        """Whether each of `(B, *in)` is near, with shape `(B,)`."""
        rows = moved.flatten(1).float() / self.scale
        return torch.cdist(rows, self.rows).amin(1) <= self.limit


class Range:
    """Tells which vectors, or sets of them, lie within the range of the data along every axis.

    The axes are those of the array and the principal ones. Energies are positive: what turns them negative takes
    all data to where nothing was fitted, however near to zero they may be. Tokens of zeros are padding.

    Arguments:
        x: Inputs as the predictor knows them, with shape `(B, n)` or `(B, P, n)`.
    """

    def __init__(self, x: Tensor) -> None:
        tokens = x.reshape(-1, x.shape[-1]).double()
        tokens = tokens[(tokens != 0).any(-1)]
        eye = torch.eye(tokens.shape[-1], dtype=torch.float64)
        principal = torch.linalg.eigh(tokens.mT @ tokens).eigenvectors if len(tokens) else eye
        self.axes = torch.cat([eye, principal], dim=1)
        along = tokens @ self.axes
        self.low, self.high = (along.amin(0), along.amax(0)) if len(tokens) else (-eye.sum(0), eye.sum(0))

    def __call__(self, moved: Tensor) -> Tensor:
        """Whether each of `(B, *in)` lies inside with all its tokens, with shape `(B,)`."""
        along = moved.double() @ self.axes
        inside = ((along >= self.low) & (along <= self.high)).all(-1) | (moved == 0).all(-1)
        return inside if inside.ndim == 1 else inside.all(-1)


class Totals:
    """Tells which sets of vectors add up to something of the kind that the data add up to.

    Distances between sets of many tokens do not see it: jets of 550 to 650 GeV, scaled or boosted to 1,000 GeV, are
    as near to other jets as these are to each other. Products of components of the sum do: along their principal
    axes, moved sets must stay within the range of the data.

    Arguments:
        x: Inputs as the predictor knows them, with shape `(B, P, n)`, or `(B, n)`, for which nothing is asked.
    """

    def __init__(self, x: Tensor) -> None:
        self.axes: Tensor | None = None
        if x.ndim == 3 and x.shape[1] > 1:
            products = self._products(x)
            self.axes = torch.linalg.eigh(products.mT.cov()).eigenvectors
            along = products @ self.axes
            low, high = along.amin(0), along.amax(0)
            # Where all data agree to the last digit, rounding alone must not lead out.
            margin = 0.05 * (high - low) + 0.01 * torch.maximum(low.abs(), high.abs())
            self.low, self.high = low - margin, high + margin

    @staticmethod
    def _products(x: Tensor) -> Tensor:
        total = x.double().sum(1)
        first, second = torch.triu_indices(x.shape[-1], x.shape[-1])
        return total[:, first] * total[:, second]

    def __call__(self, moved: Tensor) -> Tensor:
        """Whether each of `(B, *in)` does, with shape `(B,)`."""
        if self.axes is None:
            return torch.ones(len(moved), dtype=torch.bool)
        along = self._products(moved) @ self.axes
        return ((along >= self.low) & (along <= self.high)).all(-1)
