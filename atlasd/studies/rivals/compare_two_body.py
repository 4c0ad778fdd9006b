"""Orbits of two bodies, as every method sees them; what each finds is used to augment the data of a network."""

from __future__ import annotations

__all__ = ["CONTEST", "CompareTwoBodyConfig"]

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.flow import FlowPredictor, discover_flow
from atlasd.discovery.gradient import GradientSearch
from atlasd.errors import InputError
from atlasd.geometry.actions import VectorAction
from atlasd.geometry.affine import as_inputs
from atlasd.studies.config import option
from atlasd.studies.rivals.asking import ask_map
from atlasd.studies.rivals.augmentation import AugmentationLearning
from atlasd.studies.rivals.compare import Answer, Contest
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.measures import FieldAngle
from atlasd.studies.rivals.null_space import Rule
from atlasd.studies.rivals.tasks import TaskConfig, elementary, for_flows, shown_widths
from atlasd.studies.rivals.two_body import Orbits, augmented_error, joint_rotation, network_error, two_body_orbits
from atlasd.studies.rivals.vector_fields import VectorFields

_VECTOR = VectorAction(rho_out=as_inputs)


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
        return answer

    def figures() -> dict[str, Any]:
        options = {"steps": config.network_steps, "seed": seed}
        errors = {"test_mse": augmented_error(side.train, side.test, answer.basis, **options)}
        try:
            if len(answer.basis):
                errors["network_mse"] = network_error(side.train, side.test, answer.basis, **options)
        except InputError:  # what was claimed leaves nothing invariant: there is no such network
            pass
        return {name: float(f"{value:.4g}") for name, value in errors.items()}

    return replace(answer, figures=figures, judged=None, confirm=None)


def ours(side: Side, config: CompareTwoBodyConfig, seed: int) -> Answer:
    """Linear maps that commute with the step from one state to the next."""
    now, after = side.train.steps
    options: dict[str, Any] = {"action": "linear", "cosets": False, "degree": 0, "tolerance": config.tolerance}
    found = discover_flow(now, after=after, seed=seed, **options)
    return _used(side, config, seed, Answer(found.algebra.basis, discovery=found.symmetries))


def papers_search(side: Side, config: CompareTwoBodyConfig, seed: int) -> Answer:
    """The paper's algorithm on states and next states, told that there is one generator."""
    search = GradientSearch.published(epochs=None, steps=config.gradient_batches)
    options: dict[str, Any] = {"action": _VECTOR, "predictor": FlowPredictor(), "tolerance": config.tolerance}
    return _used(side, config, seed, ask_map(search, *side.train.steps, seed=seed, **options))


def liegan(side: Side, config: CompareTwoBodyConfig, seed: int) -> Answer:
    """States and next states moved together, one generator."""
    search = LieGAN(steps=config.liegan_steps)
    return _used(side, config, seed, Answer(search.find_in_data(*side.train.steps, action=_VECTOR, seed=seed).basis))


def fields(rule: Rule, side: Side, config: CompareTwoBodyConfig) -> Answer:
    """Linear fields that commute with a polynomial, in the four components in which orbits vary."""
    now, after = side.train.steps
    _, sizes, frame = torch.linalg.svd(now, full_matrices=False)
    kept = frame[sizes > 1e-6 * sizes[0]]  # (4, 8)
    search = VectorFields(library=1, least=1, equivariant=True, degree=3, rule=rule)
    found = search.find(now @ kept.mT, (after - now) @ kept.mT)
    return _used(side, config, 0, Answer(kept.mT @ found @ kept))


def augmentation(side: Side, config: CompareTwoBodyConfig, seed: int) -> Answer:
    """Widths of the elementary generators of the plane, applied to all positions and momenta."""
    given, names = elementary(2)
    joint = torch.stack([torch.block_diag(*[m] * 4) for m in given])
    search = AugmentationLearning(steps=config.augmentation_steps)
    found, widths = search.find(*side.train.steps, joint, seed=seed, output=as_inputs)
    return _used(side, config, seed, Answer(found, note=f"widths: {shown_widths(widths, names)}"))


def nothing(side: Side, config: CompareTwoBodyConfig, seed: int) -> Answer:
    """No augmentation."""
    return _used(side, config, seed, Answer(joint_rotation()[:0]))


def truth(side: Side, config: CompareTwoBodyConfig, seed: int) -> Answer:
    """The true generator, given."""
    return _used(side, config, seed, Answer(joint_rotation()))


def _fields(side: Side, found: Tensor) -> Tensor:
    return torch.einsum("kij,bj->kbi", found.double(), side.train.steps[0])


CONTEST = Contest(
    name="two-body",
    config=CompareTwoBodyConfig,
    measure=FieldAngle(
        fields=lambda side, _, found: _fields(side, found), truth=lambda side, _: _fields(side, joint_rotation())
    ),
    data=data,
    methods={
        **for_flows(ours, fields, papers_search, liegan, augmentation),
        "no augmentation": nothing,
        "given the truth": truth,
    },
    control="a constant force: no rotation is left",
    paper={"test error of LieGAN's network": "none of the other methods below 6e-5", "LieGG": "knows invariants only"},
    reported={"LieGAN": "test error 3.8e-5", "given the truth": "test error 1.4e-5"},
)
