"""Random systems for the calibration: a symmetric map, a term of graded size that breaks it, many kinds of inputs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.algebra.known import so, trivial
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import PROBE, blur, draw_waves, field_atlas, laplacian, plane_waves, slope
from atlasd.studies.zoo.foreign import oblique_frame
from atlasd.studies.zoo.negatives import FAR_APART, lopsided, ripples
from atlasd.studies.zoo.scoring import standard_root
from atlasd.studies.zoo.system import System

BREAKINGS = (0.0, 0.0, 0.1, 0.3, 0.6, 1.0)
"""Sizes of the breaking term, relative to the symmetric part; half of the systems of small size are exact."""
NOISES = (0.0, 0.1, 0.3, 0.5)
VECTOR_INPUTS = ("gaussian", "box", "heavy tails", "correlated", "off-centre")
FIELD_INPUTS = ("waves", "heavy tails", "stretched", "off-centre")


@dataclass(frozen=True, eq=False)
class Trial:
    """One system with its data, and what is to be judged.

    Arguments:
        y: Labels; `None` where the function is given.
        generators: Generators to be judged, `(k, n, n)`.
        elements: Elements to be judged, `(m, n, n)`.
        family: The kind of system, such as `n = 3` or `field`.
    """

    index: int
    system: System
    x: Tensor
    y: Tensor | None
    generators: Tensor
    elements: Tensor
    family: str
    mode: str
    inputs: str
    noise: float
    breaking: float

    @property
    def function(self) -> Callable[[Tensor], Tensor] | None:
        """The exact map, where it is given in place of labels."""
        return self.system.function if self.y is None else None


def draw_trial(index: int, kind: str = "both") -> Trial:
    """Draws system number `index`: the same in every process.

    Arguments:
        index: The number; it is the seed.
        kind: `vector`, `field`, or `both`, one field for every three systems of vectors.
    """
    generator = stream(index, "calibration")
    field = kind == "field" or (kind == "both" and index % 4 == 3)
    fitted = _choose((True, True, False), generator)
    noise = _choose(NOISES, generator) if fitted else 0.0
    breaking = _choose(BREAKINGS, generator)
    draw = _draw_field if field else _draw_vector
    system, inputs, generators, elements, samples = draw(breaking, generator)
    data = stream(index, "calibration", "data")
    x, y = system.data(samples, data, noise=noise)
    family = "field" if field else f"n = {system.size}"
    return Trial(
        index, system, x, y if fitted else None, generators, elements, family, "fitted" if fitted else "function",
        inputs, noise, breaking,
    )  # fmt: skip


def _choose(values, generator):
    return values[int(torch.randint(len(values), (), generator=generator))]


def _log_uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low * (high / low) ** float(torch.rand((), generator=generator))


def _draw_vector(breaking: float, generator: torch.Generator):
    n = _choose((2, 3, 4), generator)
    inputs = _choose(VECTOR_INPUTS, generator)
    sample = _vector_inputs(n, inputs, generator)
    # The form fits the inputs up to a condition of 2, as that of a user would.
    frame = standard_root(sample(4000, generator)) @ oblique_frame(n, _log_uniform(1, 2, generator), generator)
    symmetric = _choose(
        (lambda r: (1.5 * r).cos(), lambda r: r.square().log1p(), lambda r: (-r.square() / 4).exp()), generator
    )
    inverse = torch.linalg.inv(frame)
    probe = sample(4000, generator)
    ripple = ripples(probe, 1, generator)
    plain = symmetric((probe.double() @ inverse.mT).norm(dim=-1)).std()
    scale = breaking * plain / ripple(probe.double()).std()

    def function(x: Tensor) -> Tensor:
        return (symmetric((x.double() @ inverse.mT).norm(dim=-1)) + scale * ripple(x.double())[:, 0]).to(x)

    algebra = so(n).adjoint(frame)
    mix = torch.randn(min(2, algebra.dimension), algebra.dimension, generator=generator, dtype=torch.float64)
    rotations = torch.einsum("ka,aij->kij", mix, algebra.basis)
    other = frame @ torch.randn(n, n, generator=generator, dtype=torch.float64) @ inverse
    flip = torch.eye(n, dtype=torch.float64)
    flip[0, 0] = -1.0
    system = System(name="random", truth=trivial(n), sample=sample, function=function)
    samples = round(_log_uniform(30, 10_000, generator))
    return system, inputs, torch.cat([rotations, other[None]]), (frame @ flip @ inverse)[None], samples


def _vector_inputs(n: int, name: str, generator: torch.Generator):
    mix = oblique_frame(n, 5.0, generator)
    centre = torch.randn(n, generator=generator)
    centre = 1.5 * centre / centre.norm()

    def sample(samples: int, generator: torch.Generator) -> Tensor:
        if name == "box":
            return math.sqrt(3.0) * (2 * torch.rand(samples, n, generator=generator) - 1)
        z = torch.randn(samples, n, generator=generator)
        if name == "heavy tails":  # Student's t with four degrees of freedom
            return z / torch.randn(samples, 4, generator=generator).square().mean(1, keepdim=True).sqrt()
        if name == "correlated":
            return z @ mix.mT.float()
        return z + centre if name == "off-centre" else z

    return sample


def _draw_field(breaking: float, generator: torch.Generator):
    inputs = _choose(FIELD_INPUTS, generator)
    variance = 1 + 2 * float(torch.rand((), generator=generator))
    symmetric = _choose(
        (
            lambda u: blur(u, variance),
            lambda u: 10 * laplacian(u),
            lambda u: 10 * (slope(u, (1, 0)).square() + slope(u, (0, 1)).square()),
        ),
        generator,
    )
    angle = 2 * math.pi * float(torch.rand((), generator=generator))
    probe = _field_inputs(inputs, 48)(64, generator)
    inner = (..., slice(8, -8), slice(8, -8))
    plain = symmetric(probe) - _slope_on(symmetric(probe), probe) * probe
    scale = breaking * plain[inner].std() / lopsided(probe, 1, rotation=angle, apart=FAR_APART)[inner].std()

    def function(u: Tensor) -> Tensor:
        return symmetric(u) + scale.to(u) * lopsided(u, 1, rotation=angle, apart=FAR_APART)

    turn = so(2).basis
    other = torch.randn(1, 2, 2, generator=generator, dtype=torch.float64)
    mirror = torch.tensor([[[1.0, 0.0], [0.0, -1.0]]], dtype=torch.float64)
    system = System(
        name="random", truth=trivial(2), sample=_field_inputs(inputs, 48),
        probe=_field_inputs(inputs, PROBE), function=function, atlas=field_atlas(),
    )  # fmt: skip
    samples = round(_log_uniform(30, 300, generator))
    return system, inputs, torch.cat([turn, other]), mirror, samples


def _slope_on(y: Tensor, x: Tensor) -> Tensor:
    """The best multiple of `x` in `y`: it commutes with everything and is no part of the size of the map."""
    return (x * y).sum() / x.square().sum()


def _field_inputs(name: str, size: int):
    def sample(samples: int, generator: torch.Generator) -> Tensor:
        wave, phase, height = draw_waves(samples, generator)
        if name == "stretched":
            wave = wave * torch.tensor([1.0, 0.5])
        u = plane_waves(wave, phase, height, size)
        if name == "heavy tails":
            tail = torch.randn(samples, 4, generator=generator).square().mean(1).rsqrt()
            u = u * tail[:, None, None, None]
        return u + 2.0 if name == "off-centre" else u

    return sample
