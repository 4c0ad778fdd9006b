"""Vectors and fields as they come from elsewhere, each with its nearest control."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad

from atlasd.algebra.known import lorentz, so, trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat
from atlasd.studies.zoo.field_systems import PROBE, blur, draw_waves, field_system, laplacian, plane_waves
from atlasd.studies.zoo.negatives import FAR_APART, broken_fields, broken_vectors, lopsided, ripples
from atlasd.studies.zoo.system import (
    Function,
    Sampler,
    System,
    conjugated,
    framed,
    log_norm,
    normal,
    signs,
    vector_system,
)
from atlasd.studies.zoo.vector_systems import interval, kepler_systems


def foreign_vectors(seed: int) -> tuple[System, ...]:
    """All families of vectors, with parameters drawn for a seed; the control of each follows it.

    Example:
        >>> [system.name for system in foreign_vectors(0)][:2]
        ['sets8', 'sets8_control']
    """
    makers: tuple[Callable[[torch.Generator], tuple[System, ...]], ...] = (
        lambda g: _sets("sets8", 8, 800, g),
        lambda g: _sets("sets4", 4, 500, g),
        _thin_cone,
        _one_column,
        _mixed_units,
        _few_samples,
        _noisy_ellipse,
        _exact_ellipsoid,
        _muons,
        _heavy_tails,
        _small_channel,
        kepler_systems,
    )
    return tuple(s for k, make in enumerate(makers) for s in make(stream(seed, "foreign", "vectors", k)))


def oblique_frame(n: int, condition: float, generator: torch.Generator) -> Tensor:
    """A random matrix `(n, n)` of a given condition, its singular values spread evenly on a logarithmic scale."""
    left, right = (torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q for _ in range(2))
    values = condition ** torch.linspace(-0.5, 0.5, n, dtype=torch.float64)
    return left @ values.diag() @ right


def _between(low: float, high: float, generator: torch.Generator) -> float:
    """A number drawn evenly on a logarithmic scale."""
    return low * (high / low) ** float(torch.rand((), generator=generator))


def _mirror(n: int) -> Tensor:
    """The components of O(n)."""
    return signs("+" * n, "-" + "+" * (n - 1))


def _vectors_and_control(system: System, generator: torch.Generator) -> tuple[System, System]:
    """The system, and its nearest control: a generic term of 1.5 of its size is added."""
    return system, broken_vectors(system, 1.5, generator, f"{system.name}_control")


def _framed_norm(name: str, frame: Tensor, generator: torch.Generator, **fields: Any) -> tuple[System, System]:
    """A function of the norm in another basis, O(n) up to conjugation, and its control."""
    n = len(frame)
    system = vector_system(
        name, so(n).adjoint(frame), framed(log_norm, frame), normal(n, frame=frame),
        components=conjugated(_mirror(n), frame), **fields,
    )  # fmt: skip
    return _vectors_and_control(system, generator)


def _sets(name: str, tokens: int, samples: int, generator: torch.Generator) -> tuple[System, ...]:
    """An even part that a predictor of moments sees, and an odd part that it cannot see."""
    frame, share = oblique_frame(3, 1.5, generator), _between(0.6, 0.9, generator)

    def function(odd: float) -> Function:
        def of(z: Tensor) -> Tensor:
            even = z.sum(1).square().sum(-1) / (tokens * math.sqrt(6.0))
            return even + odd * torch.linalg.det(z[:, :3]) / math.sqrt(6.0)

        return framed(of, frame)

    system = vector_system(
        name, so(3).adjoint(frame), function(share), normal(tokens, 3, frame=frame), samples=samples, oracle=False,
        note="the square of a sum and a determinant: rotations, no mirror",
    )  # fmt: skip
    both = signs("+++", "---")
    control = replace(system, name=f"{name}_control", components=both, function=function(0.0), note="no determinant")
    return system, control


def _thin_cone(generator: torch.Generator) -> tuple[System, ...]:
    """Points of nearly one mass: a scaling hardly moves them, and moves the output far."""
    mass, width = _between(1.0, 5.0, generator), _between(0.05, 0.2, generator)
    phase = 0.2 + float(torch.rand((), generator=generator))  # neither odd nor even in the rapidity

    def sample(samples: int, generator: torch.Generator) -> Tensor:
        m = mass * (1 + width * torch.rand(samples, generator=generator))
        eta = torch.randn(samples, generator=generator)
        return torch.stack([m * eta.cosh(), m * eta.sinh()], dim=-1)

    def function(x: Tensor) -> Tensor:
        # A logarithm of the squared mass that is defined on both sides of the cone.
        return (x[:, 0].square() - x[:, 1].square()).asinh()

    def uneven(x: Tensor) -> Tensor:
        eta = (x[:, 1] / x[:, 0]).clamp(-0.9999, 0.9999).atanh()
        # One sine alone would have a mirror of its own.
        return function(x) + 0.7 * width * ((2 * eta + phase).sin() + (3 * eta).sin())

    note = f"masses within {100 * width:.0f} %: boosts, no scaling"
    system = vector_system("thin_cone", so(1, 1), function, sample, "++ +- -+ --", note, samples=1000, fitted=False)
    control = replace(
        system, name="thin_cone_control", truth=trivial(2), components=signs("++", "--"), function=uneven,
        note="the rapidity enters, too",
    )  # fmt: skip
    return system, control


def _one_column(generator: torch.Generator) -> tuple[System, ...]:
    """One linear combination of the inputs: whatever acts on the others leaves it as it is."""
    way = torch.randn(3, generator=generator, dtype=torch.float64)
    rest = torch.linalg.svd((way / way.norm())[None]).Vh[1:]  # (2, 3), orthogonal to it
    free = torch.einsum("ai,bj->abij", rest, torch.eye(3, dtype=torch.float64)).flatten(0, 1)
    flip = torch.eye(3, dtype=torch.float64) - 2 * torch.outer(rest[0], rest[0])
    rotation = torch.outer(rest[0], rest[1]) - torch.outer(rest[1], rest[0])
    system = vector_system(
        "one_column", LieAlgebra(free), lambda x: x @ way.to(x), normal(3), samples=1000, undivided=True,
        components=torch.stack([torch.eye(3, dtype=torch.float64), flip]),
        note="a linear function: six directions leave it as it is",
    )  # fmt: skip
    control = replace(
        system, name="one_column_control", truth=LieAlgebra(rotation[None]),
        function=lambda x: torch.stack([x @ way.to(x), log_norm(x)], dim=-1), note="and the norm: rotations about it",
    )  # fmt: skip
    return system, control


def _mixed_units(generator: torch.Generator) -> tuple[System, ...]:
    order = torch.randperm(3, generator=generator)
    units = torch.tensor([10.0, 100.0, 1000.0], dtype=torch.float64)[order]
    return _framed_norm("mixed_units", units.diag(), generator, samples=2000, note="coordinates in units of 10 to 1000")


def _few_samples(generator: torch.Generator) -> tuple[System, ...]:
    n = 2 + int(torch.randint(2, (), generator=generator))
    samples = round(_between(20, 160, generator))
    system = vector_system(
        "few_samples", so(n), lambda x: x.square().sum(-1), normal(n), components=_mirror(n), samples=samples,
        note=f"a square of {n} coordinates, {samples} samples",
    )  # fmt: skip
    return _vectors_and_control(system, generator)


def _noisy_ellipse(generator: torch.Generator) -> tuple[System, ...]:
    frame = oblique_frame(2, _between(30, 100, generator), generator)
    return _framed_norm(
        "noisy_ellipse", frame, generator, samples=2000, noise=0.2, oracle=False, note="a thin ellipse, noisy labels"
    )


def _exact_ellipsoid(generator: torch.Generator) -> tuple[System, ...]:
    frame = oblique_frame(3, _between(50, 200, generator), generator)
    return _framed_norm("exact_ellipsoid", frame, generator, samples=2000, fitted=False, note="a thin ellipsoid")


def _muons(generator: torch.Generator) -> tuple[System, ...]:
    """Pairs of light particles: momenta lie on a cone, and nothing that leads off it is in the data."""

    def sample(samples: int, generator: torch.Generator) -> Tensor:
        pt = 15 - 20 * torch.rand(samples, 2, generator=generator).clamp(min=1e-6).log()
        eta, phi = 1.1 * torch.randn(samples, 2, generator=generator), torch.rand(samples, 2, generator=generator)
        phi = 2 * math.pi * phi
        space = torch.stack([pt * phi.cos(), pt * phi.sin(), pt * eta.sinh()], dim=-1)
        energy = (space.square().sum(-1, keepdim=True) + 0.106**2).sqrt()
        return torch.cat([energy, space], dim=-1)

    system = vector_system(
        "muons", so(1, 3), lambda x: (-interval(x.sum(1), 1) / 400).asinh(), sample, note="the mass of two muons",
        components=lorentz(4).cosets, samples=4000,
        unreached=(2, 3),  # time reversal leads off the forward cone
    )  # fmt: skip
    return _vectors_and_control(system, generator)


def _heavy_tails(generator: torch.Generator) -> tuple[System, ...]:
    n = 2 + int(torch.randint(2, (), generator=generator))
    degrees = 3 + int(torch.randint(3, (), generator=generator))

    def sample(samples: int, generator: torch.Generator) -> Tensor:
        z, w = (torch.randn(samples, k, generator=generator) for k in (n, degrees))
        return z / w.square().mean(-1, keepdim=True).sqrt()

    note = f"Student's t with {degrees} degrees of freedom"
    system = vector_system(
        "heavy_tails", so(n), lambda x: x.norm(dim=-1), sample, note=note, components=_mirror(n), samples=1000
    )
    return _vectors_and_control(system, generator)


def _small_channel(generator: torch.Generator) -> tuple[System, ...]:
    """Two outputs; the second is a hundred times smaller and breaks everything."""
    ripple = ripples(torch.randn(2048, 2, generator=generator), 1, generator)
    system = vector_system(
        "small_channel", trivial(2), lambda x: torch.stack([log_norm(x), 0.01 * ripple(x)[:, 0]], dim=-1), normal(2),
        note="the second output is small and broken", samples=2000,
    )  # fmt: skip
    control = replace(
        system, name="small_channel_control", truth=so(2), components=_mirror(2),
        function=lambda x: torch.stack([log_norm(x), 0.01 * (-x.square().sum(-1)).exp()], dim=-1),
        note="the second output is small and a function of the norm",
    )  # fmt: skip
    return system, control


_KERNEL = 7
"""Radius in pixels of the kernels here."""


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
        lambda g: _with_control(oblique_blur(g), g, angle=10.0),
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


def _gaussian(covariance: Tensor) -> Tensor:
    """A Gaussian kernel of any covariance, with shape `(15, 15)`."""
    p = pixel_grid((2 * _KERNEL + 1,) * 2, dtype=torch.float64)
    kernel = (-(p @ torch.linalg.inv(covariance) * p).sum(-1) / 2).exp()
    return (kernel / kernel.sum()).reshape(2 * _KERNEL + 1, -1)


def _with_control(system: System, generator: torch.Generator, **changes: Any) -> tuple[System, System]:
    """The system, and its nearest control: an oblique filter of its size is added."""
    angle = 2 * math.pi * float(torch.rand((), generator=generator))
    name = f"{system.name}_control"
    control = broken_fields(system, 1.0, generator, name, rotation=angle, apart=FAR_APART)
    return system, replace(control, **changes)


def _blurred_photographs(generator: torch.Generator) -> tuple[System, ...]:
    width = 1.4 + 0.4 * float(torch.rand((), generator=generator))
    kernel = _gaussian(width**2 * torch.eye(2, dtype=torch.float64))
    system = field_system(
        "photographs", so(2), lambda u: _filtered(u, kernel), f"pictures blurred by {width:.1f} pixels",
        sample=photographs, probe=lambda samples, generator: photographs(samples, generator, size=PROBE, leaves=200),
        atlas=Atlas.at([(22, 22)], in_radius=22, out_radius=22 - _KERNEL), samples=256,
    )  # fmt: skip
    return _with_control(system, generator)


def _striped(ratio: float) -> Sampler:
    def sample(samples: int, generator: torch.Generator) -> Tensor:
        wave, phase, height = draw_waves(samples, generator)
        return plane_waves(wave * torch.tensor([1.0, 1 / ratio]), phase, height, 48)

    return sample


def _stripes(generator: torch.Generator) -> tuple[System, ...]:
    """Inputs that hardly vary along one axis: what acts along it is hardly felt, and is no symmetry."""
    ratio = 8 + 6 * float(torch.rand((), generator=generator))
    note = f"heat flow of fields that vary {ratio:.0f} times less along columns"
    # Claims are checked on inputs that feel everything.
    system = field_system("stripes", so(2), lambda u: blur(u, 2.0), note, sample=_striped(ratio), samples=300)
    return _with_control(system, generator)


def _small_field(generator: torch.Generator) -> tuple[System, ...]:
    angle = 2 * math.pi * float(torch.rand((), generator=generator))

    def with_second(second: Function) -> Function:
        return lambda u: torch.cat([20 * laplacian(u), 0.01 * second(u)], dim=1)

    oblique = with_second(lambda u: lopsided(u, 1, rotation=angle, apart=FAR_APART))
    note = "the second channel is small and"
    system = field_system("small_field", trivial(2), oblique, f"{note} broken", samples=300)
    smooth = with_second(lambda u: u - blur(u, 3.0))
    return system, field_system("small_field_control", so(2), smooth, f"{note} symmetric", samples=300)


def _few_heat_fields(generator: torch.Generator) -> tuple[System, ...]:
    separable = bool(torch.rand((), generator=generator) < 0.5)
    initial: Literal["separable", "isotropic"] = "separable" if separable else "isotropic"
    system = field_system(
        "few_heat_fields", so(2), None, f"60 {initial} fields", samples=60, oracle=False, undivided=True,
        sample=lambda samples, generator: heat_fields(samples, initial=initial, generator=generator),
        labels=lambda x, generator: simulate_heat(x), atlas=heat_atlas("three"), probe=None,
    )  # fmt: skip

    def labels(x: Tensor, generator: torch.Generator) -> Tensor:
        y = simulate_heat(x)
        term = lopsided(x, 1, apart=FAR_APART)
        return y + (y - x).std() / term.std() * term

    note = "heat flow with an oblique operator of its size"
    return system, system.without_group(name="few_heat_fields_control", labels=labels, note=note)


def oblique_blur(generator: torch.Generator) -> System:
    """A blur along an ellipse at any angle: no search may prefer the axes."""
    angle = math.pi * float(torch.rand((), generator=generator))
    low, high = 1.0, 1.4 + 1.1 * float(torch.rand((), generator=generator))
    rotation = torch.tensor(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], dtype=torch.float64
    )
    root = rotation @ torch.tensor([low, high], dtype=torch.float64).sqrt().diag() @ rotation.mT
    kernel = _gaussian(root @ root)
    return field_system(
        "oblique_blur", so(2).adjoint(root), lambda u: _filtered(u, kernel),
        f"an ellipse of {math.sqrt(high / low):.2f} at {math.degrees(angle):.0f} degrees",
        components=conjugated(signs("++", "+-"), root), size=PROBE + 12, samples=300, angle=0.5, fitted=False,
        atlas=Atlas.at([(19, 21), (28, 26)], in_radius=10 + _KERNEL, out_radius=10),
    )  # fmt: skip
