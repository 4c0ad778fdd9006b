"""The question every discovery asks: whether a map commutes with a matrix. One formula, in one place."""

from __future__ import annotations

__all__ = ["Halves", "equivariance_error", "halves", "relative_error", "squared"]

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.discovery.problem import Problem
from atlasd.errors import InputError
from atlasd.geometry.actions import Action


def squared(a: Tensor, b: Tensor) -> Tensor:
    """Mean squared difference per sample and chart: `(B, K, *)` to `(B, K)`."""
    return (a - b).square().flatten(2).mean(-1) if a.ndim > 2 else (a - b).square()


def equivariance_error(
    function: Callable[[Tensor], Tensor],
    action: Action,
    x: Tensor,
    g: Tensor,
    *,
    distance: Callable[[Tensor, Tensor], Tensor] = squared,
) -> Tensor:
    r"""Measures how far :math:`\Phi(g \cdot x)` lies from :math:`g \cdot \Phi(x)`.

    Arguments:
        function: The map :math:`\Phi`.
        action: How g moves inputs and outputs.
        x: Inputs, with shape `(B, *)` or `(B, K, *)`; whatever the function takes.
        g: One matrix `(n, n)`, or one for each leading axis of `x`.
        distance: Maps two outputs to one error per sample (and chart).

    Returns:
        The errors, differentiable with respect to `g`.

    Example:
        >>> from atlasd.geometry.actions import VectorAction
        >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> norm = lambda x: x.norm(dim=-1)
        >>> equivariance_error(norm, VectorAction(), torch.tensor([[3.0, 4.0]]), turn)
        tensor([0.])
    """
    if g.shape[-1] != g.shape[-2]:
        raise InputError(f"`g` must have shape (..., n, n), got {tuple(g.shape)}.")
    # The second half does not depend on g through the function: its graph would cost memory for nothing.
    with torch.no_grad():
        y = function(x)
    left, right = function(action.on_input(g, x)), action.on_output(g, y)
    return (left - right).square() if left.ndim < 2 else distance(left, right)


@dataclass(frozen=True)
class Halves:
    r"""Squared sizes per sample and chart, each with shape `(B, K)`.

    With a = :math:`\Psi(g x)`, b = :math:`g \Psi(x)`, p = :math:`\Psi(x)`: how far a lies from b, and how far
    each has moved. Unrelated motions give `miss` = `move_a` + `move_b`: that is chance.
    """

    miss: Tensor
    move_a: Tensor
    move_b: Tensor

    @property
    def chance(self) -> Tensor:
        """What `miss` would be if the two motions had nothing to do with each other."""
        return self.move_a + self.move_b


def halves(problem: Problem, x: Tensor, g: Tensor, p: Tensor | None = None) -> Halves:
    """Both sides of the criterion for inputs `(B, K, *in)` moved by one matrix.

    Arguments:
        problem: Map, action and window.
        x: Inputs.
        g: The matrix, `(n, n)`.
        p: `problem.psi(x)` if it is known already.
    """
    p = problem.psi(x) if p is None else p
    a, b = problem.psi(problem.action.on_input(g, x)), problem.action.on_output(g, p)
    if problem.is_field:
        d = problem.action.dimensions  # type: ignore[attr-defined]
        mask = problem.window(tuple(p.shape[-d:]), g, tuple(x.shape[-d:])).to(p.dtype)
        count = mask.sum().clamp_min(1e-12)

        def size(z: Tensor) -> Tensor:
            return (z.square() * mask).flatten(2).sum(-1).double() / count
    else:

        def size(z: Tensor) -> Tensor:
            return z.square().flatten(2).sum(-1).double() if z.ndim > 2 else z.square().double()

    return Halves(miss=size(a - b), move_a=size(a - p), move_b=size(b - p))


def relative_error(miss: Tensor, chance: Tensor, floor: Tensor | float = 0.0) -> Tensor:
    """Error on the scale where 0 is exact and 1 is chance, with the interpolation floor taken off."""
    return ((miss - floor) / chance.clamp_min(1e-300)).clamp_min(0.0)
