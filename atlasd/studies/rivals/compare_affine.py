"""Ellipses about a point that is not the origin (Shaw et al.), as every method sees them."""

from __future__ import annotations

__all__ = ["CONTEST", "CompareAffineConfig", "affine_fields", "affine_task", "true_field"]

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.geometry.affine import AffineAction
from atlasd.geometry.monomials import Monomials
from atlasd.runtime.progress import Silent
from atlasd.studies.config import option
from atlasd.studies.rivals.asking import ask_data, ask_map
from atlasd.studies.rivals.augmentation import AugmentationLearning
from atlasd.studies.rivals.compare import OURS, Answer, Contest
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG
from atlasd.studies.rivals.measures import FieldAngle
from atlasd.studies.rivals.null_space import Rule
from atlasd.studies.rivals.tasks import Pair, TaskConfig, by_rule, elementary, normal, on_fields, rippled, shown_widths
from atlasd.studies.rivals.vector_fields import VectorFields, homogeneous_to_fields


@dataclass(frozen=True, kw_only=True)
class CompareAffineConfig(TaskConfig):
    """Settings of the task `affine`."""

    samples: int = option(2000, "points", least=60)


def affine_task(samples: int, seed: int) -> Pair:
    """Normal points about (1, 1) with spreads 2 and 1, and y = (x1 - 1)^2 + 4 (x2 - 1)^2."""
    x = normal(samples, 2, seed=seed, name="affine") * torch.tensor([2.0, 1.0], dtype=torch.float64) + 1
    return x, (x[:, 0] - 1) ** 2 + 4 * (x[:, 1] - 1) ** 2


def true_field(x: Tensor) -> Tensor:
    """The field (4 - 4 x2, x1 - 1) at points, `(1, N, 2)`."""
    return torch.stack([4 - 4 * x[:, 1], x[:, 0] - 1], dim=-1)[None]


def affine_fields(x: Tensor, coefficients: Tensor) -> Tensor:
    """Fields `(k, N, n)` at points from coefficients `(k, n, n + 1)` of 1 and the components."""
    return torch.einsum("kim,bm->kbi", coefficients.double(), Monomials(x.shape[1], 1)(x))


def data(config: CompareAffineConfig, seed: int, control: bool) -> Pair:
    """Points and values; for the control, with a wave added."""
    x, y = affine_task(config.samples, seed)
    return (x, rippled(x, y)) if control else (x, y)


def ours(pair: Pair, config: CompareAffineConfig, seed: int) -> Answer:
    """The default search among affine maps."""
    options: dict[str, Any] = {"tolerance": config.tolerance, "seed": seed, "progress": Silent()}
    return on_fields(Answer.of(discover(*pair, action=AffineAction(), cosets=False, **options)), homogeneous_to_fields)


def fields(rule: Rule, pair: Pair, config: CompareAffineConfig) -> Answer:
    """The vector-field method with a library of degree 1."""
    return Answer(VectorFields(library=1, rule=rule).find(*pair))


def _centred(pair: Pair) -> Pair:
    """Linear methods are given the points about their mean, which is the centre of the ellipses."""
    return pair[0] - pair[0].mean(0), pair[1]


def _about(pair: Pair, answer: Answer) -> Answer:
    """Matrices about the mean as affine fields."""
    mean = pair[0].mean(0)
    return on_fields(answer, lambda a: torch.cat([-(a.double() @ mean)[..., None], a.double()], dim=-1))


def papers_search(pair: Pair, config: CompareAffineConfig, seed: int) -> Answer:
    """The paper's algorithm, told that there is one generator, about the mean of the points."""
    search = GradientSearch.published(epochs=None, steps=config.gradient_batches)
    return _about(pair, ask_map(search, *_centred(pair), tolerance=config.tolerance, seed=seed))


def liegg(pair: Pair, config: CompareAffineConfig, seed: int) -> Answer:
    """The polarization matrix of the same predictor, about the mean."""
    return _about(pair, ask_map(LieGG(), *_centred(pair), tolerance=config.tolerance, seed=seed))


def liegan(pair: Pair, config: CompareAffineConfig, seed: int) -> Answer:
    """One generator about the mean."""
    search = LieGAN(steps=config.liegan_steps)
    return _about(pair, ask_data(search, *_centred(pair), tolerance=config.tolerance, seed=seed))


def augmentation(pair: Pair, config: CompareAffineConfig, seed: int) -> Answer:
    """Widths of the four elementary generators about the mean; the truth is none of them."""
    given, names = elementary(2)
    found, widths = AugmentationLearning(steps=config.augmentation_steps).find(*_centred(pair), given, seed=seed)
    return _about(pair, Answer(found, note=f"widths: {shown_widths(widths, names)}"))


CONTEST = Contest(
    name="affine",
    config=CompareAffineConfig,
    measure=FieldAngle(
        fields=lambda pair, _, found: affine_fields(pair[0], found), truth=lambda pair, _: true_field(pair[0])
    ),
    data=data,
    methods={
        OURS: ours,
        **by_rule(fields),
        "AtlasD": papers_search,
        "LieGG": liegg,
        "LieGAN": liegan,
        "augmentation": augmentation,
    },
    control="the same with a wave along a generic direction added",
    reported={
        "fields, threshold": "0.065, 0.023, 0.011 degrees at N = 200, 2000, 20000; 2.2, 2.6, 5.6 s (Shaw et al.)"
    },
)
