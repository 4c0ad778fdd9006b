"""A function of the sector of a plane (LieGAN's task): seven rotations and a scaling, as every method sees it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlasd.discovery.discover import discover
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent
from atlasd.studies.config import option
from atlasd.studies.rivals.asking import Plan, Side, rival_methods
from atlasd.studies.rivals.compare import OURS, Answer, Contest
from atlasd.studies.rivals.field_library import VectorFields
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.measures import field_angle
from atlasd.studies.rivals.null_space import Rule
from atlasd.studies.rivals.tasks import LINEAR, TaskConfig, by_rule, elementary, linear_plan, normal, rippled

_ORDER = 7
_NEAR = 0.1
"""Distance of a claimed element from a rotation of the seven, up to which it counts as that rotation."""


@dataclass(frozen=True, kw_only=True)
class CompareSectorConfig(TaskConfig):
    """Settings of the task `sector`."""

    samples: int = option(20_000, "points", least=200)
    tolerance: float = option(
        0.1,
        "largest strength that counts as a symmetry; transformations of the plane typically cost less than 0.2",
        least=1e-6,
    )
    network_steps: int = option(8000, "training steps of the network that follows the borders of sectors", least=1)
    liegan_steps: int = option(3000, "steps of LieGAN", least=1)


def sector_value(x: Tensor) -> Tensor:
    """x3 / (1 + s), with s the angle in the plane from the beginning of one of seven sectors."""
    return x[..., 2] / (1 + torch.remainder(torch.atan2(x[..., 1], x[..., 0]), 2 * math.pi / _ORDER))


def sector_task(samples: int, seed: int) -> tuple[Tensor, Tensor]:
    """Normal points in three dimensions and their values."""
    x = normal(samples, 3, seed=seed, name="sector")
    return x, sector_value(x)


def data(config: CompareSectorConfig, seed: int, control: bool) -> Side:
    """Points and values; for the control, with a wave added."""
    x, y = sector_task(config.samples, seed)
    if not control:
        return Side(x, y, sector_value)
    spread = y.std()
    function = lambda p: sector_value(p) + rippled(p, torch.zeros_like(p[:, 0]), spread=spread)  # noqa: E731
    return Side(x, function(x), function)


def seventh_rotations() -> Tensor:
    """The six rotations of the third axis that are not the identity, `(6, 3, 3)`."""
    angles = 2 * math.pi / _ORDER * torch.arange(1, _ORDER, dtype=torch.float64)
    rotation = torch.zeros(3, 3, dtype=torch.float64)
    rotation[1, 0], rotation[0, 1] = 1.0, -1.0
    return torch.matrix_exp(angles[:, None, None] * rotation)


def sort_elements(elements: Tensor) -> tuple[int, int]:
    """How many of the six rotations are among elements `(m, 3, 3)`, and how many elements are something else.

    The plane may be scaled: its scaling is a symmetry, too. The identity does not count.
    """
    if not len(elements):
        return 0, 0
    elements = elements.double().clone()
    size = torch.linalg.det(elements[:, :2, :2]).abs().clamp_min(1e-12).sqrt()[:, None]
    elements[:, :2] = elements[:, :2] / size[..., None]
    known = torch.cat([torch.eye(3, dtype=torch.float64)[None], seventh_rotations()])
    distance = torch.linalg.matrix_norm(elements[:, None] - known, ord=2)
    nearest, which = distance.min(dim=1)
    right = {int(w) for w, d in zip(which, nearest, strict=True) if d <= _NEAR and w > 0}
    return len(right), int((nearest > _NEAR).sum())


def _with_elements(answer: Answer, elements: Tensor | None = None) -> Answer:
    """An answer with the rotations among its elements `(m, 3, 3)`; most methods know none."""
    elements = torch.zeros(0, 3, 3) if elements is None else elements
    figures = lambda: dict(zip(("sevenths", "other_elements"), sort_elements(elements), strict=True))  # noqa: E731
    return replace(answer, components=max(len(elements), 1), figures=figures, judged=None)


def ours(side: Side, config: CompareSectorConfig, seed: int) -> Answer:
    """From the data, with a deep network of kinks: it follows the sharp borders of sectors, which bumps blur."""
    schedule = Schedule(epochs=1000, batch=256, learning_rate=5e-3, patience=None, steps=config.network_steps)
    network = MLPPredictor(hidden=(64,) * 5, relu=True, schedule=schedule)
    found = discover(side.x, side.y, predictor=network, tolerance=config.tolerance, seed=seed, progress=Silent())
    return _with_elements(Answer.of(found), found.cosets)


def ours_exact(side: Side, config: CompareSectorConfig, seed: int) -> Answer:
    """The same of the function itself, which has no error to be mistaken for a symmetry."""
    found = discover(side.x, function=side.function, tolerance=config.tolerance, seed=seed, progress=Silent())
    return _with_elements(Answer.of(found), found.cosets)


def fields(rule: Rule, side: Side, config: CompareSectorConfig) -> Answer:
    """Linear fields along which a polynomial fitted to the data does not change."""
    return _with_elements(Answer(VectorFields(library=1, least=1, rule=rule).find(side.x, side.y)))


def liegan(side: Side, config: CompareSectorConfig, seed: int) -> Answer:
    """Whole multiples of one generator, as in its paper: it claims a discrete group and no continuous one."""
    search = LieGAN(coefficients="integers", spread=3, steps=config.liegan_steps)
    found = search.find_in_data(side.x, side.y, seed=seed).basis.double()
    if not len(found):
        return _with_elements(Answer(found, note="its generator collapsed"))
    powers = torch.matrix_exp(torch.arange(_ORDER, dtype=torch.float64)[:, None, None] * found)  # the first is 1
    rotation = math.degrees(math.atan2(float(powers[1, 1, 0]), float(powers[1, 0, 0])))
    said = f"rotates the plane by {rotation:.1f} degrees; 51.4 is a seventh"
    return _with_elements(Answer(found[:0], note=said), powers)


def _plans(side: Side, config: CompareSectorConfig) -> list[Plan]:
    """The elementary generators are given, among them the scaling of the plane in place of that of space."""
    given, names = elementary(3)
    given[names.index("scaling"), 2, 2] = 0.0
    return [linear_plan(side, config, given=(given, names))]


CONTEST = Contest(
    name="sector",
    config=CompareSectorConfig,
    measure=field_angle(
        lambda side, _, found: torch.einsum("kij,bj->kbi", found.double(), side.x),
        lambda side, _: (side.x * torch.tensor([1.0, 1.0, 0.0], dtype=side.x.dtype))[None],
    ),
    data=data,
    methods={
        OURS: ours,
        "atlasd, function": ours_exact,
        **by_rule(fields),
        **rival_methods(_plans, LINEAR, lambda side, config, seed, found: _with_elements(found[0])),
        "LieGAN": liegan,
    },
    control="the same with a wave along a generic direction added",
    reported={"LieGAN": "the rotation by a seventh; not the scaling"},
)
