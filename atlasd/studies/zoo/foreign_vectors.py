"""Vectors as they come from elsewhere: units, tails, few samples, noise, thin sets. Each with its nearest control."""

from __future__ import annotations

__all__ = ["broken", "foreign_vectors", "oblique_frame"]

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from atlasd.algebra.known import lorentz, so, trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.runtime.random import stream
from atlasd.studies.zoo.kepler import kepler_systems
from atlasd.studies.zoo.negatives import ripples
from atlasd.studies.zoo.strength import standard_root
from atlasd.studies.zoo.system import Function, Sampler, System, conjugated, signs, vector_system
from atlasd.studies.zoo.vector_systems import interval


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


def _normal(*shape: int, frame: Tensor | None = None) -> Sampler:
    def sample(samples: int, generator: torch.Generator) -> Tensor:
        z = torch.randn(samples, *shape, generator=generator)
        return z if frame is None else (z.double() @ frame.mT).float()

    return sample


def _framed(function: Function, frame: Tensor) -> Function:
    """The function of vectors in another basis: `function(frame^-1 x)`."""
    inverse = torch.linalg.inv(frame)
    return lambda x: function((x.double() @ inverse.mT).to(x))


def _bell(x: Tensor) -> Tensor:
    return x.square().sum(-1).log1p()


def _mirror(n: int) -> Tensor:
    """The components of O(n)."""
    return signs("+" * n, "-" + "+" * (n - 1))


def broken(system: System, strength: float, generator: torch.Generator) -> System:
    """The nearest control of a system: a generic term is added, and nothing is left of the group.

    The term is one of inputs in standard units: on a thin ellipse it would see only the long axis otherwise.

    Arguments:
        system: The system, with an exact map.
        strength: Standard deviation of the term, relative to that of each output.
        generator: The source of randomness.
    """
    assert system.function is not None
    symmetric = system.function
    x = system.sample(2048, generator)
    y = symmetric(x)
    many = y.ndim > 1
    root = standard_root(x)
    ripple = _framed(ripples(x.double() @ torch.linalg.inv(root), y.shape[1] if many else 1, generator), root)
    size, height = y.std(0), ripple(x).std(0)

    def function(x: Tensor) -> Tensor:
        term = strength * size.to(x) / height.to(x) * ripple(x)
        return symmetric(x) + (term if many else term[:, 0])

    note = f"{system.name} with a generic term of {strength:g} of its size"
    return system.without_group(name=f"{system.name}_control", function=function, strength=strength, note=note)


def _framed_norm(name: str, frame: Tensor, generator: torch.Generator, **fields: Any) -> tuple[System, System]:
    """A function of the norm in another basis, O(n) up to conjugation, and its control."""
    n = len(frame)
    system = vector_system(
        name, so(n).adjoint(frame), _framed(_bell, frame), _normal(n, frame=frame),
        components=conjugated(_mirror(n), frame), **fields,
    )  # fmt: skip
    return system, broken(system, 1.5, generator)


def _sets(name: str, tokens: int, samples: int, generator: torch.Generator) -> tuple[System, ...]:
    """An even part that a predictor of moments sees, and an odd part that it cannot see."""
    frame, share = oblique_frame(3, 1.5, generator), _between(0.6, 0.9, generator)

    def function(odd: float) -> Function:
        def of(z: Tensor) -> Tensor:
            even = z.sum(1).square().sum(-1) / (tokens * math.sqrt(6.0))
            return even + odd * torch.linalg.det(z[:, :3]) / math.sqrt(6.0)

        return _framed(of, frame)

    system = vector_system(
        name, so(3).adjoint(frame), function(share), _normal(tokens, 3, frame=frame), samples=samples, oracle=False,
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
        "one_column", LieAlgebra(free), lambda x: x @ way.to(x), _normal(3), samples=1000, undivided=True,
        components=torch.stack([torch.eye(3, dtype=torch.float64), flip]),
        note="a linear function: six directions leave it as it is",
    )  # fmt: skip
    control = replace(
        system, name="one_column_control", truth=LieAlgebra(rotation[None]),
        function=lambda x: torch.stack([x @ way.to(x), _bell(x)], dim=-1), note="and the norm: rotations about it",
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
        "few_samples", so(n), lambda x: x.square().sum(-1), _normal(n), components=_mirror(n), samples=samples,
        note=f"a square of {n} coordinates, {samples} samples",
    )  # fmt: skip
    return system, broken(system, 1.5, generator)


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
    return system, broken(system, 1.5, generator)


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
    return system, broken(system, 1.5, generator)


def _small_channel(generator: torch.Generator) -> tuple[System, ...]:
    """Two outputs; the second is a hundred times smaller and breaks everything."""
    ripple = ripples(torch.randn(2048, 2, generator=generator), 1, generator)
    system = vector_system(
        "small_channel", trivial(2), lambda x: torch.stack([_bell(x), 0.01 * ripple(x)[:, 0]], dim=-1), _normal(2),
        note="the second output is small and broken", samples=2000,
    )  # fmt: skip
    control = replace(
        system, name="small_channel_control", truth=so(2), components=_mirror(2),
        function=lambda x: torch.stack([_bell(x), 0.01 * (-x.square().sum(-1)).exp()], dim=-1),
        note="the second output is small and a function of the norm",
    )  # fmt: skip
    return system, control
