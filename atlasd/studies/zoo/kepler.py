"""The Kepler problem in the plane: next states and energies, with and without a constant force."""

from __future__ import annotations

__all__ = ["kepler_states", "kepler_step", "kepler_systems"]

import math
from dataclasses import replace

import torch
from torch import Tensor

from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.geometry.actions import VectorAction
from atlasd.geometry.polynomial import integrate
from atlasd.studies.zoo.negatives import ripples
from atlasd.studies.zoo.system import System, alone, vector_system


def kepler_states(samples: int, generator: torch.Generator) -> Tensor:
    """States (q, p) on bound orbits of both senses, with shape `(N, 4)`: half axes 0.7 to 1.4, eccentricity to 0.5."""
    axis, eccentric, anomaly, direction, sense = torch.rand(5, samples, generator=generator, dtype=torch.float64)
    a, e = 0.7 + 0.7 * axis, 0.5 * eccentric
    u, side = 2 * math.pi * anomaly, torch.where(sense < 0.5, -1.0, 1.0)
    radius, minor = a * (1 - e * u.cos()), a * (1 - e**2).sqrt()
    speed = a.rsqrt() * a / radius
    q = torch.stack([a * (u.cos() - e), side * minor * u.sin()], dim=-1)
    p = speed[:, None] * torch.stack([-u.sin(), side * (1 - e**2).sqrt() * u.cos()], dim=-1)
    angle = 2 * math.pi * direction
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).reshape(-1, 2, 2)
    return torch.cat([(rotation @ z[..., None])[..., 0] for z in (q, p)], dim=-1).float()


def kepler_step(x: Tensor, time: float = 0.5, force: tuple[float, float] = (0.0, 0.0)) -> Tensor:
    """States `(N, 4)` some time later, by Runge and Kutta's rule.

    Arguments:
        x: States (q, p).
        time: How much later.
        force: A constant force beside the central one.

    Example:
        >>> round(kepler_step(torch.tensor([[1.0, 0.0, 0.0, 1.0]]), torch.pi)[0, 0].item(), 3)
        -1.0
    """
    pull = x.new_tensor(force)

    def rate(z: Tensor) -> Tensor:
        q, p = z[..., :2], z[..., 2:]
        return torch.cat([p, pull - q / q.norm(dim=-1, keepdim=True) ** 3], dim=-1)

    return integrate(rate, x, time, steps=12)


def kepler_systems(generator: torch.Generator) -> tuple[System, ...]:
    """State to next state, the same without a word on how targets transform, and the energy; with controls."""
    both, mirrors = _paired()
    step = vector_system(
        "kepler_step", both, kepler_step, kepler_states, note="state to next state", samples=2000,
        components=torch.cat([alone(4), mirrors[2:]]), action=VectorAction(rho_out=lambda g: g),
    )  # fmt: skip
    angle = 2 * math.pi * float(torch.rand((), generator=generator))
    force = (0.4 * math.cos(angle), 0.4 * math.sin(angle))
    way = torch.tensor([-math.sin(angle), math.cos(angle)], dtype=torch.float64)
    across = torch.eye(2, dtype=torch.float64) - 2 * torch.outer(way, way)
    pulled = step.without_group(
        name="kepler_step_control",
        components=torch.cat([alone(4), torch.block_diag(across, across)[None]]),
        function=lambda x: kepler_step(x, force=force),
        note="a constant force: one mirror is left",
    )
    silent = replace(
        step,
        name="kepler_file",
        function=None,
        labels=lambda x, generator: kepler_step(x),
        action=None,
        oracle=False,
        note="the same, nothing said about how targets transform",
    )
    return (step, pulled, silent, *_energies(generator))


def _paired() -> tuple[LieAlgebra, Tensor]:
    """Rotations of q and p together, and mirrors of q, of p and of both, `(3, 4, 4)`."""
    rotation = so(2).basis[0]
    plain, mirror = torch.eye(2, dtype=torch.float64), torch.diag(torch.tensor([1.0, -1.0], dtype=torch.float64))
    pairs = ((mirror, plain), (plain, mirror), (mirror, mirror))
    return LieAlgebra(torch.block_diag(rotation, rotation)[None]), torch.stack(
        [torch.block_diag(*pair) for pair in pairs]
    )


def _energy(x: Tensor) -> Tensor:
    return x[:, 2:].square().sum(-1) / 2 - 1 / x[:, :2].norm(dim=-1)


def _energies(generator: torch.Generator) -> tuple[System, System]:
    rotation, still = so(2).basis[0], torch.zeros(2, 2, dtype=torch.float64)
    apart = LieAlgebra(torch.stack([torch.block_diag(rotation, still), torch.block_diag(still, rotation)]))
    _, mirrors = _paired()
    ripple = ripples(kepler_states(2048, generator), 1, generator)
    energy = vector_system(
        "kepler_energy", apart, _energy, kepler_states, samples=2000, components=torch.cat([alone(4), mirrors]),
        note="the energy of a state: rotations of q and of p, each alone",
    )  # fmt: skip
    # The energy of these orbits spreads by 0.1.
    control = energy.without_group(
        name="kepler_energy_control",
        function=lambda x: _energy(x) + 0.02 * ripple(x)[:, 0],
        note="the energy and a generic term",
    )
    return energy, control
