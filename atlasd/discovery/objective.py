"""The loss of the paper's searches: the equivariance error of group elements, one number for each sample."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from atlasd.discovery.problem import Function, Problem
from atlasd.discovery.residual import sides
from atlasd.geometry.actions import GridAction
from atlasd.geometry.resample import Interpolation
from atlasd.prediction.predictor import Probabilities

Loss: TypeAlias = Literal["mae", "mse", "cross_entropy"]
Frame: TypeAlias = Literal["standard", "raw"]
Charts: TypeAlias = Literal["mean", "sum"]
Window: TypeAlias = Literal["disc", "patch"]
LOSSES = ("mae", "mse", "cross_entropy")


class Objective:
    """Errors of samples under elements drawn for each of them and each chart, pooled over charts.

    Arguments:
        loss: Mean absolute error, mean squared error, or cross-entropy where outputs are probabilities.
        units: Whether matrices and outputs are those of the data as given, or of standard units.
        charts: Whether charts are summed, as in the paper, or averaged.
        weights: Weights of the charts, `(K,)`; all alike by default.
        interpolation: How fields are read between their pixels.
        window: Outputs that count: those on the `disc` that need nothing from beyond the patch, or all of the `patch`,
            beyond which fields are zero.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        loss: Loss = "mae",
        units: Frame = "standard",
        charts: Charts = "mean",
        weights: Tensor | None = None,
        interpolation: Interpolation = "spline",
        window: Window = "disc",
    ) -> None:
        self.problem, self.loss, self._units, self._window = problem, loss, units, window
        action = problem.action
        if isinstance(action, GridAction):
            fill = "zeros" if window == "patch" else action.fill
            action = replace(action, interpolation=interpolation, fill=fill)
        self._action = action
        weights = torch.ones(problem.charts, dtype=torch.float64) if weights is None else weights
        self._weights = weights / weights.sum() * (1 if charts == "mean" else problem.charts)

    def standard(self, matrices: Tensor) -> Tensor:
        """Matrices `(*, n, n)` of the search as they act on the data of the problem."""
        return matrices if self._units == "standard" else self.problem.units.to_standard(matrices)

    def __call__(self, function: Function, x: Tensor, y: Tensor, g: Tensor) -> Tensor:
        """Errors `(B,)` of inputs `(B, K, *in)` with outputs `y = f(x)`, moved by `g`, `(B, K, n, n)`."""
        problem = self.problem
        g = self.standard(g)
        if not problem.is_field:
            g = g.to(x.dtype)
        if self.loss == "cross_entropy" and isinstance(function, Probabilities):
            # From the logits: probabilities too small to be told from 0 would set an upper end to the loss.
            left, right = sides(function.function, self._action, x, y, g)
            left = torch.log_softmax(left, dim=2)
        else:
            left, right = sides(function, self._action, x, y, g)
            left = left.clamp(min=1e-9).log() if self.loss == "cross_entropy" else left
        each = self._distance(left, right)  # (B, K, *)
        if problem.is_field and self._window == "disc":
            d = problem.action.dimensions  # type: ignore[attr-defined]
            mask = problem.window(tuple(y.shape[-d:]), g, tuple(x.shape[-d:])).double()
            # Shares in float64: where nearly all has left the patch, what is left still counts in full.
            share = mask / mask.flatten(2).sum(-1)[(..., *([None] * d))].clamp_min(1e-300)
            each = (each.double() * share).flatten(2).sum(-1)
        elif each.ndim > 2:
            each = each.flatten(2).mean(-1)
        return (each.double() * self._weights).sum(1)

    def _distance(self, left: Tensor, right: Tensor) -> Tensor:
        """Errors without the axis of channels; `left` holds logarithms for cross-entropy."""
        if self.loss == "cross_entropy":
            return -(right * left).sum(2)
        difference = left - right
        if self._units == "raw" and len(self.problem.units.outputs):
            sizes = self.problem.units.outputs.to(difference.dtype)
            if sizes.ndim == 2:  # velocities, in units of the states
                difference = difference @ sizes.mT
            else:
                difference = difference * sizes.reshape(-1, *[1] * (difference.ndim - 3))
        each = difference.abs() if self.loss == "mae" else difference.square()
        return each.mean(2) if each.ndim > 2 else each
