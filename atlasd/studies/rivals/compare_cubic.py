"""x^3 - y^2, whose symmetry is a field that is not linear (Shaw et al.), for the methods that know such fields."""

from __future__ import annotations

__all__ = ["CONTEST", "CompareCubicConfig", "cubic_task", "true_field"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.discovery.discover import discover
from atlasd.discovery.vector_fields import FieldDiscovery
from atlasd.geometry.monomials import Monomials
from atlasd.geometry.polynomial import PolynomialAction
from atlasd.runtime.progress import Silent
from atlasd.studies.config import option
from atlasd.studies.rivals.compare import OURS, Answer, Contest
from atlasd.studies.rivals.measures import FieldAngle
from atlasd.studies.rivals.null_space import Rule
from atlasd.studies.rivals.tasks import Pair, TaskConfig, by_rule, normal, rippled
from atlasd.studies.rivals.vector_fields import VectorFields

_DEGREE = 2


@dataclass(frozen=True, kw_only=True)
class CompareCubicConfig(TaskConfig):
    """Settings of the task `cubic`."""

    samples: int = option(2000, "points", least=60)


def cubic_task(samples: int, seed: int) -> Pair:
    """Normal points with spread 2, and y = x1^3 - x2^2."""
    x = 2 * normal(samples, 2, seed=seed, name="cubic")
    return x, x[:, 0] ** 3 - x[:, 1] ** 2


def true_field(x: Tensor) -> Tensor:
    """The field (2 x2, 3 x1^2) at points, `(1, N, 2)`."""
    return torch.stack([2 * x[:, 1], 3 * x[:, 0] ** 2], dim=-1)[None]


def data(config: CompareCubicConfig, seed: int, control: bool) -> Pair:
    """Points and values; for the control, with a wave added."""
    x, y = cubic_task(config.samples, seed)
    return (x, rippled(x, y)) if control else (x, y)


def ours(pair: Pair, config: CompareCubicConfig, seed: int) -> Answer:
    """The default search among fields of degree 2."""
    found = discover(
        *pair, action=PolynomialAction(degree=_DEGREE), tolerance=config.tolerance, seed=seed, progress=Silent()
    )
    assert isinstance(found, FieldDiscovery)
    return Answer(found.fields, discovery=found)


def fields(rule: Rule, pair: Pair, config: CompareCubicConfig) -> Answer:
    """The vector-field method with a library of degree 2."""
    return Answer(VectorFields(library=_DEGREE, rule=rule).find(*pair))


CONTEST = Contest(
    name="cubic",
    config=CompareCubicConfig,
    measure=FieldAngle(
        fields=lambda pair, _, found: torch.einsum("kim,bm->kbi", found.double(), Monomials(2, _DEGREE)(pair[0])),
        truth=lambda pair, _: true_field(pair[0]),
    ),
    data=data,
    methods={OURS: ours, **by_rule(fields)},
    control="the same with a wave along a generic direction added",
    paper={"others": "AtlasD, LieGG, LieGAN and augmentation learning look for matrices and cannot answer"},
    reported={"fields, threshold": "3.3 degrees, 2.7 s (Shaw et al.)"},
)
