"""Coverage: whether a moved input is still of the kind that the predictor was fitted to."""

from __future__ import annotations

__all__ = ["Coverage", "Neighbours"]

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem


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

    def __init__(self, problem: Problem, x: Tensor, charts: Tensor | None = None, explained: float = 0.999) -> None:
        self.problem, self.charts = problem, charts
        rows = self._rows(x)
        generator = torch.Generator().manual_seed(0)
        rows = rows[torch.randperm(len(rows), generator=generator)[:4000]]
        half = len(rows) // 2
        self.mean = rows[:half].mean(0)
        _, s, v = torch.linalg.svd(rows[:half] - self.mean, full_matrices=False)
        share = s.square().cumsum(0) / s.square().sum().clamp_min(1e-300)
        rank = int((share < explained).sum()) + 1
        self.frame = v[: min(rank, max(half // 4, 1))]
        # Whitened radius: an input may also leave the data along directions that the data do have.
        self.spread = (rows[:half] - self.mean).matmul(self.frame.mT).std(0).clamp_min(1e-12)
        rest, radius = self._measure(rows[half:])
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

    def _measure(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        centred = rows - self.mean
        inside = centred @ self.frame.mT
        total = centred.square().sum(-1)
        rest = (total - inside.square().sum(-1)).clamp_min(0.0) / total.mean().clamp_min(1e-300)
        return rest, (inside / self.spread).square().mean(-1)

    def best(self, moved: Tensor, count: int) -> Tensor:
        """Numbers of the `count` samples of moved inputs `(B, K, *in)` that are explained best."""
        rest, _ = self._measure(self._rows(moved))
        return rest.reshape(len(moved), -1).mean(1).argsort()[:count]

    def __call__(self, moved: Tensor) -> float:
        """Coverage of moved inputs `(B, K, *in)`, from 0 to 1."""
        rest, radius = self._measure(self._rows(moved))
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
