"""How linear maps and translations transform vectors together."""

from __future__ import annotations

__all__ = ["AffineAction", "as_inputs", "linear_part"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.geometry.actions import VectorAction, _on_axis


def linear_part(g: Tensor) -> Tensor:
    """The linear part `(*, n, n)` of homogeneous matrices `(*, n + 1, n + 1)`: how a velocity transforms."""
    return g[..., :-1, :-1]


def as_inputs(g: Tensor) -> Tensor:
    """The representation of outputs that transform as the inputs do: the matrix itself."""
    return g


@dataclass(frozen=True)
class AffineAction(VectorAction):
    r"""Transforms vectors, and all tokens of a set alike, by :math:`p \mapsto A p + b`.

    Elements and generators are homogeneous matrices of size n + 1: :math:`A` and :math:`b` side by side, above a last
    row (0, ..., 0, 1) for elements and 0 for generators. Data are read in units of their spread about their mean, so
    that a translation by 1 is one standard deviation. A token of zeros is a point like any other, not padding.

    Arguments:
        rho_out: Representation of homogeneous matrices on the outputs; `None` means that outputs are invariant, and
            `linear_part` that they are velocities.

    Example:
        >>> shift = torch.tensor([[1.0, 0.0, 5.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> AffineAction().on_input(shift, torch.tensor([[1.0, 2.0]])).tolist()
        [[6.0, 2.0]]
    """

    homogeneous = True

    def matrix_size(self, n: int) -> int:
        """Size of the matrices for vectors of n components."""
        return n + 1

    def columns(self, x: Tensor) -> Tensor:
        """Vectors `(*, n)` in homogeneous coordinates, `(*, n + 1)`."""
        return torch.cat([x, torch.ones_like(x[..., :1])], dim=-1)

    def on_input(self, g: Tensor, x: Tensor) -> Tensor:
        """Transforms vectors `(*L, n)` or tokens `(*L, P, n)` by `(n + 1, n + 1)` or `(*L, n + 1, n + 1)`."""
        return _on_axis(linear_part(g), x, -1) + _shift(g, x)

    def input_generator(self, a: Tensor, x: Tensor) -> Tensor:
        """First-order change `A p + b`."""
        return _on_axis(linear_part(a), x, -1) + _shift(a, x)


def _shift(g: Tensor, x: Tensor) -> Tensor:
    """The translation of every vector of `x`, ready to be added."""
    b = g[..., :-1, -1]
    missing = x.ndim - b.ndim if g.ndim > 2 else 0
    return torch.reshape(b, (*b.shape[:-1], *[1] * missing, b.shape[-1])).to(x.dtype)
