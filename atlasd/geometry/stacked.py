"""Channels that are components of vectors: how matrices mix them, and which maps of channels commute with that."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.geometry.actions import Representation, derivative


@dataclass(frozen=True)
class Stacked:
    """The representation of n x n matrices on several vectors, one after the other.

    Arguments:
        copies: Number of vectors.
        dual: Whether they are covectors, such as gradients: these transform by the inverse transpose.
        reverse: Whether components stand in the opposite order of the axes, as (u, v) of winds do on rows and columns.
        upward: Whether the component along the rows points to smaller row numbers, as it does where north comes first.

    Example:
        >>> rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> Stacked(1)(rotation).int().tolist(), Stacked(1, reverse=True)(rotation).int().tolist()
        ([[0, -1], [1, 0]], [[0, 1], [-1, 0]])
    """

    copies: int
    dual: bool = False
    reverse: bool = False
    upward: bool = False

    def __call__(self, g: Tensor) -> Tensor:
        """Matrices `(*, n, n)` to `(*, c, c)`."""
        n = g.shape[-1]
        place = torch.eye(n, dtype=g.dtype)
        if self.upward:
            place[-2, -2] = -1.0
        if self.reverse:
            place = place.flip(0)
        one = place @ (torch.linalg.inv(g).mT if self.dual else g) @ place.mT
        if self.copies == 1:
            return one
        blocks = torch.einsum("ab,...ij->...aibj", torch.eye(self.copies, dtype=g.dtype), one)
        return blocks.reshape(*g.shape[:-2], self.copies * n, self.copies * n)


def intertwiners(
    rho_in: Representation | None, rho_out: Representation | None, size: int, shape: tuple[int, int]
) -> Tensor:
    """Linear maps of channels that commute with every matrix: an orthonormal basis, `(b, C', C)`.

    Arguments:
        rho_in: Representation on the input channels; `None` is trivial.
        rho_out: Representation on the output channels; `None` is trivial.

    Example:
        >>> intertwiners(Stacked(1), Stacked(1), 2, (2, 2)).abs().round(decimals=3).tolist()
        [[[0.707, 0.0], [0.0, 0.707]]]
        >>> len(intertwiners(None, Stacked(1), 2, (2, 3)))
        0
    """
    outputs, inputs = shape
    units = torch.eye(size * size, dtype=torch.float64).reshape(-1, size, size)
    left = torch.zeros(len(units), outputs, outputs, dtype=torch.float64)
    right = torch.zeros(len(units), inputs, inputs, dtype=torch.float64)
    if rho_out is not None:
        left = derivative(rho_out, units)
    if rho_in is not None:
        right = derivative(rho_in, units)
    eye_out, eye_in = (torch.eye(c, dtype=torch.float64) for c in shape)
    # drho_out(A) M - M drho_in(A) = 0, for M written as one long vector, row by row.
    rows = torch.einsum("aij,kl->aikjl", left, eye_in) - torch.einsum("ij,alk->aikjl", eye_out, right)
    system = rows.reshape(-1, outputs * inputs)
    values, vectors = torch.linalg.eigh(system.mT @ system)
    free = values <= 1e-10 * values.max().clamp_min(1.0)
    return vectors[:, free].mT.reshape(-1, outputs, inputs)
