r"""The matrices among which a search looks: linear maps, or linear maps with translations."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ambient:
    r"""GL(n), or the affine maps of n - 1 coordinates as homogeneous matrices of size n.

    Arguments:
        size: Size n of the matrices.
        affine: Whether the last row is that of a homogeneous matrix.

    Example:
        >>> len(Ambient(3).directions), len(Ambient(3, affine=True).directions)
        (9, 6)
    """

    size: int
    affine: bool = False

    @property
    def block(self) -> int:
        r"""Size of the linear part."""
        return self.size - int(self.affine)

    @property
    def directions(self) -> Tensor:
        r"""Unit matrices that span all generators, with shape `(m, n, n)`."""
        n = self.size
        units = torch.eye(n * n, dtype=torch.float64).view(n, n, n, n)
        return units[: self.block].flatten(0, 1)

    @property
    def translations(self) -> Tensor:
        r"""Generators of translations along every axis, with shape `(n - 1, n, n)`; none among linear maps."""
        n = self.size
        return self.directions[n - 1 :: n] if self.affine else torch.zeros(0, n, n, dtype=torch.float64)

    @property
    def scaling(self) -> Tensor:
        r"""The generator of scalings, of unit norm, with shape `(n, n)`."""
        return self._linear_identity() / self.block**0.5

    def unit_determinant(self, c: Tensor) -> Tensor:
        r"""Elements `(*, n, n)` scaled to :math:`|det| = 1`; singular ones become infinite or NaN."""
        scale = torch.linalg.det(c).abs()[..., None, None] ** (-1 / self.block)
        return torch.cat([scale * c[..., : self.block, :], c[..., self.block :, :]], dim=-2)

    def traceless(self, a: Tensor) -> Tensor:
        r"""Generators `(*, n, n)` without their trace."""
        trace = a.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        return a - trace / self.block * self._linear_identity()

    def tidy_generators(self, a: Tensor) -> Tensor:
        r"""Generators `(*, n, n)` whose last row is exactly that of a homogeneous one."""
        return torch.cat([a[..., : self.block, :], torch.zeros_like(a[..., self.block :, :])], dim=-2)

    def tidy_elements(self, g: Tensor) -> Tensor:
        r"""Elements `(*, n, n)` whose last row is exactly that of a homogeneous one."""
        last = torch.eye(self.size, dtype=g.dtype)[self.block :].expand(*g.shape[:-2], -1, -1)
        return torch.cat([g[..., : self.block, :], last], dim=-2)

    def random(self, count: int, generator: torch.Generator) -> Tensor:
        r"""Random elements with determinant 1 or -1, every second one orthogonal, `(count, n, n)`.

        Affine ones have a random fixed point, about as far from the origin as data in standard units are.
        """
        linear = _gaussian(count, self.block, generator)
        u, _, v = torch.linalg.svd(linear[::2])
        linear[::2] = u @ v
        if not self.affine:
            return linear
        c = torch.eye(self.size, dtype=torch.float64).repeat(count, 1, 1)
        fixed = torch.randn(count, self.block, 1, generator=generator, dtype=torch.float64)
        c[:, :-1, :-1], c[:, :-1, -1:] = linear, fixed - linear @ fixed
        return c

    def _linear_identity(self) -> Tensor:
        one = torch.eye(self.size, dtype=torch.float64)
        one[self.block :] = 0.0
        return one


def _gaussian(count: int, n: int, generator: torch.Generator) -> Tensor:
    r"""Gaussian matrices scaled to |det| = 1; nearly singular ones are drawn again."""
    drawn = torch.randn(count, n, n, generator=generator, dtype=torch.float64)
    while bool((bad := torch.linalg.det(drawn).abs() < 1e-3).any()):
        drawn[bad] = torch.randn(int(bad.sum()), n, n, generator=generator, dtype=torch.float64)
    return Ambient(n).unit_determinant(drawn)
