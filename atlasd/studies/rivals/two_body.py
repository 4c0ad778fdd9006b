"""Two equal masses that attract each other in the plane: five steps of an orbit, and the next five (LieGAN's task)."""

from __future__ import annotations

__all__ = ["Orbits", "augmented_error", "joint_rotation", "network_error", "two_body_orbits"]

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.lie import LieAlgebra
from atlasd.nn.mlp import EquivariantMLP
from atlasd.nn.tensor_types import vector
from atlasd.runtime.random import stream
from atlasd.studies.rivals.augmentation import perceptron

_STEP = 0.5
_LENGTH = 5
_FINE = 8
"""Steps of the integration in one step of the data."""


@dataclass(frozen=True, eq=False)
class Orbits:
    """States of both bodies (q1, q2, p1, p2), with shape `(N, 2 * 5, 8)`: those that are seen, and those to predict."""

    states: Tensor

    @property
    def steps(self) -> tuple[Tensor, Tensor]:
        """Pairs of a state and the next one, both `(M, 8)`."""
        return self.states[:, :-1:3].flatten(0, 1), self.states[:, 1::3].flatten(0, 1)


def joint_rotation() -> Tensor:
    """The generator of rotations of all positions and momenta together, `(1, 8, 8)`."""
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    return torch.block_diag(turn, turn, turn, turn)[None]


def two_body_orbits(count: int, seed: int, *, force: tuple[float, float] = (0.0, 0.0)) -> Orbits:
    """Nearly circular orbits about the common centre, at half-distances 0.5 to 1.5.

    Arguments:
        count: Number of orbits.
        seed: Seed of their beginnings.
        force: A constant force that pulls the bodies apart along one direction.
    """
    draw = stream(seed, "two-body")
    radius, angle = (
        0.5 + torch.rand(count, generator=draw, dtype=torch.float64),
        2 * math.pi * torch.rand(count, generator=draw, dtype=torch.float64),
    )
    away = torch.stack([angle.cos(), angle.sin()], dim=-1)
    speed = (1 + 0.05 * torch.randn(count, generator=draw, dtype=torch.float64)) / (2 * radius.sqrt())
    z = torch.cat([radius[:, None] * away, speed[:, None] * away.flip(-1) * torch.tensor([-1.0, 1.0]).double()], dim=-1)
    pull = torch.tensor(force, dtype=torch.float64)

    def rate(u: Tensor) -> Tensor:
        q, p = u[..., :2], u[..., 2:]
        return torch.cat([p, pull - q / (4 * q.norm(dim=-1, keepdim=True) ** 3)], dim=-1)

    states, h = [z], _STEP / _FINE
    for _ in range(2 * _LENGTH - 1):
        for _ in range(_FINE):
            a = rate(z)
            b = rate(z + h / 2 * a)
            c = rate(z + h / 2 * b)
            z = z + h / 6 * (a + 2 * b + 2 * c + rate(z + h * c))
        states.append(z)
    path = torch.stack(states, dim=1)
    return Orbits(torch.cat([path[..., :2], -path[..., :2], path[..., 2:], -path[..., 2:]], dim=-1))


def network_error(train: Orbits, test: Orbits, generators: Tensor, *, steps: int, seed: int) -> float:
    """Test error (mean square) of a network that commutes with generators `(k, 8, 8)` by design, k at least 1.

    It works in the four components in which orbits vary, where quadratic invariants are few.
    """
    rows = train.states.flatten(0, 1)
    _, sizes, frame = torch.linalg.svd(rows, full_matrices=False)
    kept = frame[sizes > 1e-6 * sizes[0]]  # (4, 8)
    algebra = LieAlgebra(kept @ generators.double() @ kept.mT)
    draw = stream(seed, "two-body", "equivariant")
    network = EquivariantMLP(algebra, _LENGTH * vector(), _LENGTH * vector(), 64, degree=2, adapt=True, generator=draw)
    seen, wanted = (part.flatten(1) for part in (train.states @ kept.mT).float().split(_LENGTH, dim=1))
    network.standardise(seen, wanted)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        index = torch.randint(len(seen), (128,), generator=draw)
        loss = functional.mse_loss(network(seen[index]), wanted[index])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        x = (test.states[:, :_LENGTH] @ kept.mT).float().flatten(1)
        guess = network(x).unflatten(1, (_LENGTH, len(kept))) @ kept.float()
        return float(functional.mse_loss(guess, test.states[:, _LENGTH:].float()))


def augmented_error(train: Orbits, test: Orbits, generators: Tensor, *, steps: int, seed: int) -> float:
    """Test error (mean square) of a perceptron that predicts five steps from five, trained on transformed orbits.

    Arguments:
        train: Orbits to learn from.
        test: Others.
        generators: Along which orbits are transformed, `(k, 8, 8)`; none for no augmentation.
        steps: Steps of training.
        seed: Seed of the network and of the transformations.
    """
    draw = stream(seed, "two-body", "network")
    network = perceptron(8 * _LENGTH, 128, 8 * _LENGTH, draw)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    sizes = torch.linalg.eigvals(generators).imag.abs().amax(-1) if len(generators) else torch.ones(0)
    given = (generators / sizes.clamp_min(1e-6)[:, None, None]).float()
    seen, wanted = train.states.float().split(_LENGTH, dim=1)
    for _ in range(steps):
        index = torch.randint(len(seen), (128,), generator=draw)
        x, y = seen[index], wanted[index]
        if len(given):
            t = math.pi * (2 * torch.rand(128, len(given), generator=draw) - 1)
            g = torch.matrix_exp(torch.einsum("bk,kij->bij", t, given)).mT
            x, y = x @ g, y @ g
        loss = functional.mse_loss(network(x.flatten(1)), y.flatten(1))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        x, y = test.states.float().split(_LENGTH, dim=1)
        return float(functional.mse_loss(network(x.flatten(1)), y.flatten(1)))
