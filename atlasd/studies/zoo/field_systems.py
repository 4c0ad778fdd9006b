"""Local operators on smooth random fields with a known algebra: the field positives of the zoo."""

from __future__ import annotations

__all__ = [
    "PROBE",
    "REACH",
    "Stencil",
    "blur",
    "draw_waves",
    "field_atlas",
    "field_systems",
    "laplacian",
    "plane_waves",
    "slope",
    "wave_sampler",
]

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from atlasd.algebra.known import scaling, sl, so
from atlasd.algebra.lie import LieAlgebra
from atlasd.geometry.actions import Action, GridAction
from atlasd.geometry.atlas import Atlas
from atlasd.studies.zoo.system import Function, Sampler, System, alone, signs

REACH = 4
"""Radius in pixels of every stencil here: inputs reach that much further than outputs in each chart."""

PROBE = 96
"""Pixels along each side of fields on which claims are checked: stretched windows stay inside."""

_SIZE = 48
_WIND = (2.2, -1.4)


@dataclass(frozen=True)
class Stencil:
    r"""Nine weights along one axis that leave no trace of the grid at the wave numbers used here.

    The result at x is :math:`\sum_j w_j f(x + j)`, with moments :math:`\sum_j w_j j^m` equal to what the
    exact operator makes of :math:`x^m` at 0.

    Arguments:
        taps: The weights at offsets -4 to 4.

    Example:
        >>> [round(v, 4) for v in Stencil.derivative(1).taps[5:]]
        [0.8, -0.2, 0.0381, -0.0036]
    """

    taps: tuple[float, ...]

    @classmethod
    def derivative(cls, order: int) -> Stencil:
        """The derivative of this order, at most 8, exact on polynomials up to degree 8."""
        return cls(_solve([float(math.factorial(order)) if m == order else 0.0 for m in range(9)]))

    @classmethod
    def shift(cls, distance: float) -> Stencil:
        """Reads the field `distance` pixels further on, exact on polynomials up to degree 8."""
        return cls(_solve([distance**m for m in range(9)]))

    @classmethod
    def gaussian(cls, variance: float) -> Stencil:
        """Blurs by a Gaussian of at most 3 square pixels: heat flow for half that time.

        The first moments are exact, and no more: matching all of them would blow up short waves.
        """
        offsets = _offsets()
        start = (-offsets.square() / (2 * variance)).exp()
        powers = offsets ** torch.arange(0, 7, 2, dtype=torch.float64)[:, None]
        wanted = torch.tensor([1.0, variance, 3 * variance**2, 15 * variance**3], dtype=torch.float64)
        start = start / start.sum()
        change = powers.mT @ torch.linalg.solve(powers @ powers.mT, wanted - powers @ start)
        return cls(tuple((start + change).tolist()))


def _offsets() -> Tensor:
    return torch.arange(-REACH, REACH + 1, dtype=torch.float64)


def _solve(moments: Sequence[float]) -> tuple[float, ...]:
    powers = _offsets() ** torch.arange(len(moments), dtype=torch.float64)[:, None]
    return tuple(torch.linalg.solve(powers, torch.tensor(moments, dtype=torch.float64)).tolist())


def apply(rows: Stencil | None, columns: Stencil | None, u: Tensor) -> Tensor:
    """Filters fields `(N, C, H, W)` along rows' index, then columns' index; border values go on outside."""
    shape = u.shape
    u = u.reshape(-1, 1, *shape[-2:])
    if rows is not None:
        u = conv2d(pad(u, (0, 0, REACH, REACH), mode="replicate"), u.new_tensor(rows.taps).reshape(1, 1, -1, 1))
    if columns is not None:
        u = conv2d(pad(u, (REACH, REACH, 0, 0), mode="replicate"), u.new_tensor(columns.taps).reshape(1, 1, 1, -1))
    return u.reshape(shape)


_FIRST, _SECOND = Stencil.derivative(1), Stencil.derivative(2)


def slope(u: Tensor, direction: Sequence[float]) -> Tensor:
    """Derivative of fields along a vector (row, column)."""
    return direction[0] * apply(_FIRST, None, u) + direction[1] * apply(None, _FIRST, u)


def hessian(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Second derivatives of fields: row-row, row-column, column-column."""
    return apply(_SECOND, None, u), apply(_FIRST, _FIRST, u), apply(None, _SECOND, u)


def laplacian(u: Tensor) -> Tensor:
    """Sum of the second derivatives of fields."""
    return apply(_SECOND, None, u) + apply(None, _SECOND, u)


def blur(u: Tensor, variance: float) -> Tensor:
    """Fields blurred by a round Gaussian."""
    return apply(Stencil.gaussian(variance), Stencil.gaussian(variance), u)


def plane_waves(wave: Tensor, phase: Tensor, height: Tensor, size: int) -> Tensor:
    """Sums of plane waves about the centre of a square grid.

    Arguments:
        wave: Wave vectors (row, column) in radians per pixel, with shape `(N, C, waves, 2)`.
        phase: Phases at the centre, with shape `(N, C, waves)`.
        height: Amplitudes, with shape `(N, C, waves)`.
        size: Pixels along each side.

    Returns:
        Fields, with shape `(N, C, size, size)`.
    """
    line = torch.arange(size, dtype=wave.dtype) - (size - 1) / 2
    u = wave[..., :1] * line
    v = wave[..., 1:] * line + phase[..., None]
    h = height[..., None]
    # cos(u + v) summed over waves, without an array of samples x waves x pixels.
    even = torch.einsum("ncwi,ncwj->ncij", h * u.cos(), v.cos())
    return even - torch.einsum("ncwi,ncwj->ncij", h * u.sin(), v.sin())


def draw_waves(
    samples: int, generator: torch.Generator, *, sizes: Sequence[float] = (1.0,), waves: int = 8
) -> tuple[Tensor, Tensor, Tensor]:
    """Wave vectors in all directions with lengths 0.1 to 0.35, phases and heights; see `plane_waves`.

    Arguments:
        sizes: Standard deviation of each channel.
    """
    shape = (samples, len(sizes), waves)
    length = 0.1 + 0.25 * torch.rand(shape, generator=generator)
    angle = 2 * math.pi * torch.rand(shape, generator=generator)
    phase = 2 * math.pi * torch.rand(shape, generator=generator)
    height = torch.randn(shape, generator=generator)
    height = height / height.square().sum(-1, keepdim=True).sqrt() * math.sqrt(2.0)
    wave = torch.stack([length * angle.cos(), length * angle.sin()], dim=-1)
    return wave, phase, height * torch.tensor(sizes)[:, None]


def wave_sampler(*sizes: float, size: int = _SIZE) -> Sampler:
    """Draws square fields of random plane waves, one channel for each standard deviation, `(N, C, size, size)`."""
    return lambda samples, generator: plane_waves(*draw_waves(samples, generator, sizes=sizes), size=size)


def field_atlas() -> Atlas:
    """Two charts, off the centre, whose outputs depend on nothing outside them."""
    return Atlas.at([(19, 21), (28, 26)], in_radius=10 + REACH, out_radius=10)


def field_systems() -> tuple[System, ...]:
    """All field positives.

    Example:
        >>> {system.name: system.truth.dimension for system in field_systems()}["hessian_determinant"]
        3
    """
    return (*_linear(), *_nonlinear_and_oriented())


def _system(
    name: str,
    truth: LieAlgebra,
    function: Function,
    note: str = "",
    *,
    sizes: tuple[float, ...] = (1.0,),
    components: Tensor | None = None,
    action: Action | None = None,
) -> System:
    components = signs("++", "+-") if components is None else components
    return System(
        name=name, truth=truth, components=components, function=function, sample=wave_sampler(*sizes),
        probe=wave_sampler(*sizes, size=PROBE), atlas=field_atlas(), action=action, note=note,
    )  # fmt: skip


def _linear() -> tuple[System, ...]:
    """Diffusion, filters and transport."""
    variances = (3.0, 0.75)
    rows, columns = (Stencil.gaussian(v) for v in variances)
    ellipse = so(2).adjoint(torch.tensor(variances).sqrt().diag())
    # g must leave the wind as it is: A c = 0.
    across = torch.tensor([-_WIND[1], _WIND[0]])
    still = LieAlgebra(torch.stack([torch.eye(2)[:, [i]] * across for i in range(2)]))
    way = (across / across.norm()).double()
    flipped = torch.cat([alone(2), alone(2) - 2 * torch.outer(way, way)])
    down, right = (Stencil.shift(-c) for c in _WIND)
    return (
        _system("heat", so(2), lambda u: blur(u, 2.0), "heat flow for a short time"),
        _system(
            "anisotropic_heat", ellipse, lambda u: apply(rows, columns, u),
            "four times as fast along rows' index: an ellipse in place of the circle",
        ),
        _system(
            "reaction_diffusion", so(2), lambda u: blur(u, 2.5) + 0.5 * (u - u**3),
            "its reaction is pointwise and commutes with everything",
        ),
        _system("wave", so(2), _wave_step, "displacement and speed: two channels", sizes=(1.0, 0.2)),
        _system("laplacian", so(2), lambda u: 20 * laplacian(u)),
        _system("blur", so(2), lambda u: blur(u, 3.0)),
        _system("sharpen", so(2), lambda u: u + 3 * (u - blur(u, 2.0)), "mostly pointwise"),
        _system(
            "advection", still, lambda u: apply(down, right, u), "a shift by the wind c: A c = 0", components=flipped
        ),
        _system(
            "directional_derivative", still, lambda u: 2 * slope(u, _WIND), "c.grad u: A c = 0", components=flipped
        ),
    )  # fmt: skip


def _nonlinear_and_oriented() -> tuple[System, ...]:
    """Products of derivatives, and channels that transform as vectors."""
    return (
        _system("gradient_magnitude", so(2), lambda u: 20 * _steepness(u)),
        _system("hessian_determinant", sl(2), _curvature, "unimodular maps, not only rotations"),
        _system(
            "gradient", so(2), lambda u: 5 * torch.cat([slope(u, (1, 0)), slope(u, (0, 1))], dim=1),
            "two output channels that rotate as a vector", action=GridAction(rho_out=lambda g: g),
        ),
        _system(
            "curl", so(2).sum(scaling(2)), lambda u: 5 * (slope(u[:, 1:], (1, 0)) - slope(u[:, :1], (0, 1))),
            "two input channels that rotate as a vector; lengths cancel between vector and derivative",
            sizes=(1.0, 1.0), action=GridAction(rho_in=lambda g: g),
            components=alone(2),  # a mirror changes its sign
        ),
    )  # fmt: skip


def _wave_step(x: Tensor, step: float = 3.0) -> Tensor:
    u, v = x[:, :1], x[:, 1:]
    v = v + step * laplacian(u)
    return torch.cat([u + step * v, v], dim=1)


def _steepness(u: Tensor) -> Tensor:
    return apply(_FIRST, None, u).square() + apply(None, _FIRST, u).square()


def _curvature(u: Tensor) -> Tensor:
    rows, mixed, columns = hessian(u)
    return 500 * (rows * columns - mixed.square())
