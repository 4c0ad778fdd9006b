"""How much a network's outputs change when its inputs are moved by a group."""

from __future__ import annotations

__all__ = ["elements_inside", "elements_outside", "output_change", "scalings"]

from collections.abc import Callable

import torch
from torch import Tensor

from atlasd.algebra.group import Group


def output_change(function: Callable[[Tensor], Tensor], x: Tensor, elements: Tensor) -> float:
    """Root-mean-square change of the outputs, in units of their spread over the inputs; 0 is invariant.

    Arguments:
        function: Maps `(B, P, n)` to `(B,)`.
        x: Sets of vectors, with shape `(B, P, n)`.
        elements: Matrices that move every vector, with shape `(M, n, n)`.

    Example:
        >>> x = torch.randn(50, 3, 2, generator=torch.Generator().manual_seed(0))
        >>> rotation = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]])
        >>> round(output_change(lambda x: x.square().sum((1, 2)), x, rotation), 5)
        0.0
        >>> output_change(lambda x: x[:, 0, 0], x, rotation) > 1
        True
    """
    with torch.no_grad():
        still = function(x)
        moved = torch.stack([function(x @ g.to(x).mT) for g in elements])
    spread = still.std(correction=0).clamp_min(1e-12)
    return float((moved - still).square().mean().sqrt() / spread)


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
