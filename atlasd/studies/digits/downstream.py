"""The discovered group in a CNN: trained on digits rotated up to 60 degrees, tested on digits rotated at will."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from atlasd.algebra import known
from atlasd.algebra.group import Group
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.nn.checks import field_error
from atlasd.nn.groups import invariant_form
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.config import PaperConfig, option
from atlasd.studies.digits.data import BACKGROUND, CENTRES, CLASSES, HEIGHT, SphereDigits, sphere_mnist
from atlasd.studies.digits.pixel_networks import Plan, digit_accuracy, fit_pixels, pixel_network
from atlasd.studies.networks import given_discovery, mean_row, over_seeds, weight_count
from atlasd.studies.record import Extras

_PAPER = (1, 32, 32, 64, 64, 64, 32, 32, 32, 32, 16, 16, CLASSES)
_GROUPS = {
    "SO(2)": lambda: known.special_orthogonal(2),
    "O(2)": lambda: known.orthogonal(2),
    "C4": lambda: known.cyclic(4),
    "D4": lambda: known.dihedral(4),
}


@dataclass(frozen=True, kw_only=True)
class DownstreamConfig(PaperConfig):
    """Settings of the comparison."""

    PAPER: ClassVar[Mapping[str, Any]] = {
        "network": "paper",
        "spheres": 10_000,
        "test": 1000,
        "epochs": 100,
        "batch": 16,
        "learning_rate": 1e-3,
        "rows": HEIGHT,
        "seeds": 1,
    }

    discovery: str | None = option(None, "run directory of a discovery whose group to use")
    group: Literal["SO(2)", "O(2)", "C4", "D4"] = option("SO(2)", "the group to use if no discovery is given")
    models: Literal["all", "plain", "C4", "C8", "group"] = option("all", "which networks to train")
    network: Literal["small", "paper"] = option("small", "six layers at half the resolution, or the paper's twelve")
    width: int = option(24, "channels of the small network", least=1)
    c4: Literal["trivial", "regular"] = option("trivial", "fields of C4: scalars as in the paper, or as those of C8")
    frequencies: int = option(2, "highest frequency of the fields of a rotation group; 0 for scalars", least=0)
    spheres: int = option(600, "spheres to train on, three digits each", least=1)
    test: int = option(300, "spheres to test on", least=1)
    seeds: int = option(3, "seeds, from the one given on", least=1)
    rotate: float = option(60.0, "largest angle in training, in degrees", least=0, most=180)
    test_rotate: float = option(180.0, "largest angle in the test, in degrees", least=0, most=180)
    rows: int = option(36, "rows about the equator that are trained on; tests see whole spheres", least=30, most=HEIGHT)
    epochs: int = option(6, "passes over the data", least=1)
    batch: int = option(8, "spheres in a step", least=1)
    learning_rate: float = option(1e-2, "of Adam", least=1e-9)
    background: float = option(0.005, "weight of background pixels in the loss", least=0)


CONFIG = DownstreamConfig
REPORTED = {"plain": 0.6975, "C4": 0.9381, "spheres": 10_000, "epochs": 100}
"""What the paper reports, for comparison only."""


@dataclass(frozen=True)
class Model:
    """One row of the comparison: a group, or none, and the fields between the layers."""

    name: str
    group: Group | None
    kind: str


def run(config: DownstreamConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Trains every network on the same spheres with the same budget, and scores them on pixels with ink."""
    start = time.monotonic()
    reason = f"Given by the setting group={config.group}, not discovered in this run."
    found = given_discovery(_GROUPS[config.group](), reason, seed, config.discovery)
    models = {m.name: m for m in compared(found.group, config) if config.models in ("all", m.name)}
    if not models:
        raise InputError(f"`models` must be part of the comparison, got {config.models!r}; the group lacks it.")

    def measure(name: str, s: int) -> dict[str, float]:
        return _score(models[name], config, s, progress)

    results = over_seeds(list(models), range(seed, seed + config.seeds), measure, "accuracy", progress)
    extras = Extras(_metrics(models, results), REPORTED, _picture(config, seed))
    return replace(found, seconds={**found.seconds, "compare": time.monotonic() - start}), extras


def compared(group: Group, config: DownstreamConfig) -> list[Model]:
    """No group, those of C4 and C8 that are part of the group, and the group itself."""
    models = [Model("plain", None, "trivial")]
    for order, kind in ((4, config.c4), (8, "regular")):
        finite = known.cyclic(order)
        if group.contains(finite.cosets[1]):
            models.append(Model(finite.name, finite, kind))
    if not group.dimension:
        return models if group.name in {m.name for m in models} else [*models, Model("group", group, "regular")]
    form = invariant_form(group)
    round_ = form is not None and float((form - torch.eye(2, dtype=form.dtype)).abs().max()) < 0.1
    own = f"circle({config.frequencies})" if round_ and config.frequencies else "trivial"
    return [*models, Model("group", group, own)]


def _plan(config: DownstreamConfig) -> Plan:
    small = config.network == "small"
    return Plan(
        channels=(1, *[config.width] * 5, CLASSES) if small else _PAPER,
        dilated=(3, 4) if small else (5, 6, 7, 8),
        halve=small,
        epochs=config.epochs,
        batch=config.batch,
        learning_rate=config.learning_rate,
        cycle=small,
        background=config.background,
    )


def _spheres(count: int, rotate: float, seed: int, split: Literal["train", "test"]) -> SphereDigits:
    generator = stream(seed, "sphere-mnist-downstream", split, rotate)
    return sphere_mnist(count, generator=generator, rotate=rotate, split=split)


def _score(model: Model, config: DownstreamConfig, seed: int, progress: Progress) -> dict[str, float]:
    """Trains one network and measures it; plain values, so that they can be kept."""
    train = _spheres(config.spheres, config.rotate, seed, "train")
    tests = {
        "accuracy": _spheres(config.test, config.test_rotate, seed, "test"),
        "accuracy_inside": _spheres(max(config.test // 3, 1), config.rotate, seed, "test"),
    }
    plan = _plan(config)
    network = pixel_network(plan, model.group, model.kind, stream(seed, "pixels", "weights")).to(config.device)
    first = (HEIGHT - config.rows) // 2
    band = slice(first, first + config.rows)
    x, y = train.x[:, :, band], train.y[:, band]
    trained = fit_pixels(network, x, y, plan, seed=seed, progress=progress, label=f"training {model.name}")
    network.cpu()
    scores = {key: digit_accuracy(network, t.x, t.y, BACKGROUND) for key, t in tests.items()}
    rotated = {f"turn_{d}": e for d, e in _rotation_errors(network, tests["accuracy"].x[:8]).items()}
    return {**scores, **rotated, "parameters": weight_count(network), **trained.row}


def _rotation_errors(network: nn.Module, x: Tensor) -> dict[int, float]:
    """Equivariance errors about the middle digit, on and off the grid, where no other digit comes in."""
    row, column = CENTRES[1]
    window = x[..., row - 22 : row + 22, column - 22 : column + 22]
    degrees = (90, 45, 30)
    angles = torch.tensor([[math.radians(d)] for d in degrees])
    errors = field_error(network, window, known.so(2).exp(angles), radius=16)
    return {d: float(e) for d, e in zip(degrees, errors, strict=True)}


def _metrics(models: Mapping[str, Model], results: Mapping[str, list[dict[str, float]]]) -> dict[str, Any]:
    plain = results.get("plain")
    rows = []
    for name, model in models.items():
        each = results[name]
        mean = mean_row(each)
        row: dict[str, Any] = {
            "model": name,
            "group": "none" if model.group is None else model.group.name,
            "fields": model.kind,
            "accuracy": mean["accuracy"],
            "accuracy_inside": mean["accuracy_inside"],
            "parameters": int(mean["parameters"]),
        }
        if plain is not None:
            row["share"] = mean["parameters"] / plain[0]["parameters"]
            row["gain"] = fmean(r["accuracy"] - p["accuracy"] for r, p in zip(each, plain, strict=True))
        rows.append({**row, **{k: mean[k] for k in ("turn_90", "turn_45", "turn_30", "seconds", "core_seconds")}})
    return {
        "seeds": max(map(len, results.values())),
        "rows": rows,
        "accuracies": {name: [r["accuracy"] for r in each] for name, each in results.items()},
    }


def _picture(config: DownstreamConfig, seed: int) -> dict[str, Tensor]:
    data = _spheres(1, config.rotate, seed, "train")
    return {"input": data.x[0], "output": data.y[:1].float(), "radii": torch.tensor([14.0, 14.0], dtype=torch.float64)}
