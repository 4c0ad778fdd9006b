r"""Kernels corrected on their pixels: as equivariant on smooth fields as so many pixels can be.

A kernel that is sampled from a function that commutes with the group does not quite commute itself. On a plane wave
:math:`e^{i k \cdot p}` a kernel acts by :math:`\hat K(k) = \sum_q K(q) e^{i k \cdot q}`, and it commutes with g if
:math:`\hat K(g^{-T} k) = \rho_{out}(g) \hat K(k) \rho_{in}(g)^{-1}`. The mean square of the difference over waves
with normally distributed k is a quadratic form of the pixels, in closed form. The nearest kernels in which it is small
replace the sampled ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.discovery.residual import scaled
from atlasd.geometry.resample import pixel_grid
from atlasd.nn.groups import square_root

_SCALES = (0.15, 0.3, 0.6)
"""Spreads of the wave numbers, in radians per pixel: wavelengths of about 40, 20 and 10 pixels."""
_STEADY = 0.002
"""A kernel whose response changes by so much, as a part of itself, under a unit generator has 0.7 of the norm."""
_LARGEST = 3300
"""Unknowns beyond which kernels stay as they were sampled: the solve would take more than some seconds."""


@dataclass(frozen=True, eq=False)
class Breaking:
    """The mean square of what a group changes in the response of a kernel, and of the response, as forms of the pixels.

    Arguments:
        change: With shape `(m, m)`, m = pixels * out * in.
        response: With shape `(pixels, pixels)`.
    """

    change: Tensor
    response: Tensor

    def corrected(self, kernels: Tensor, strength: float) -> Tensor:
        """The nearest kernels `(d, m)` that change less: least |K - K0|^2 plus `strength` times the change."""
        still = torch.eye(len(self.change), dtype=torch.float64)
        return torch.linalg.solve(still + strength * self.change, kernels.mT).mT

    def independent(self, kernels: Tensor) -> Tensor:
        """Kernels `(d, m)` of the same span, such as a point, a Laplacian and its square in place of three rings.

        They answer to smooth fields independently of each other. Each has norm 1 where its response keeps the symmetry,
        and less otherwise: what hardly answers to smooth fields may answer wrongly all the same, and a network can use
        it, but starts almost without it.
        """
        change, response = self._on(kernels)
        values, vectors = torch.linalg.eigh(response)
        heard = values > 1e-12 * values[-1]
        white = vectors[:, heard] / values[heard].sqrt()
        squares, turned = torch.linalg.eigh(white.mT @ change @ white)
        rows = (white @ turned).mT @ kernels
        weight = 1 / (1 + squares.clamp_min(0.0) / _STEADY**2).sqrt()
        return weight[:, None] * rows / rows.norm(dim=1, keepdim=True)

    def error(self, kernels: Tensor) -> float:
        """Relative change of the response of random combinations of kernels `(d, m)` under a unit generator."""
        change, response = self._on(kernels)
        return float((change.trace() / response.trace()).clamp_min(0.0).sqrt())

    def _on(self, kernels: Tensor) -> tuple[Tensor, Tensor]:
        """Both forms on kernels, each `(d, d)`."""
        per_pixel = kernels.unflatten(1, (len(self.response), -1))
        response = torch.einsum("ipe,pq,jqe->ij", per_pixel, self.response, per_pixel)
        return kernels @ self.change @ kernels.mT, response

    @property
    def plain(self) -> float:
        """The error of kernels that know nothing of the group."""
        entries = len(self.change) // len(self.response)
        return float((self.change.trace() / (entries * self.response.trace())).sqrt())


def breaking(
    group: Group,
    size: tuple[int, int],
    generators: list[Tensor],
    elements: list[Tensor],
    entries: int,
    form: Tensor | None = None,
) -> Breaking | None:
    """The forms for kernels of so many pixels; `None` where they would be too large.

    Arguments:
        size: Height and width in pixels.
        generators: Generators of unit norm on matrices (out, in), flattened, each `(entries, entries)`.
        elements: Cosets but the identity, likewise.
        entries: out * in.
        form: The scalar product that the group keeps, if any, with determinant 1: waves are drawn evenly in its unit.
    """
    # In coordinates in which the group turns, the law of the waves is one that it leaves alone.
    straight = torch.eye(2, dtype=torch.float64) if form is None else square_root(form)
    back = torch.linalg.inv(straight)
    q = pixel_grid(size, dtype=torch.float64) @ straight.mT
    if len(q) * entries > _LARGEST:
        return None
    one = torch.eye(entries, dtype=torch.float64)
    change = torch.zeros(len(q) * entries, len(q) * entries, dtype=torch.float64)
    for a, on_entries in zip(scaled(group.algebra.frame()), generators, strict=True):
        speed = q @ (straight @ a @ back).mT  # (pixels, 2)
        gram, cross, inner = _summed(partial(_flow, q, speed))
        change += _form(gram, cross, inner, on_entries, one)
    for g, on_entries in zip(group.cosets[1:], elements, strict=True):
        moved = q @ (straight @ torch.linalg.inv(g) @ back).mT
        gram, cross, inner = _summed(partial(_compared, q, moved))
        change += _form(gram, cross, inner, on_entries, one) / len(elements)
    return Breaking(change, _summed(lambda s: (_smooth(q, q, s),))[0])


def _form(gram: Tensor, cross: Tensor, inner: Tensor, on_entries: Tensor, one: Tensor) -> Tensor:
    r"""The form of :math:`|\sum_j (T b_j) c_j - b_j L c_j|^2`."""
    mixed = torch.kron(cross.mT.contiguous(), on_entries.contiguous())
    square = (on_entries.mT @ on_entries).contiguous()
    return torch.kron(gram, one) + torch.kron(inner, square) - mixed - mixed.mT


def _summed(parts: Callable[[float], tuple[Tensor, ...]]) -> list[Tensor]:
    """Sums over the scales; long waves count more, since gentle kernels answer to them weakly."""
    largest = _SCALES[-1]
    every = [[(largest / s) ** 4 / len(_SCALES) * part for part in parts(s)] for s in _SCALES]
    return [torch.stack(same).sum(0) for same in zip(*every, strict=True)]


def _compared(q: Tensor, moved: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """Inner products of the moved functions with each other, of all with the moved ones, and of all."""
    return _smooth(moved, moved, scale), _smooth(q, moved, scale), _smooth(q, q, scale)


def _smooth(a: Tensor, b: Tensor, scale: float) -> Tensor:
    """Mean of cos k.(a - b) over normal k, `(len(a), len(b))`."""
    return (-(scale**2) / 2 * torch.cdist(a, b).square()).exp()


def _flow(q: Tensor, speed: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    r"""Inner products for :math:`T b_j = -i (v_j \cdot k) b_j`, the first-order change with velocity v of pixel j."""
    inner = _smooth(q, q, scale)
    apart = q[None] - q[:, None]  # (i, j, 2)
    along_i = torch.einsum("ia,ija->ij", speed, apart)
    along_j = torch.einsum("ja,ija->ij", speed, apart)
    gram = (scale**2 * (speed @ speed.mT) - scale**4 * along_i * along_j) * inner
    return gram, scale**2 * along_j * inner, inner
