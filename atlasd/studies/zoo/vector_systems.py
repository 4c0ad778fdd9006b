"""Vectors and sets of vectors with a known algebra, and the Kepler problem in the plane."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from atlasd.algebra.known import borel, heisenberg, scaling, shear, sl, so, sp
from atlasd.algebra.lie import LieAlgebra
from atlasd.geometry.actions import VectorAction
from atlasd.geometry.polynomial import integrate
from atlasd.studies.zoo.negatives import ripples
from atlasd.studies.zoo.system import (
    Sampler,
    System,
    alone,
    conjugated,
    framed,
    log_norm,
    normal,
    signed_permutations,
    signs,
    vector_system,
)


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


def vector_systems() -> tuple[System, ...]:
    """All vector positives. Each map depends on every coordinate, so that every direction is testable.

    Example:
        >>> {system.name: system.truth.dimension for system in vector_systems()}["so13"]
        6
    """
    return (*_forms(), *_scalings_and_boosts(), *_products_and_cubics(), *_equivariant())


def _forms() -> tuple[System, ...]:
    """Functions of a quadratic or of a symplectic form."""
    return (
        vector_system("so2", so(2), _turn_pair, normal(2, 2), note="p.q, det(p, q) and |p|: reflections are broken"),
        vector_system("o2", so(2), log_norm, normal(2), "++ +-", "a function of the norm"),
        vector_system("so3", so(3), _inner_products, normal(2, 3), "+++ ---", "all inner products of two vectors"),
        vector_system("o3", so(3), lambda x: (-x.square().sum(-1) / 4).exp(), normal(3), "+++ ---", "a Gaussian bell"),
        _ellipsoid("ellipse", 2, signs("++", "+-")),
        _ellipsoid("ellipsoid", 3, signs("+++", "---")),
        vector_system("so12", so(1, 2), lambda x: (interval(x, 1) / 2).tanh(), normal(3), "+++ +-+ -++ --+"),
        vector_system("so22", so(2, 2), lambda x: (interval(x, 2) / 3).tanh(), normal(4), "++++ -+++ ++-+ -+-+"),
        vector_system(
            "so13", so(1, 3), _log_mass, _momenta, "++++ +--- -+++ ----", "logarithm of the mass of two momenta",
            unreached=(2, 3),  # time reversal leads off the forward cone
        ),
        vector_system("sl2", sl(2), lambda x: area(x).asinh(), normal(2, 2)),
        vector_system("sp4", sp(4), _symplectic, normal(2, 4), note="the symplectic form of two vectors"),
    )  # fmt: skip


def _ellipsoid(name: str, n: int, mirrors: Tensor) -> System:
    # From round to stretched coordinates, neither symmetric nor diagonal.
    full = torch.tensor([[1.6, 0.5, -0.3], [0.0, 0.8, 0.4], [0.0, 0.0, 1.1]], dtype=torch.float64)
    frame = full[:n, :n]
    return vector_system(
        name, so(n).adjoint(frame), framed(log_norm, frame), normal(n, frame=frame),
        note=f"so({n}) in other coordinates", components=conjugated(mirrors, frame),
    )  # fmt: skip


def _scalings_and_boosts() -> tuple[System, ...]:
    """Groups that keep no form."""
    upper = torch.tensor([[[1.0, 0.0], [0.0, -1.0]], [[0.0, 1.0], [0.0, 0.0]]])
    boost = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]])
    boosts = torch.zeros(3, 3, 3)
    boosts[0, 1, 0] = boosts[1, 2, 0] = 1.0
    boosts[2, 1:, 1:] = so(2).basis[0]
    plane = "(t, x, y): two boosts and a rotation"
    return (
        vector_system("scaling2", scaling(2), _direction, _shell(2), note="a function of the angle alone"),
        vector_system("scaling3", scaling(3), _direction, _shell(3), note="two functions on the sphere"),
        vector_system("shear", shear(2), _heights_and_area, normal(2, 2), note="not closed under transpose"),
        vector_system("borel", borel(2), _flag, _triangles, note="ratios of second coordinates and of areas"),
        vector_system("axis", LieAlgebra(upper), _weighted_flag, _pairs, note="upper triangular and trace-free"),
        vector_system("heisenberg", heisenberg(), _nested_determinants, normal(3, 3)),
        vector_system("galilei11", LieAlgebra(boost), _relative_speed, _events(1), note="(t, x): x -> x + v t"),
        vector_system("galilei12", LieAlgebra(boosts), _relative_speed, _events(2), "+++ ++-", plane),
    )


def _products_and_cubics() -> tuple[System, ...]:
    """Direct products, and functions of third order."""
    planes = torch.zeros(2, 4, 4)
    planes[0, :2, :2] = planes[1, 2:, 2:] = so(2).basis[0]
    torus = torch.tensor([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]]).diag_embed()
    cross = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]])
    line = LieAlgebra(torch.stack([cross, torch.ones(3, 3) - torch.eye(3)]))
    similar = so(2).sum(scaling(2))
    swap = torch.eye(3, dtype=torch.float64)[torch.tensor([[0, 1, 2], [1, 0, 2]])]
    return (
        vector_system(
            "so2_so2", LieAlgebra(planes), _two_norms, normal(4), "++++ +-++ +++- +-+-", "rotations in two planes"
        ),
        vector_system(
            "so2_scaling", similar, _complex_ratio, _shell(2, tokens=2), note="the ratio of two complex numbers"
        ),
        vector_system(
            "xyz", LieAlgebra(torus), lambda x: x.prod(-1).asinh(), normal(3), note="diagonal and trace-free",
            components=signed_permutations(),
        ),
        vector_system(
            "circulant", line, lambda x: _circulant(x).asinh(), normal(3), components=swap,
            note="x^3 + y^3 + z^3 - 3 x y z: a line times a circle",
        ),
    )  # fmt: skip


def _equivariant() -> tuple[System, ...]:
    """Outputs that transform as the inputs do."""
    vectors = VectorAction(rho_out=lambda g: g)
    note = "outputs rotate with the input"
    return (
        vector_system("central2", so(2), _central_force, normal(2), "++ +-", note, action=vectors),
        vector_system("central3", so(3), _central_force, normal(3), "+++ ---", note, action=vectors),
        vector_system(
            "cross", so(3), lambda x: torch.linalg.cross(x[:, 0], x[:, 1]), normal(2, 3), action=vectors,
            note="the vector product: rotations, no mirrors",
        ),
    )  # fmt: skip


def area(x: Tensor) -> Tensor:
    """Determinant of the first two of tokens `(N, P, 2)`, with shape `(N,)`."""
    return x[:, 0, 0] * x[:, 1, 1] - x[:, 0, 1] * x[:, 1, 0]


def interval(x: Tensor, minus: int) -> Tensor:
    """Square of vectors `(*, n)` in the metric with -1 for the first `minus` axes, with shape `(*,)`."""
    return x[..., minus:].square().sum(-1) - x[..., :minus].square().sum(-1)


def _heights_and_area(x: Tensor) -> Tensor:
    return torch.stack([x[:, 0, 1], x[:, 1, 1], area(x)], dim=-1)


def _shell(n: int, *, tokens: int | None = None) -> Sampler:
    """All directions, radii between 0.6 and 1.8: away from the origin, where ratios are singular."""
    shape = (n,) if tokens is None else (tokens, n)

    def sample(samples: int, generator: torch.Generator) -> Tensor:
        way = torch.randn(samples, *shape, generator=generator)
        radius = 0.6 + 1.2 * torch.rand(samples, *shape[:-1], 1, generator=generator)
        return radius * way / way.norm(dim=-1, keepdim=True)

    return sample


def _momenta(samples: int, generator: torch.Generator) -> Tensor:
    """Two momenta (E, px, py, pz) of masses 1 to 1.7, slow enough to tell time from space, `(N, 2, 4)`."""
    space = 0.8 * torch.randn(samples, 2, 3, generator=generator)
    mass = 1.0 + 0.7 * torch.rand(samples, 2, 1, generator=generator)
    energy = (space.square().sum(-1, keepdim=True) + mass.square()).sqrt()
    return torch.cat([energy, space], dim=-1)


def _pairs(samples: int, generator: torch.Generator) -> Tensor:
    """Two tokens `(N, 2, 2)` whose second coordinates lie away from their common zero."""
    return torch.stack([torch.randn(samples, 2, generator=generator), _shell(2)(samples, generator)], dim=-1)


def _triangles(samples: int, generator: torch.Generator) -> Tensor:
    """Three tokens `(N, 3, 2)` away from a common line, where ratios of areas and of heights are singular."""
    heights = _shell(3)(samples, generator)
    spread = torch.linalg.cross(heights, torch.randn(samples, 3, generator=generator))
    spread = spread / spread.norm(dim=-1, keepdim=True)
    width = 0.6 + 1.2 * torch.rand(samples, 1, generator=generator)
    lean = torch.randn(samples, 1, generator=generator)
    return torch.stack([width * spread + lean * heights, heights], dim=-1)


def _events(d: int) -> Sampler:
    """Two events (t, x, ...) with times between 0.5 and 2, with shape `(N, 2, 1 + d)`."""

    def sample(samples: int, generator: torch.Generator) -> Tensor:
        time = 0.5 + 1.5 * torch.rand(samples, 2, 1, generator=generator)
        return torch.cat([time, torch.randn(samples, 2, d, generator=generator)], dim=-1)

    return sample


def _turn_pair(x: Tensor) -> Tensor:
    p, q = x.unbind(1)
    return torch.stack([(p * q).sum(-1), area(x), p.square().sum(-1).log1p()], dim=-1)


def _inner_products(x: Tensor) -> Tensor:
    p, q = x.unbind(1)
    return torch.stack([p.square().sum(-1), (p * q).sum(-1), q.square().sum(-1)], dim=-1)


def _log_mass(x: Tensor) -> Tensor:
    return (-interval(x.sum(1), 1)).log() / 2


def _symplectic(x: Tensor) -> Tensor:
    p, q = x.unbind(1)
    return (p[:, :2] * q[:, 2:] - p[:, 2:] * q[:, :2]).sum(-1)


def _direction(x: Tensor) -> Tensor:
    way = x / x.norm(dim=-1, keepdim=True)
    if x.shape[-1] == 2:
        return 2 * way[:, 0] + 3 * way[:, 0] * way[:, 1]
    u, v, w = way.unbind(-1)
    return torch.stack([u + 2 * v * w - u * w, v - w + 2 * u * v + u**3], dim=-1)


def _minors(x: Tensor) -> Tensor:
    """The areas spanned by pairs of three tokens `(N, 3, 2)`, with shape `(N, 3)`."""
    u, v = x.unbind(-1)
    return torch.stack([u[:, i] * v[:, j] - u[:, j] * v[:, i] for i, j in ((0, 1), (0, 2), (1, 2))], dim=-1)


def _flag(x: Tensor) -> Tensor:
    heights, areas = x[..., 1], _minors(x)
    # No small constant in the denominators: it would break the scaling.
    return torch.cat([heights / heights.norm(dim=-1, keepdim=True), areas / areas.norm(dim=-1, keepdim=True)], -1)


def _weighted_flag(x: Tensor) -> Tensor:
    heights = x[..., 1]
    return torch.cat([heights / heights.norm(dim=-1, keepdim=True), area(x)[:, None]], dim=-1)


def _nested_determinants(x: Tensor) -> Tensor:
    heights, volume = x[..., 2], torch.linalg.det(x)
    # The volume scatters most and would drown the other two.
    return torch.cat([heights, area(x[..., 1:])[:, None], 0.4 * volume[:, None]], dim=-1)


def _relative_speed(x: Tensor) -> Tensor:
    time = x[..., 0]
    speed = x[..., 1:] / time[..., None]
    gap = speed[:, 1] - speed[:, 0]
    # In one dimension the sign is kept, which leaves the boost alone and no mirror.
    size = gap[:, 0].asinh() if gap.shape[-1] == 1 else gap.square().sum(-1).log1p()
    return torch.cat([time, size[:, None]], dim=-1)


def _two_norms(x: Tensor) -> Tensor:
    return torch.stack([log_norm(x[:, :2]), log_norm(x[:, 2:])], dim=-1)


def _complex_ratio(x: Tensor) -> Tensor:
    p, q = x.unbind(1)
    return torch.stack([(p * q).sum(-1), area(x)], dim=-1) / p.square().sum(-1, keepdim=True)


def _circulant(x: Tensor) -> Tensor:
    return x.pow(3).sum(-1) - 3 * x.prod(-1)


def _central_force(x: Tensor) -> Tensor:
    return x * (2 * (-x.square().sum(-1, keepdim=True) / 2).exp() - 0.5) * math.sqrt(2.0)
