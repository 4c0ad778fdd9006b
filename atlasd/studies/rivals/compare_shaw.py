"""Two tasks of Shaw et al.: ellipses about a point that is not the origin, and x^3 - y^2, whose field is not linear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.discover import discover
from atlasd.discovery.vector_fields import FieldDiscovery
from atlasd.geometry.actions import AffineAction
from atlasd.geometry.monomials import Monomials
from atlasd.geometry.polynomial import PolynomialAction
from atlasd.runtime.progress import Silent
from atlasd.studies.config import option
from atlasd.studies.rivals.asking import Plan, Side, rival_methods
from atlasd.studies.rivals.compare import OURS, Answer, Contest, Method
from atlasd.studies.rivals.field_library import VectorFields, homogeneous_to_fields
from atlasd.studies.rivals.measures import field_angle
from atlasd.studies.rivals.tasks import LINEAR, TaskConfig, by_rule, converted, linear_plan, normal, rippled


@dataclass(frozen=True, kw_only=True)
class ShawConfig(TaskConfig):
    """Settings of the tasks `affine` and `cubic`."""

    samples: int = option(2000, "points", least=60)


def affine_task(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal points about (1, 1) with spreads 2 and 1, and y = (x1 - 1)^2 + 4 (x2 - 1)^2."""
    x = normal(samples, 2, seed=seed, name="affine") * torch.tensor([2.0, 1.0], dtype=torch.float64) + 1
    return x, (x[:, 0] - 1) ** 2 + 4 * (x[:, 1] - 1) ** 2


def affine_field(x: Tensor) -> Tensor:
    """The true field (4 - 4 x2, x1 - 1) at points, `(1, N, 2)`."""
    return torch.stack([4 - 4 * x[:, 1], x[:, 0] - 1], dim=-1)[None]


def cubic_task(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal points with spread 2, and y = x1^3 - x2^2."""
    x = 2 * normal(samples, 2, seed=seed, name="cubic")
    return x, x[:, 0] ** 3 - x[:, 1] ** 2


def cubic_field(x: Tensor) -> Tensor:
    """The true field (2 x2, 3 x1^2) at points, `(1, N, 2)`."""
    return torch.stack([2 * x[:, 1], 3 * x[:, 0] ** 2], dim=-1)[None]


def fields_at(x: Tensor, coefficients: Tensor, degree: int = 1) -> Tensor:
    """Fields `(k, N, n)` at points from coefficients `(k, n, m)` of the monomials up to a degree."""
    return torch.einsum("kim,bm->kbi", coefficients.double(), Monomials(x.shape[1], degree)(x))


def _options(config: ShawConfig, seed: int) -> dict[str, Any]:
    return {"tolerance": config.tolerance, "seed": seed, "progress": Silent()}


def affine_maps(side: Side, config: ShawConfig, seed: int) -> Answer:
    """Ours: the default search among affine maps."""
    found = discover(side.x, side.y, action=AffineAction(), cosets=False, **_options(config, seed))
    return converted(Answer.of(found), homogeneous_to_fields)


def quadratic_fields(side: Side, config: ShawConfig, seed: int) -> Answer:
    """Ours: the default search among fields of degree 2."""
    found = discover(side.x, side.y, action=PolynomialAction(degree=2), **_options(config, seed))
    assert isinstance(found, FieldDiscovery)
    return Answer(found.fields, discovery=found)


def _centred(side: Side, config: ShawConfig) -> list[Plan]:
    """Linear methods are given the points about their mean, which is the centre of the ellipses."""
    return [linear_plan(Side(side.x - side.x.mean(0), side.y), config)]


def _about(side: Side, config: ShawConfig, seed: int, answers: list[Answer]) -> Answer:
    """Matrices about the mean as affine fields."""
    mean = side.x.mean(0)
    return converted(answers[0], lambda a: torch.cat([-(a.double() @ mean)[..., None], a.double()], dim=-1))


def _contest(
    name: str,
    task: Callable[[int, int], tuple[Tensor, Tensor]],
    truth: Callable[[Tensor], Tensor],
    degree: int,
    ours: Method,
    others: dict[str, Method],
    **texts: Any,
) -> Contest:
    """One of the tasks, with a library of polynomials of some degree for the vector-field method."""

    def data(config: ShawConfig, seed: int, control: bool) -> Side:
        x, y = task(config.samples, seed)
        return Side(x, rippled(x, y) if control else y)

    rules = by_rule(lambda rule, side, config: Answer(VectorFields(library=degree, rule=rule).find(side.x, side.y)))
    measure = field_angle(lambda side, _, found: fields_at(side.x, found, degree), lambda side, _: truth(side.x))
    control = "the same with a wave along a generic direction added"
    return Contest(name, ShawConfig, measure, data, {OURS: ours, **rules, **others}, control, **texts)


AFFINE = _contest(
    "affine", affine_task, affine_field, 1, affine_maps, rival_methods(_centred, LINEAR, _about),
    reported={
        "fields, threshold": "0.065, 0.023, 0.011 degrees at N = 200, 2000, 20000; 2.2, 2.6, 5.6 s (Shaw et al.)"
    },
)  # fmt: skip
CUBIC = _contest(
    "cubic", cubic_task, cubic_field, 2, quadratic_fields, {},
    remark="AtlasD, LieGG, LieGAN and augmentation learning look for matrices and cannot answer",
    reported={"fields, threshold": "3.3 degrees, 2.7 s (Shaw et al.)"},
)  # fmt: skip
