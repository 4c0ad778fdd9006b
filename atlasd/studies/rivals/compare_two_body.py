"""Two equal masses that attract each other in the plane (LieGAN's task): five steps of an orbit, and the next five.

What each method finds is used to augment the data of a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.flow import FlowPredictor, discover_flow
from atlasd.errors import InputError
from atlasd.geometry.actions import VectorAction, as_inputs
from atlasd.geometry.polynomial import integrate
from atlasd.nn.mlp import EquivariantMLP
from atlasd.nn.tensor_types import vector
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.config import option
from atlasd.studies.networks import train_network
from atlasd.studies.rivals.asking import Plan, rival_methods
from atlasd.studies.rivals.asking import Side as Steps
from atlasd.studies.rivals.augmentation import perceptron
from atlasd.studies.rivals.compare import OURS, Answer, Contest, Method
from atlasd.studies.rivals.field_library import VectorFields
from atlasd.studies.rivals.measures import field_angle
from atlasd.studies.rivals.null_space import Rule
from atlasd.studies.rivals.tasks import LINEAR, TaskConfig, by_rule, elementary, linear_plan

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
    rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    return torch.block_diag(rotation, rotation, rotation, rotation)[None]


def two_body_orbits(count: int, seed: int, *, force: tuple[float, float] = (0.0, 0.0)) -> Orbits:
    """Nearly circular orbits about the common centre, at half-distances 0.5 to 1.5.

    Arguments:
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

    states = [z]
    for _ in range(2 * _LENGTH - 1):
        states.append(integrate(rate, states[-1], _STEP, _FINE))
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
    _train(network, lambda index: (seen[index], wanted[index]), len(seen), steps, draw)
    with torch.no_grad():
        x = (test.states[:, :_LENGTH] @ kept.mT).float().flatten(1)
        guess = network(x).unflatten(1, (_LENGTH, len(kept))) @ kept.float()
        return float(functional.mse_loss(guess, test.states[:, _LENGTH:].float()))


def augmented_error(train: Orbits, test: Orbits, generators: Tensor, *, steps: int, seed: int) -> float:
    """Test error (mean square) of a perceptron that predicts five steps from five, trained on transformed orbits.

    Arguments:
        train: Orbits to learn from.
        generators: Along which orbits are transformed, `(k, 8, 8)`; none for no augmentation.
    """
    draw = stream(seed, "two-body", "network")
    network = perceptron(8 * _LENGTH, 128, 8 * _LENGTH, draw)
    sizes = torch.linalg.eigvals(generators).abs().amax(-1) if len(generators) else torch.ones(0)
    given = (generators / sizes.clamp_min(1e-6)[:, None, None]).float()
    seen, wanted = train.states.float().split(_LENGTH, dim=1)

    def batch(index: Tensor) -> tuple[Tensor, Tensor]:
        x, y = seen[index], wanted[index]
        if len(given):
            t = math.pi * (2 * torch.rand(len(index), len(given), generator=draw) - 1)
            g = torch.matrix_exp(torch.einsum("bk,kij->bij", t, given)).mT
            x, y = x @ g, y @ g
        return x.flatten(1), y.flatten(1)

    _train(network, batch, len(seen), steps, draw)
    with torch.no_grad():
        x, y = test.states.float().split(_LENGTH, dim=1)
        return float(functional.mse_loss(network(x.flatten(1)), y.flatten(1)))


def _train(
    network: nn.Module, batch: Callable[[Tensor], tuple[Tensor, Tensor]], count: int, steps: int, draw: torch.Generator
) -> None:
    """Lowers the mean square error on batches of at most 128 of `count` samples, which `batch` reads."""
    schedule = Schedule(epochs=math.ceil(steps / math.ceil(count / 128)), batch=128, learning_rate=2e-3)

    def loss(index: Tensor) -> Tensor:
        x, y = batch(index)
        return functional.mse_loss(network(x), y)

    train_network(
        network, loss, torch.arange(count), schedule, generator=draw, progress=Silent(), label="orbits", cycle=0.3
    )


@dataclass(frozen=True, kw_only=True)
class CompareTwoBodyConfig(TaskConfig):
    """Settings of the task `two-body`."""

    samples: int = option(500, "orbits to learn from", least=60)
    network_steps: int = option(3000, "steps of the network that predicts orbits; 0 for none", least=0)


@dataclass(frozen=True, eq=False)
class Side:
    """Orbits to learn from and others to test on."""

    train: Orbits
    test: Orbits


def data(config: CompareTwoBodyConfig, seed: int, control: bool) -> Side:
    """Orbits; for the control, under a constant force, which leaves one mirror and no rotation."""
    force = (0.06, 0.03) if control else (0.0, 0.0)
    return Side(two_body_orbits(config.samples, seed, force=force), two_body_orbits(1000, seed + 10_000, force=force))


def _used(side: Side, config: CompareTwoBodyConfig, seed: int, answer: Answer) -> Answer:
    """The answer with the test errors of a network trained on data augmented by it, and of one built for it."""
    if not config.network_steps:
        return replace(answer, judged=None)

    def figures() -> dict[str, Any]:
        options = {"steps": config.network_steps, "seed": seed}
        errors = {"test_mse": augmented_error(side.train, side.test, answer.basis, **options)}
        try:
            if len(answer.basis):
                errors["network_mse"] = network_error(side.train, side.test, answer.basis, **options)
        except InputError:  # what was claimed leaves nothing invariant: there is no such network
            pass
        return {name: float(f"{value:.4g}") if math.isfinite(value) else None for name, value in errors.items()}

    return replace(answer, figures=figures, judged=None)


def ours(side: Side, config: CompareTwoBodyConfig, seed: int) -> Answer:
    """Linear maps that commute with the step from one state to the next."""
    now, after = side.train.steps
    options: dict[str, Any] = {"action": "linear", "cosets": False, "degree": 0, "tolerance": config.tolerance}
    found = discover_flow(now, after=after, seed=seed, **options)
    return _used(side, config, seed, Answer(found.algebra.basis, discovery=found.symmetries))


def fields(rule: Rule, side: Side, config: CompareTwoBodyConfig) -> Answer:
    """Linear fields that commute with a polynomial, in the four components in which orbits vary."""
    now, after = side.train.steps
    _, sizes, frame = torch.linalg.svd(now, full_matrices=False)
    kept = frame[sizes > 1e-6 * sizes[0]]  # (4, 8)
    search = VectorFields(library=1, least=1, equivariant=True, degree=3, rule=rule)
    found = search.find(now @ kept.mT, (after - now) @ kept.mT)
    return _used(side, config, 0, Answer(kept.mT @ found @ kept))


def _plans(side: Side, config: CompareTwoBodyConfig) -> list[Plan]:
    """The elementary generators of the plane are given, applied to all positions and momenta."""
    given, names = elementary(2)
    joint = torch.stack([torch.block_diag(*[m] * 4) for m in given])
    moved: dict[str, Any] = {"action": VectorAction(rho_out=as_inputs), "predictor": FlowPredictor()}
    return [linear_plan(Steps(*side.train.steps), config, given=(joint, names), **moved)]


def _given(found: Tensor) -> Method:
    """The row of generators that are given, and not found."""
    return lambda side, config, seed: _used(side, config, seed, Answer(found))


def _fields(side: Side, found: Tensor) -> Tensor:
    return torch.einsum("kij,bj->kbi", found.double(), side.train.steps[0])


CONTEST = Contest(
    name="two-body",
    config=CompareTwoBodyConfig,
    measure=field_angle(lambda side, _, found: _fields(side, found), lambda side, _: _fields(side, joint_rotation())),
    data=data,
    methods={
        OURS: ours,
        **by_rule(fields),
        **rival_methods(
            _plans, [name for name in LINEAR if name != "LieGG"],
            lambda side, config, seed, found: _used(side, config, seed, found[0]),
        ),
        "no augmentation": _given(joint_rotation()[:0]),
        "given the truth": _given(joint_rotation()),
    },
    control="a constant force: no rotation is left",
    remark="no other method that was published with it has a test error below 6e-5; LieGG knows invariants only",
    reported={"LieGAN": "test error 3.8e-5", "given the truth": "test error 1.4e-5"},
)  # fmt: skip
