"""Heat flow around a rectangular source: the local symmetry is O(2), the global one is broken."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas

SIZE = 128
WALL = math.sqrt(2.0)
BLOCK = ((0.1, 0.3), (0.2, 0.5))
ATLASES = ("nineteen", "three", "sheared", "shadow")

_NINETEEN = [
    (0.5, 0.15), (0.675, 0.15), (0.85, 0.15), (0.5, 0.325), (0.675, 0.325), (0.85, 0.325), (0.5, 0.5),
    (0.675, 0.5), (0.85, 0.5), (0.15, 0.675), (0.325, 0.675), (0.5, 0.675), (0.675, 0.675), (0.85, 0.675),
    (0.15, 0.85), (0.325, 0.85), (0.5, 0.85), (0.675, 0.85), (0.85, 0.85),
]  # fmt: skip
_SHADOW = (0.2, 0.35)  # the middle of the block
_THREE = [(0.65, 0.3), (0.675, 0.625), (0.35, 0.75)]


def heat_fields(
    samples: int,
    *,
    initial: Literal["separable", "isotropic"] = "separable",
    generator: torch.Generator,
    waves: int = 8,
) -> Tensor:
    """Random initial temperatures.

    Arguments:
        initial: `separable` is a vertical plus a horizontal sinusoid, as in the paper; `isotropic` is a sum
            of plane waves in random directions, so that the data contain what a rotation makes of them.
        waves: Plane waves in one isotropic field.

    Returns:
        Fields, with shape `(N, 1, 128, 128)`.

    References:
        The paper, appendix C.2.
    """

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    line = torch.arange(SIZE) / SIZE
    if initial == "separable":
        a, d = 15 + 6 * normal(samples, 1), 12 + 5 * normal(samples, 1)
        b, e = 3 * normal(samples, 1), 3 * normal(samples, 1)
        c, f = (normal(samples, 1).abs() + 1) / 2, (normal(samples, 1).abs() + 1) / 2
        rows, columns = c * torch.sin(a * line + b), f * torch.cos(d * line + e)
        return (rows[:, :, None] + columns[:, None, :])[:, None]
    if initial != "isotropic":
        raise InputError(f"`initial` must be 'separable' or 'isotropic', got {initial!r}.")
    size = (15 + 6 * normal(samples, waves)).abs()
    angle = 2 * math.pi * torch.rand(samples, waves, generator=generator)
    phase = 2 * math.pi * torch.rand(samples, waves, generator=generator)
    height = (normal(samples, waves).abs() + 1) / 2 * math.sqrt(2.0 / waves)
    u = (size * torch.cos(angle))[..., None] * line  # (N, waves, 128)
    v = (size * torch.sin(angle))[..., None] * line + phase[..., None]
    # cos(u + v) summed over waves, without an array of samples x waves x pixels.
    h = height[..., None]
    fields = torch.einsum("nwi,nwj->nij", h * u.cos(), v.cos()) - torch.einsum("nwi,nwj->nij", h * u.sin(), v.sin())
    return fields[:, None]


def simulate_heat(
    x: Tensor,
    *,
    steps: int = 50,
    alpha: float = 1.0,
    dx: float = 0.1,
    dt: float = 0.01,
    source: bool = True,
    chunk: int = 16,
) -> Tensor:
    """Heat flow with fixed walls and, unless `source` is false, a hot block inside.

    Second differences are central differences of central differences, so they span two pixels each way.

    Arguments:
        x: Initial fields, with shape `(N, 1, H, W)`; never written to.
        chunk: Fields advanced together, so that they stay in the processor's cache.

    Returns:
        The final fields, with the shape of `x`.
    """
    if x.ndim != 4 or x.shape[1] != 1:
        raise InputError(f"`x` must have shape (N, 1, H, W), got {tuple(x.shape)}.")
    height, width = x.shape[-2:]
    rate = alpha * dt / (4 * dx * dx)
    block = tuple(slice(int(lo * s), int(hi * s)) for (lo, hi), s in zip(BLOCK, (height, width), strict=True))
    fixed = torch.zeros(height, width, dtype=torch.bool)
    fixed[0] = fixed[-1] = fixed[:, 0] = fixed[:, -1] = True
    if source:
        fixed[block] = True

    def advance(u: Tensor) -> Tensor:
        # A ring of ghost pixels outside the walls turns the one-sided difference at the edge into the inner one.
        p = functional.pad(torch.where(fixed, WALL, u)[:, 0], (1, 1, 1, 1))
        inner = p[:, 2:-2, 2:-2]
        room = None if x.requires_grad else torch.empty_like(inner)
        for _ in range(steps):
            p[:, 0], p[:, -1] = 2 * p[:, 1] - p[:, 2], 2 * p[:, -2] - p[:, -3]
            p[:, :, 0], p[:, :, -1] = 2 * p[:, :, 1] - p[:, :, 2], 2 * p[:, :, -2] - p[:, :, -3]
            flow = torch.add(p[:, 4:, 2:-2], p[:, :-4, 2:-2], out=room)
            flow += p[:, 2:-2, 4:]
            flow += p[:, 2:-2, :-4]
            inner.mul_(1 - 4 * rate).add_(flow, alpha=rate)
            if source:
                p[:, 1:-1, 1:-1][:, *block] = WALL
        return p[:, None, 1:-1, 1:-1]

    return torch.cat([advance(part) for part in x.split(chunk)])


# Second differences of order 8: weights of a pixel itself and of its neighbours at distances 1 to 4.
_SECOND = (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560)


def heat_rate(x: Tensor, *, alpha: float = 1.0, dx: float = 0.1, source: bool = True) -> Tensor:
    """The equation itself, without time stepping: how fast each point warms, alpha times the Laplacian.

    Differences are of order 8, so that on smooth fields the grid breaks the symmetry of the equation by less than
    a millionth. With `source`, the block is held at its temperature and does not change.

    Arguments:
        x: Fields, with shape `(N, 1, H, W)`.
    """
    height, width = x.shape[-2:]
    block = torch.zeros(height, width, dtype=torch.bool)
    block[tuple(slice(int(lo * s), int(hi * s)) for (lo, hi), s in zip(BLOCK, (height, width), strict=True))] = source
    reach = len(_SECOND) - 1
    wide = functional.pad(torch.where(block, WALL, x), (reach,) * 4, mode="replicate")
    rate = torch.zeros_like(x)
    for axis, size in ((-2, height), (-1, width)):
        rows = wide.narrow(-3 - axis, reach, (width, height)[axis])
        for step, weight in enumerate(_SECOND):
            ahead, behind = rows.narrow(axis, reach + step, size), rows.narrow(axis, reach - step, size)
            rate = rate + weight * (ahead + behind if step else ahead)
    return torch.where(block, 0.0, alpha / (dx * dx) * rate)


def heat_atlas(name: str = "nineteen") -> Atlas:
    """The paper's atlases: `nineteen` small charts, `three` large ones, and `sheared`, where one of three is.

    In `shadow` a twentieth chart lies over the block, where nothing commutes.
    """
    if name in ("nineteen", "shadow"):
        places = [*_NINETEEN, _SHADOW] if name == "shadow" else _NINETEEN
        return Atlas.at([(int(r * SIZE), int(c * SIZE)) for r, c in places], in_radius=14, out_radius=10)
    centres = [(int(r * SIZE), int(c * SIZE)) for r, c in _THREE]
    if name == "three":
        return Atlas.at(centres, in_radius=26, out_radius=20)
    if name == "sheared":
        return Atlas.at(centres, in_radius=26, out_radius=20, distortions={1: ((1.0, 0.5), (0.0, 1.0))})
    raise InputError(f"`atlas` must be one of {', '.join(ATLASES)}, got {name!r}.")
