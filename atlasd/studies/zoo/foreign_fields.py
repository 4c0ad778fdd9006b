"""Fields as they come from elsewhere: photographs, stripes, channels of unequal size. Each with its nearest control."""

from __future__ import annotations

__all__ = ["foreign_fields", "photographs"]

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from atlasd.algebra.known import so, trivial
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat
from atlasd.studies.zoo.field_systems import PROBE, blur, draw_waves, field_atlas, laplacian, plane_waves, wave_sampler
from atlasd.studies.zoo.negatives import FAR_APART, lopsided
from atlasd.studies.zoo.system import Function, Sampler, System, conjugated, signs

_KERNEL = 7
"""Radius in pixels of the kernels here."""

_MIRROR = signs("++", "+-")


def foreign_fields(seed: int) -> tuple[System, ...]:
    """All families of fields, with parameters drawn for a seed; the control of each follows it.

    Example:
        >>> [system.name for system in foreign_fields(0)][:2]
        ['photographs', 'photographs_control']
    """
    makers: tuple[Callable[[torch.Generator], tuple[System, ...]], ...] = (
        _blurred_photographs,
        _stripes,
        _small_field,
        _few_heat_fields,
        _oblique_blur,
    )
    return tuple(s for k, make in enumerate(makers) for s in make(stream(seed, "foreign", "fields", k)))


def photographs(samples: int, generator: torch.Generator, size: int = 45, leaves: int = 80) -> Tensor:
    """Pictures with the statistics of photographs, `(N, 1, size, size)`: overlapping leaves of all sizes, with grain.

    Nothing is downloaded. Radii follow a power law, as in the "dead leaves" model of natural images; half of the
    leaves are rectangles at any angle. A camera's blur of 0.7 pixels comes last.
    """
    p = pixel_grid((size, size))  # (Q, 2)
    picture = torch.zeros(samples, size * size)
    for k in range(leaves):
        draw = torch.rand(6, samples, 1, generator=generator)
        centre = (draw[:2] - 0.5) * 1.4 * size
        radius = (1 / 40**2 + draw[2] * (1 / 2**2 - 1 / 40**2)).rsqrt()
        a, b = p[:, 0] - centre[0], p[:, 1] - centre[1]
        angle = math.pi * draw[3]
        along, across = angle.cos() * a + angle.sin() * b, angle.cos() * b - angle.sin() * a
        inside = (along.abs() < radius) & (across.abs() < 0.5 * radius) if k % 2 else along.hypot(across) < radius
        picture = torch.where(inside, draw[4] + 0.1 * draw[5] * along / radius, picture)
    picture = picture.reshape(samples, 1, size, size)
    grain = torch.randn(samples, 1, size, size, generator=generator)
    picture = picture + 0.05 * blur(grain, 1.0)
    picture = blur(picture, 0.5)
    return (picture - picture.mean()) / picture.std()


def _filtered(u: Tensor, kernel: Tensor) -> Tensor:
    return conv2d(pad(u, (_KERNEL,) * 4, mode="replicate"), kernel[None, None].to(u))


def _oblique(u: Tensor, angle: float) -> Tensor:
    return lopsided(u, 1, rotation=angle, apart=FAR_APART)


def _gaussian(covariance: Tensor) -> Tensor:
    """A Gaussian kernel of any covariance, with shape `(15, 15)`."""
    p = pixel_grid((2 * _KERNEL + 1,) * 2, dtype=torch.float64)
    kernel = (-(p @ torch.linalg.inv(covariance) * p).sum(-1) / 2).exp()
    return (kernel / kernel.sum()).reshape(2 * _KERNEL + 1, -1)


def _broken(system: System, strength: float, generator: torch.Generator) -> System:
    """The nearest control: an oblique filter is added, relative to what the system does beyond its input."""
    assert system.function is not None
    symmetric = system.function
    angle = 2 * math.pi * float(torch.rand((), generator=generator))
    x = system.sample(64, generator)
    inner = (..., slice(8, -8), slice(8, -8))
    size, height = (symmetric(x) - x)[inner].std(), _oblique(x, angle)[inner].std()
    return system.without_group(
        name=f"{system.name}_control",
        function=lambda u: symmetric(u) + strength * (size / height).to(u) * _oblique(u, angle),
        strength=strength,
        note=f"{system.name} with an oblique operator of {strength:g} of its size",
    )


def _blurred_photographs(generator: torch.Generator) -> tuple[System, ...]:
    width = 1.4 + 0.4 * float(torch.rand((), generator=generator))
    kernel = _gaussian(width**2 * torch.eye(2, dtype=torch.float64))
    system = System(
        name="photographs",
        truth=so(2),
        components=_MIRROR,
        sample=photographs,
        probe=lambda samples, generator: photographs(samples, generator, size=PROBE, leaves=200),
        function=lambda u: _filtered(u, kernel),
        atlas=Atlas.at([(22, 22)], in_radius=22, out_radius=22 - _KERNEL),
        samples=256,
        note=f"pictures blurred by {width:.1f} pixels",
    )
    return system, _broken(system, 1.0, generator)


def _striped(ratio: float) -> Sampler:
    def sample(samples: int, generator: torch.Generator) -> Tensor:
        wave, phase, height = draw_waves(samples, generator)
        return plane_waves(wave * torch.tensor([1.0, 1 / ratio]), phase, height, 48)

    return sample


def _stripes(generator: torch.Generator) -> tuple[System, ...]:
    """Inputs that hardly vary along one axis: what acts along it is hardly felt, and is no symmetry."""
    ratio = 8 + 6 * float(torch.rand((), generator=generator))
    system = System(
        name="stripes",
        truth=so(2),
        components=_MIRROR,
        sample=_striped(ratio),
        probe=wave_sampler(1.0, size=PROBE),  # the map's own symmetry, on inputs that feel everything
        function=lambda u: blur(u, 2.0),
        atlas=field_atlas(),
        samples=300,
        note=f"heat flow of fields that vary {ratio:.0f} times less along columns",
    )
    return system, _broken(system, 1.0, generator)


def _small_field(generator: torch.Generator) -> tuple[System, ...]:
    angle = 2 * math.pi * float(torch.rand((), generator=generator))

    def with_second(second: Function) -> Function:
        return lambda u: torch.cat([20 * laplacian(u), 0.01 * second(u)], dim=1)

    system = System(
        name="small_field",
        truth=trivial(2),
        sample=wave_sampler(1.0),
        probe=wave_sampler(1.0, size=PROBE),
        function=with_second(lambda u: _oblique(u, angle)),
        atlas=field_atlas(),
        samples=300,
        note="the second channel is small and broken",
    )
    control = replace(
        system, name="small_field_control", truth=so(2), components=_MIRROR,
        function=with_second(lambda u: u - blur(u, 3.0)), note="the second channel is small and symmetric",
    )  # fmt: skip
    return system, control


def _few_heat_fields(generator: torch.Generator) -> tuple[System, ...]:
    separable = bool(torch.rand((), generator=generator) < 0.5)
    system = System(
        name="few_heat_fields",
        truth=so(2),
        components=_MIRROR,
        sample=lambda samples, generator: heat_fields(
            samples, initial="separable" if separable else "isotropic", generator=generator
        ),
        function=None,
        labels=lambda x, generator: simulate_heat(x),
        atlas=heat_atlas("three"),
        samples=60,
        oracle=False,
        undivided=True,
        note=f"60 {'separable' if separable else 'isotropic'} fields",
    )

    def labels(x: Tensor, generator: torch.Generator) -> Tensor:
        y = simulate_heat(x)
        term = lopsided(x, 1, apart=FAR_APART)
        return y + (y - x).std() / term.std() * term

    note = "heat flow with an oblique operator of its size"
    return system, system.without_group(name="few_heat_fields_control", labels=labels, note=note)


def _oblique_blur(generator: torch.Generator) -> tuple[System, ...]:
    """A blur along an ellipse at any angle: no search may prefer the axes."""
    angle = math.pi * float(torch.rand((), generator=generator))
    low, high = 1.0, 1.4 + 1.1 * float(torch.rand((), generator=generator))
    rotation = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
    )
    root = rotation @ torch.tensor([low, high], dtype=torch.float64).sqrt().diag() @ rotation.mT
    kernel = _gaussian(root @ root)
    system = System(
        name="oblique_blur",
        truth=so(2).adjoint(root),
        components=conjugated(_MIRROR, root),
        sample=wave_sampler(1.0),
        probe=wave_sampler(1.0, size=PROBE + 12),
        function=lambda u: _filtered(u, kernel),
        atlas=Atlas.at([(19, 21), (28, 26)], in_radius=10 + _KERNEL, out_radius=10),
        samples=300,
        angle=0.5,
        fitted=False,
        note=f"an ellipse of {math.sqrt(high / low):.2f} at {math.degrees(angle):.0f} degrees",
    )
    return system, replace(_broken(system, 1.0, generator), angle=10.0)
