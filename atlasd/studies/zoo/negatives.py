"""Systems without a symmetry to be shown: broken ones, noise, and maps that commute with everything."""

from __future__ import annotations

import cmath
import math
from collections.abc import Iterable
from itertools import combinations_with_replacement
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from atlasd.algebra.known import dihedral, trivial
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import REACH, field_system, plane_waves, wave_sampler
from atlasd.studies.zoo.scoring import standard_root
from atlasd.studies.zoo.system import Function, System, framed, normal

_VECTOR_STRENGTHS = {
    "so2": 0.5, "o2": 0.7, "so3": 0.5, "ellipse": 1.0, "so12": 1.0, "so13": 1.2, "sl2": 0.7, "sp4": 0.7,
    "scaling2": 0.5, "shear": 0.7, "borel": 1.0, "galilei12": 1.0, "so2_so2": 0.7, "so2_scaling": 0.7,
    "xyz": 1.0, "central3": 0.7,
}  # fmt: skip
_FIELD_STRENGTHS = {
    "heat": 1.0, "anisotropic_heat": 0.7, "wave": 1.0, "laplacian": 0.5, "advection": 1.0,
    "directional_derivative": 0.7, "gradient_magnitude": 0.5, "hessian_determinant": 1.0, "curl": 1.0,
}  # fmt: skip
FAR_APART = 1.99
"""Angle between the axes of the parts of an oblique filter that is farthest from having a mirror."""
_GAIN_STRENGTHS = {"laplacian": 0.7, "gradient_magnitude": 0.7}


def negative_systems(positives: Iterable[System]) -> tuple[System, ...]:
    """All negatives, some of them made of the given positives by breaking or by shuffling.

    The randomness of a map is fixed by its name: the same negatives come back in every process.
    """
    known = {system.name: system for system in positives}
    return (
        *(broken_vectors(known[k], s, stream(0, "zoo", k), f"{k}_broken") for k, s in _VECTOR_STRENGTHS.items()),
        *(broken_fields(known[k], s, stream(0, "zoo", k), f"{k}_broken") for k, s in _FIELD_STRENGTHS.items()),
        *(_uneven(known[name], strength) for name, strength in _GAIN_STRENGTHS.items()),
        *(_shuffled(known[name]) for name in ("so3", "so13", "heat", "laplacian")),
        *_vector_negatives(),
        *_field_negatives(),
    )


def broken_vectors(system: System, strength: float, generator: torch.Generator, name: str) -> System:
    """The system with sines of all coordinates added, which no matrix leaves as they are.

    The term is one of inputs in standard units: on a thin ellipse it would see only the long axis otherwise.

    Arguments:
        strength: Standard deviation of the term, relative to that of each output.
    """
    assert system.function is not None
    symmetric = system.function
    x = system.sample(2048, generator)
    y = symmetric(x)
    many = y.ndim > 1
    root = standard_root(x)
    ripple = framed(ripples(x.double() @ torch.linalg.inv(root), y.shape[1] if many else 1, generator), root)
    size, height = y.std(0), ripple(x).std(0)

    def function(x: Tensor) -> Tensor:
        term = strength * size.to(x) / height.to(x) * ripple(x)
        return symmetric(x) + (term if many else term[:, 0])

    note = f"{system.name} with a generic term of {strength:g} of its size"
    return system.without_group(name=name, function=function, strength=strength, note=note)


def ripples(x: Tensor, outputs: int, generator: torch.Generator) -> Function:
    """A sum of sines of random combinations of all coordinates: inputs like `x` to `(N, outputs)`."""
    inputs = x[0].numel()
    waves = 3 * inputs
    way = torch.randn(waves, inputs, generator=generator, dtype=torch.float64)
    way = 1.5 * way / way.norm(dim=-1, keepdim=True) / x.flatten(1).std(0)
    phase = 2 * math.pi * torch.rand(waves, generator=generator, dtype=torch.float64)
    mix = torch.randn(waves, outputs, generator=generator, dtype=torch.float64)
    return lambda x: (x.flatten(1) @ way.mT.to(x) + phase.to(x)).sin() @ mix.to(x)


def broken_fields(
    system: System, strength: float, generator: torch.Generator, name: str, *, rotation: float = 0.0, apart: float = 0.6
) -> System:
    """The system with a filter added that has slopes, curvatures and third derivatives along oblique directions.

    Arguments:
        strength: Size of the filter, relative to what the system does beyond a multiple of its input.
        rotation: Rotation of the filter in radians.
        apart: Angle between the axes of its parts.
    """
    assert system.function is not None
    symmetric = system.function
    x, y = system.data(64, generator)

    def oblique(x: Tensor) -> Tensor:
        return lopsided(x, y.shape[1], rotation=rotation, apart=apart)

    size, height = _beyond_pointwise(x, y), _inner(oblique(x)).std()
    note = f"{system.name} with an oblique operator of {strength:g} of its size"
    return system.without_group(
        name=name,
        function=lambda x: symmetric(x) + strength * size.to(x) / height.to(x) * oblique(x),
        strength=strength,
        note=note,
    )


def lopsided(x: Tensor, outputs: int, *, rotation: float = 0.0, apart: float = 0.6) -> Tensor:
    """Adds up the channels of fields `(N, C, H, W)` and filters them, obliquely for each output.

    Arguments:
        outputs: The number of output channels.
        rotation: Rotation of the filters in radians.
        apart: Angle between the axes of the parts of the first filter; the others have one radian more each.
    """
    weights = torch.tensor([1.0, -0.6]).to(x)[: x.shape[1]]
    u = torch.einsum("nchw,c->nhw", x, weights)[:, None]
    kernel = torch.stack([_oblique(rotation, apart + i) for i in range(outputs)])[:, None].to(x)
    return conv2d(pad(u, (REACH,) * 4, mode="replicate"), kernel)


def _oblique(rotation: float, apart: float) -> Tensor:
    """A smooth 9 x 9 kernel with one, two and three periods around its centre, their axes far from one another."""
    p = pixel_grid((2 * REACH + 1,) * 2, dtype=torch.float64)
    z = torch.complex(p[:, 0], p[:, 1])
    # The weights make the three parts equally strong on waves of about a quarter radian per pixel.
    parts = ((1, 1.0), (2, 1.8), (3, 3.2))
    waves = [weight * (z * cmath.exp(-1j * (rotation + apart * m))) ** m for m, weight in parts]
    kernel = torch.stack([wave.real for wave in waves]).sum(0) * (-z.abs().square() / 4.5).exp()
    return kernel.reshape(2 * REACH + 1, -1)


def _inner(y: Tensor) -> Tensor:
    """The part of fields that stencils at the border do not spoil."""
    return y[..., 8:-8, 8:-8]


def _beyond_pointwise(x: Tensor, y: Tensor) -> Tensor:
    """Standard deviation of what is left of `y` after the best linear pointwise map of `x`."""
    a, b = (_inner(z).movedim(1, -1).flatten(0, -2).double() for z in (x, y))
    a = torch.cat([a, torch.ones_like(a[:, :1])], dim=1)
    return (b - a @ torch.linalg.lstsq(a, b).solution).std()


def _uneven(system: System, strength: float) -> System:
    """Multiplies the outputs by a gain that depends on the position."""
    assert system.function is not None
    symmetric = system.function

    def function(u: Tensor) -> Tensor:
        y = symmetric(u)
        wave = torch.tensor([[[[0.42, -0.26]]]], dtype=u.dtype)
        ones = torch.ones(1, 1, 1, dtype=u.dtype)
        return y * (1 + strength * math.sqrt(2.0) * plane_waves(wave, ones, ones, u.shape[-1]))

    note = "a gain that depends on the position, which a predictor with shared weights cannot represent"
    return system.without_group(
        name=f"{system.name}_uneven", function=function, strength=strength, fitted=False, note=note
    )


def _shuffled(system: System) -> System:
    """The inputs and labels of a symmetric system in unrelated order."""
    assert system.function is not None
    exact = system.function

    def labels(x: Tensor, generator: torch.Generator) -> Tensor:
        return exact(x)[torch.randperm(len(x), generator=generator)]

    note = f"{system.name} with labels in random order"
    return system.without_group(name=f"{system.name}_shuffled", function=None, labels=labels, oracle=False, note=note)


def _vector_negatives() -> tuple[System, ...]:
    return (
        *(_vector(f"cubic{n}", n, _cubic(n), note="a generic cubic polynomial") for n in (2, 3, 4)),
        _vector("threefold", 2, _threefold, components=dihedral(3).cosets, note="finite symmetry only: D3"),
        _vector("fourfold", 2, _fourfold, components=dihedral(4).cosets, note="finite symmetry only: D4"),
        _vector("random_network", 3, _network(3), note="a network that was never trained"),
        _vector("coordinates", 3, lambda x: x.clone(), note="the vector itself, compared as if it were invariant"),
        _vector("constant_vector", 3, lambda x: 0 * x[:, 0] + 1.0, note="nothing to test"),
        _vector("noise2", 2, None, outputs=(), note="labels that are noise"),
        _vector("noise4", 4, None, outputs=(3,), note="labels that are noise"),
    )


def _vector(
    name: str, n: int, function: Function | None, *, note: str, outputs: tuple[int, ...] = (), **more: Any
) -> System:
    if function is None:
        more |= {"labels": lambda x, generator: torch.randn(len(x), *outputs, generator=generator), "oracle": False}
    return System(name=name, truth=trivial(n), sample=normal(n), function=function, note=note, **more)


def _threefold(x: Tensor) -> Tensor:
    return (x[:, 0] ** 3 - 3 * x[:, 0] * x[:, 1].square()) / 3


def _fourfold(x: Tensor) -> Tensor:
    return (x.pow(4).sum(-1) / 4).log1p()


def _cubic(n: int) -> Function:
    """A polynomial with random coefficients at every monomial of degree 1 to 3."""
    monomials = [list(m) for d in (1, 2, 3) for m in combinations_with_replacement(range(n), d)]
    generator = stream(0, "zoo", "cubic", n)
    weights = torch.randn(len(monomials), generator=generator, dtype=torch.float64)
    # Scaled so that each degree matters: unscaled, the cubic part would drown the others.
    scale = torch.tensor([1 / math.factorial(len(m)) for m in monomials], dtype=torch.float64)
    return lambda x: torch.stack([x[:, m].prod(-1) for m in monomials], dim=-1) @ (weights * scale).to(x)


def _network(n: int, width: int = 12) -> Function:
    generator = stream(0, "zoo", "network")
    first = 2.0 * torch.randn(width, n, generator=generator, dtype=torch.float64)
    offset = torch.randn(width, generator=generator, dtype=torch.float64)
    last = torch.randn(width, generator=generator, dtype=torch.float64) / math.sqrt(width)
    return lambda x: torch.tanh(x @ first.mT.to(x) + offset.to(x)) @ last.to(x)


def _field_negatives() -> tuple[System, ...]:
    mute, sample = "commutes with everything and says nothing", wave_sampler(1.0)
    return (
        field_system("identity", trivial(2), lambda u: u.clone(), mute),
        field_system("pointwise", trivial(2), lambda u: u - u**3 / 3, mute),
        field_system("constant_field", trivial(2), lambda u: 0 * u + 1.0, "nothing to test"),
        field_system("random_convolution", trivial(2), _convolution(), "a network that was never trained"),
        field_system(
            "noise_field", trivial(2), None, "labels are an unrelated field", oracle=False,
            labels=lambda x, generator: sample(len(x), generator),
        ),
    )  # fmt: skip


def _convolution(channels: int = 6) -> Function:
    """Two layers of random 5 x 5 weights: radius 4 in all."""
    generator = stream(0, "zoo", "convolution")
    first = torch.randn(channels, 1, 25, generator=generator, dtype=torch.float64)
    last = torch.randn(1, channels, 5, 5, generator=generator, dtype=torch.float64)
    # On smooth fields, heights and slopes would hide the rest: a slope alone has a symmetry.
    p = pixel_grid((5, 5), dtype=torch.float64)
    plain = torch.linalg.qr(torch.cat([torch.ones_like(p[:, :1]), p], dim=1)).Q
    first = 2 * (first - first @ plain @ plain.mT).reshape(channels, 1, 5, 5)

    def function(u: Tensor) -> Tensor:
        hidden = conv2d(u, first.to(u), padding=2).tanh()
        return conv2d(hidden, last.to(u) / 10, padding=2)

    return function
