"""LieGAN with subgroups of SO(3) that rotate the whole sphere: the paper's global rival (appendix C.3)."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.known import so
from atlasd.discovery.problem import Proposal
from atlasd.errors import InputError
from atlasd.geometry.resample import resample
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream
from atlasd.studies.rivals.liegan import FieldDiscriminator, LieGAN


def rotate_sphere(g: Tensor, field: Tensor) -> Tensor:
    r"""Rotates fields on the sphere: :math:`(g \cdot E)(v) = E(g^{-1} v)`, with v a unit vector.

    Arguments:
        g: Rotations, with shape `(3, 3)` or `(B, 3, 3)`.
        field: Equirectangular fields, `(B, C, H, W)`: rows from north to south, columns once around to the east,
            pixels at the centres of their cells.

    Example:
        >>> field = torch.arange(8.0).expand(1, 1, 4, 8)
        >>> quarter = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
        >>> rotate_sphere(quarter, field)[0, 0, 0].round().int().tolist()
        [6, 7, 0, 1, 2, 3, 4, 5]
    """
    height, width = field.shape[-2:]
    source = _directions(height, width) @ g.double()  # g^-1 v, as rows: the inverse of a rotation is its transpose
    x, y, z = source.unbind(-1)
    # Not acos: its slope has no bound at the poles.
    colatitude = torch.atan2((x * x + y * y + 1e-12).sqrt(), z)
    longitude = torch.atan2(y, x).remainder(2 * math.pi)
    rows = (colatitude * height / math.pi - 0.5).clamp(0, height - 1)
    columns = longitude * width / (2 * math.pi) - 0.5
    wrapped = functional.pad(field, (2, 2, 0, 0), mode="circular")
    points = torch.stack([rows, columns + 2], dim=-1).to(field.dtype)
    return resample(wrapped, points, interpolation="bilinear").reshape(field.shape)


def find_on_sphere(
    x: Tensor,
    y: Tensor,
    *,
    search: LieGAN | None = None,
    classes: int = 0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Proposal:
    """Plays LieGAN's game on fields of the whole sphere, with generators in so(3).

    Arguments:
        x: Inputs, with shape `(N, C, H, W)`.
        y: Outputs, `(N, C', H, W)`, or classes `(N, H, W)`.

    Returns:
        Generators, with shape `(k, 3, 3)`.
    """
    if x.ndim != 4 or len(x) != len(y):
        raise InputError(f"`x` must have shape (N, C, H, W) with as many `y`, got {tuple(x.shape)} and {len(y)}.")
    search = LieGAN(batch=64, steps=400) if search is None else search
    block = max(1, -(-x.shape[-2] // search.pixels))
    spread = x.float().std().clamp_min(1e-6)

    def pairs(part: Tensor) -> tuple[Tensor, Tensor]:
        image, target = x[part].float() / spread, y[part]
        if classes:
            target = functional.one_hot(target.long(), classes).movedim(-1, 1)
        return functional.avg_pool2d(image, block), functional.avg_pool2d(target.float(), block)

    def move(g: Tensor, image: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        both = rotate_sphere(g, torch.cat([image, target], dim=1))
        return both[:, : image.shape[1]], both[:, image.shape[1] :]

    weights, width = stream(seed, "liegan", "discriminator"), search.width or 32
    judge = FieldDiscriminator(x.shape[1], classes or y.shape[1], width=width, generator=weights, disc=False)
    return search.play(pairs, len(x), move, judge, so(3).basis.float(), seed=seed, progress=progress or Silent())


def _directions(height: int, width: int) -> Tensor:
    """Unit vectors of all pixels, with shape `(H * W, 3)`, in float64."""
    down = math.pi * (torch.arange(height, dtype=torch.float64) + 0.5) / height
    around = 2 * math.pi * (torch.arange(width, dtype=torch.float64) + 0.5) / width
    theta, phi = torch.meshgrid(down, around, indexing="ij")
    return torch.stack([theta.sin() * phi.cos(), theta.sin() * phi.sin(), theta.cos()], dim=-1).flatten(0, 1)
