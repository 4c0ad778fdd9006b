"""Fields with a known algebra, and upright digits, which have none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import conv2d, pad

from atlasd.algebra.known import scaling, sl, so, trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.data.fetch import data_directory
from atlasd.geometry.actions import GridAction
from atlasd.geometry.atlas import Atlas
from atlasd.studies.digits.data import FILES, load_mnist
from atlasd.studies.zoo.system import Function, Sampler, System, alone, signs


def digits_reason() -> str | None:
    """Why the digits cannot be had without fetching them, or `None` where they can."""
    missing = [path for name in FILES["train"] if not (path := data_directory("mnist") / name).is_file()]
    return f"Skipped: {missing[0]} is not there; say where the digits are by ATLASD_DATA." if missing else None


def _read(samples: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Some images `(N, 1, 28, 28)` between 0 and 1, slightly blurred, and their labels `(N,)`."""
    images, labels = load_mnist()
    chosen = torch.randperm(len(images), generator=generator)[:samples]
    x = images[chosen, None].float() / 255
    # Ink has sharp edges; a slight blur leaves a field whose slopes mean something.
    kernel = torch.tensor([0.25, 0.5, 0.25])
    x = functional.conv2d(x, kernel.reshape(1, 1, 3, 1), padding=(1, 0))
    return functional.conv2d(x, kernel.reshape(1, 1, 1, 3), padding=(0, 1)), labels[chosen].long()


class _Digits:
    """Samples images and remembers their labels until they are asked for."""

    def __init__(self) -> None:
        self._labels = torch.zeros(0, dtype=torch.long)

    def sample(self, samples: int, generator: torch.Generator) -> Tensor:
        x, self._labels = _read(samples, generator)
        return x

    def classes(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """The digit where there is ink and class 10 elsewhere, `(N, 28, 28)`."""
        return torch.where(x[:, 0] > 0.25, self._labels[:, None, None], 10)


def upright_digits() -> System:
    """Which digit every pixel belongs to, learned from digits that all stand upright."""
    digits = _Digits()
    return System(
        name="upright_digits",
        truth=trivial(2),
        sample=digits.sample,
        function=None,
        labels=digits.classes,
        atlas=Atlas.at([(14, 14)], in_radius=13, out_radius=8),
        oracle=False,
        note="pixel classes of digits that were never rotated",
    )


REACH = 4
"""Radius in pixels of every stencil here: inputs reach that much further than outputs in each chart."""

PROBE = 96
"""Pixels along each side of fields on which claims are checked: stretched windows stay inside."""

_SIZE = 48
_WIND = (2.2, -1.4)


def derivative(order: int) -> Tensor:
    r"""Weights `(9,)` at offsets -4 to 4 of a derivative of order at most 8, exact on polynomials up to degree 8.

    The result at x is :math:`\sum_j w_j f(x + j)`, with moments :math:`\sum_j w_j j^m` equal to what the exact
    operator makes of :math:`x^m` at 0. At the wave numbers used here nothing is left of the grid.

    Example:
        >>> [round(v, 4) for v in derivative(1)[5:].tolist()]
        [0.8, -0.2, 0.0381, -0.0036]
    """
    return _solve([float(math.factorial(order)) if m == order else 0.0 for m in range(9)])


def shift(distance: float) -> Tensor:
    """Weights `(9,)` that read the field `distance` pixels further on, exact on polynomials up to degree 8."""
    return _solve([distance**m for m in range(9)])


def gaussian(variance: float) -> Tensor:
    """Weights `(9,)` of a blur by a Gaussian of at most 3 square pixels: heat flow for half that time.

    The first moments are exact, and no more: matching all of them would blow up short waves.
    """
    offsets = _offsets()
    start = (-offsets.square() / (2 * variance)).exp()
    powers = offsets ** torch.arange(0, 7, 2, dtype=torch.float64)[:, None]
    wanted = torch.tensor([1.0, variance, 3 * variance**2, 15 * variance**3], dtype=torch.float64)
    start = start / start.sum()
    return start + powers.mT @ torch.linalg.solve(powers @ powers.mT, wanted - powers @ start)


def _offsets() -> Tensor:
    return torch.arange(-REACH, REACH + 1, dtype=torch.float64)


def _solve(moments: Sequence[float]) -> Tensor:
    powers = _offsets() ** torch.arange(len(moments), dtype=torch.float64)[:, None]
    return torch.linalg.solve(powers, torch.tensor(moments, dtype=torch.float64))


def apply(rows: Tensor | None, columns: Tensor | None, u: Tensor) -> Tensor:
    """Filters fields `(N, C, H, W)` along rows' index, then columns' index; border values go on outside."""
    shape = u.shape
    u = u.reshape(-1, 1, *shape[-2:])
    if rows is not None:
        u = conv2d(pad(u, (0, 0, REACH, REACH), mode="replicate"), rows.to(u).reshape(1, 1, -1, 1))
    if columns is not None:
        u = conv2d(pad(u, (REACH, REACH, 0, 0), mode="replicate"), columns.to(u).reshape(1, 1, 1, -1))
    return u.reshape(shape)


_FIRST, _SECOND = derivative(1), derivative(2)


def slope(u: Tensor, direction: Sequence[float]) -> Tensor:
    """Derivative of fields along a vector (row, column)."""
    return direction[0] * apply(_FIRST, None, u) + direction[1] * apply(None, _FIRST, u)


def laplacian(u: Tensor) -> Tensor:
    """Sum of the second derivatives of fields."""
    return apply(_SECOND, None, u) + apply(None, _SECOND, u)


def blur(u: Tensor, variance: float) -> Tensor:
    """Fields blurred by a round Gaussian."""
    return apply(gaussian(variance), gaussian(variance), u)


def plane_waves(wave: Tensor, phase: Tensor, height: Tensor, size: int) -> Tensor:
    """Sums of plane waves about the centre of a square grid.

    Arguments:
        wave: Wave vectors (row, column) in radians per pixel, with shape `(N, C, waves, 2)`.
        phase: Phases at the centre, with shape `(N, C, waves)`.
        height: Amplitudes, with shape `(N, C, waves)`.

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


def field_system(
    name: str, truth: LieAlgebra, function: Function | None, note: str = "", *, size: int = PROBE, **more: Any
) -> System:
    """A map of fields of random plane waves in two charts, with a mirror beside the algebra; `more` are other settings.

    Arguments:
        name: Unique in the zoo.
        note: What is special about it.
        size: Pixels along each side of fields on which claims are checked.
        more: `sizes`, the standard deviation of each channel, and fields of `System`.
    """
    sizes = more.pop("sizes", (1.0,))
    usual = {"sample": wave_sampler(*sizes), "probe": wave_sampler(*sizes, size=size), "atlas": field_atlas()}
    usual["components"] = signs("++", "+-") if truth.dimension else None
    return System(name=name, truth=truth, function=function, note=note, **{**usual, **more})


def _linear() -> tuple[System, ...]:
    """Diffusion, filters and transport."""
    variances = (3.0, 0.75)
    rows, columns = (gaussian(v) for v in variances)
    ellipse = so(2).adjoint(torch.tensor(variances).sqrt().diag())
    # g must leave the wind as it is: A c = 0.
    across = torch.tensor([-_WIND[1], _WIND[0]])
    still = LieAlgebra(torch.stack([torch.eye(2)[:, [i]] * across for i in range(2)]))
    way = (across / across.norm()).double()
    flipped = torch.cat([alone(2), alone(2) - 2 * torch.outer(way, way)])
    down, right = (shift(-c) for c in _WIND)
    return (
        field_system("heat", so(2), lambda u: blur(u, 2.0), "heat flow for a short time"),
        field_system(
            "anisotropic_heat", ellipse, lambda u: apply(rows, columns, u),
            "four times as fast along rows' index: an ellipse in place of the circle",
        ),
        field_system(
            "reaction_diffusion", so(2), lambda u: blur(u, 2.5) + 0.5 * (u - u**3),
            "its reaction is pointwise and commutes with everything",
        ),
        field_system("wave", so(2), _wave_step, "displacement and speed: two channels", sizes=(1.0, 0.2)),
        field_system("laplacian", so(2), lambda u: 20 * laplacian(u)),
        field_system("blur", so(2), lambda u: blur(u, 3.0)),
        field_system("sharpen", so(2), lambda u: u + 3 * (u - blur(u, 2.0)), "mostly pointwise"),
        field_system(
            "advection", still, lambda u: apply(down, right, u), "a shift by the wind c: A c = 0", components=flipped
        ),
        field_system(
            "directional_derivative", still, lambda u: 2 * slope(u, _WIND), "c.grad u: A c = 0", components=flipped
        ),
    )  # fmt: skip


def _nonlinear_and_oriented() -> tuple[System, ...]:
    """Products of derivatives, and channels that transform as vectors."""
    return (
        field_system("gradient_magnitude", so(2), lambda u: 20 * _steepness(u)),
        field_system("hessian_determinant", sl(2), _curvature, "unimodular maps, not only rotations"),
        field_system(
            "gradient", so(2), lambda u: 5 * torch.cat([slope(u, (1, 0)), slope(u, (0, 1))], dim=1),
            "two output channels that rotate as a vector", action=GridAction(rho_out=lambda g: g),
        ),
        field_system(
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
    return 500 * (apply(_SECOND, None, u) * apply(None, _SECOND, u) - apply(_FIRST, _FIRST, u).square())
