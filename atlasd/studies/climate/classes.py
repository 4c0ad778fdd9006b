"""What every class of pixels says by itself: whether it is there, whether it was learned, and with what it commutes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.known import gl
from atlasd.data.samples import Samples
from atlasd.discovery.residual import scaled, sides
from atlasd.geometry.actions import GridAction
from atlasd.prediction.predictor import FittedPredictor
from atlasd.prediction.trivial import centre_crop

ACTIONS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "as it is": ((1.0, 0.0), (0.0, 1.0)),
    "rotated": ((0.7071, -0.7071), (0.7071, 0.7071)),
    "enlarged": ((1.35, 0.0), (0.0, 1.35)),
    "stretched": ((1.4, 0.0), (0.0, 0.75)),
    "sheared": ((1.0, 0.6), (0.0, 1.0)),
}
"""Linear actions of the paper's figure."""
_SIZE = 0.6


def class_findings(
    fitted: FittedPredictor, samples: Samples, index: Tensor, action: GridAction, names: tuple[str, ...]
) -> list[dict[str, Any]]:
    """For every class its share, the skill of its probability, and its breaking under all of gl(2).

    Arguments:
        fitted: The predictor.
        samples: The data.
        index: Samples that it was not fitted to.
        action: How matrices act.
        names: Names of the classes.

    Returns:
        Rows with `class`, `share`, `skill`, `spread`, and `strengths` of the breaking by the four generators, empty
        where the probability is constant.
    """
    x, y = samples.inputs(index), samples.targets(index)
    basis = [scaled(a) for a in gl(2).basis.double()]
    with torch.no_grad():
        chances = fitted.outputs(x)
    strengths = _strengths(fitted.outputs, action, x, basis)
    rows = []
    for c, name in enumerate(names):
        there = (y == c).double()
        share = float(there.mean())
        p = chances[:, :, c].double() if c < chances.shape[2] else torch.zeros_like(there)
        variance = share * (1 - share)
        told = float(p.std()) > 1e-4  # what breaks a constant is rounding
        rows.append(
            {
                "class": name,
                "share": share,
                "skill": 1 - float((p - there).square().mean()) / variance if variance > 1e-6 else 0.0,
                "spread": float(p.std()),
                "strengths": strengths[:, c].tolist() if told else [],
            }
        )
    return rows


def _strengths(function: Callable[[Tensor], Tensor], action: GridAction, x: Tensor, basis: list[Tensor]) -> Tensor:
    """Breaking of each generator and class, `(4, classes)`, as ratios of amplitudes, on a disc that stays inside."""
    rows = []
    with torch.no_grad():
        p = function(x)
        side = p.shape[-1]
        grid = torch.linspace(-1, 1, side, dtype=torch.float64)
        disc = (grid[:, None].square() + grid.square() <= 0.45**2).to(p.dtype)
        for a in basis:
            residual = moved = torch.zeros(p.shape[2], dtype=torch.float64)
            for sign in (1.0, -1.0):
                g = torch.matrix_exp(sign * _SIZE * a)
                left, right = sides(function, action, x, p, g)
                residual = residual + ((left - right).square() * disc).double().sum((0, 1, 3, 4))
                both = (left - p).square() + (right - p).square()
                moved = moved + (both * disc).double().sum((0, 1, 3, 4))
            rows.append((residual / moved.clamp_min(1e-12)).sqrt())
    return torch.stack(rows)


def pictures(fitted: FittedPredictor, samples: Samples, index: Tensor, action: GridAction) -> Tensor:
    """The paper's figure: the first variable, f(g x) and g f(x) of one chart under several linear actions.

    Returns:
        With shape `(actions, 3, h, w)`: standardised moisture, and expected classes from 0 to 2.
    """
    x = samples.inputs(index[:1])
    rows = []
    with torch.no_grad():
        p = fitted.outputs(x)
        weight = torch.arange(p.shape[2], dtype=p.dtype)[:, None, None]
        for matrix in ACTIONS.values():
            g = torch.tensor(matrix, dtype=torch.float64)
            moved = action.on_input(g, x)
            views = [(fitted.outputs(moved) * weight).sum(2), (action.on_output(g, p) * weight).sum(2)]
            first = centre_crop(moved[:, :, 0], tuple(p.shape[-2:]))
            rows.append(torch.stack([first[0, 0], *(view[0, 0] for view in views)]))
    return torch.stack(rows)
