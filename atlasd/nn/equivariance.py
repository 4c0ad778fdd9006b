"""Elements inside and outside of a group, to ask networks about."""

from __future__ import annotations

__all__ = ["elements_inside", "elements_outside", "scalings"]

import torch
from torch import Tensor

from atlasd.algebra.group import Group


def elements_inside(group: Group, count: int, *, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Random elements `(count, n, n)` of a group, each divided by its scale so that its determinant is 1 or -1.

    Arguments:
        group: The group.
        count: How many.
        generator: Source of randomness.
        scale: Spread of the coefficients of an orthonormal frame of the algebra.
    """
    frame = group.algebra.frame()
    coefficients = scale * torch.randn(count, len(frame), generator=generator, dtype=torch.float64)
    choice = torch.randint(group.components, (count,), generator=generator)
    drawn = group.cosets[choice] @ torch.matrix_exp(torch.einsum("mk,kij->mij", coefficients, frame))
    return _unscaled(drawn)


def elements_outside(group: Group, count: int, *, generator: torch.Generator, scale: float = 1.0) -> Tensor:
    """Random matrices `(count, n, n)` of determinant 1 that no element of the algebra leads to: a control.

    They are exponentials of what is orthogonal to the algebra and to scaling, as large as `elements_inside` draws.
    """
    n = group.size
    inside = torch.cat([group.algebra.frame().flatten(1), torch.eye(n, dtype=torch.float64).reshape(1, -1) / n**0.5])
    drawn = torch.randn(count, n * n, generator=generator, dtype=torch.float64)
    q, _ = torch.linalg.qr(inside.mT)
    drawn = drawn - (drawn @ q) @ q.mT
    drawn = drawn / drawn.norm(dim=-1, keepdim=True) * scale * max(group.dimension, 1) ** 0.5
    return _unscaled(torch.matrix_exp(drawn.unflatten(-1, (n, n))))


def scalings(size: int, count: int, *, generator: torch.Generator, scale: float = 0.3) -> Tensor:
    """Multiples of the identity, with shape `(count, size, size)`."""
    factor = (scale * torch.randn(count, 1, 1, generator=generator, dtype=torch.float64)).exp()
    return factor * torch.eye(size, dtype=torch.float64)


def _unscaled(elements: Tensor) -> Tensor:
    return elements / torch.linalg.det(elements).abs().pow(1 / elements.shape[-1])[:, None, None]
