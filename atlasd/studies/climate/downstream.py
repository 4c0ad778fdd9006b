"""Cyclones and rivers on the icosahedron: a network with the group of the sphere, and one with the discovered group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from atlasd.algebra import known
from atlasd.algebra.known import so
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.nn.icosahedral import IcosahedralUNet
from atlasd.nn.icosahedron import icosahedral_grid
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.runtime.stages import located
from atlasd.studies.climate.vertices import VertexMaps, agreement, given_maps, jaccard_loss, score_maps, synthetic_maps
from atlasd.studies.config import PaperConfig, option
from atlasd.studies.networks import Trained, given_discovery, mean_row, over_seeds, train_network, weight_count
from atlasd.studies.record import Extras

_MODELS = {"SO(2)": False, "GL+(2)": True}
"""Models and whether their kernels are flat."""
_PAPER_WIDTH, _PAPER_RESOLUTION = 16, 6
_INSIDE = 0.9
"""Cosine with the span above which rotations count as discovered: about 25 degrees."""


@dataclass(frozen=True, kw_only=True)
class ClimateDownstreamConfig(PaperConfig):
    """Settings of the comparison."""

    PAPER: ClassVar[Mapping[str, Any]] = {
        "resolution": _PAPER_RESOLUTION,
        "width": _PAPER_WIDTH,
        "epochs": 20,
        "batch": 4,
        "learning_rate": 1e-3,
        "schedule": "constant",
        "seeds": 10,
        "train": 200,
        "test": 60,
        "rows": 768,
        "own": False,
        "average": 0.0,
    }

    data: str | None = option(None, "folder of ClimateNet with train and test inside; by default maps are made up")
    discovery: str | None = option(None, "run directory of a discovery, which decides the kernels; GL+(2) by default")
    models: Literal["all", "SO(2)", "GL+(2)"] = option("all", "which networks to train")
    symmetry: Literal["events", "affine", "rotation", "none"] = option("events", "the rule of labels made up")
    resolution: int = option(4, "of the grid: it has 10 * 4**resolution + 2 vertices", least=4, most=8)
    width: int = option(16, "channels of the first block; the last has 16 times as many", least=1)
    rows: int = option(96, "rows of maps made up", least=16)
    train: int = option(240, "maps made up to train on", least=2)
    test: int = option(60, "maps made up to test on", least=1)
    own: bool = option(True, "in the flat network a vertex counts by a number of its own for each channel")
    discord: float = option(0.0, "of those experts: 0 is nearly of one mind, 1 as in ClimateNet", least=0, most=2)
    seeds: int = option(3, "trainings of each network, from the seed given on", least=1)
    experts: int = option(2, "experts who label each map made up", least=1)
    epochs: int = option(30, "passes over all maps and experts", least=1)
    batch: int = option(4, "maps in a step", least=2)
    learning_rate: float = option(2e-2, "of Adam", least=1e-9)
    average: float = option(
        0.998, "share that the running mean of the weights keeps in a step; 0 for none", least=0, most=1
    )
    schedule: Literal["cycle", "constant"] = option("cycle", "learning rates that rise and fall, or one")


CONFIG = ClimateDownstreamConfig
_COLUMNS = ("parameters", "iou_bg", "iou_tc", "iou_ar", "mean_iou", "precision", "recall")
REPORTED: Mapping[str, Mapping[str, float]] = {
    "SO(2)": dict(zip(_COLUMNS, (765_945, 0.9107, 0.1744, 0.3839, 0.4896, 0.5983, 0.6274), strict=True)),
    "GL+(2)": dict(zip(_COLUMNS, (111_321, 0.9086, 0.1720, 0.3790, 0.4865, 0.5846, 0.6344), strict=True)),
    "human": dict(zip(_COLUMNS[1:5], (0.9137, 0.2475, 0.3467, 0.5026), strict=True)),
}
"""What the paper reports, for comparison only."""


def run(config: ClimateDownstreamConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Trains both networks on the same maps with the same budget, and scores them against every expert."""
    start = time.monotonic()
    reason = "GL+(2) was given, as in the paper, and not discovered in this run."
    found = given_discovery(known.general_linear_plus(2), reason, seed, config.discovery)
    if found.group.cosets.shape[-1] != 2:
        raise InputError(f"`discovery` must be one of the plane, got the group {found.group.name}; name another.")
    models = [name for name in ("SO(2)", _kernels(found)) if config.models in ("all", name)]
    models = list(dict.fromkeys(models))
    if not models:
        raise InputError(
            f"`models` must be the baseline SO(2) or what was discovered, {_kernels(found)}, got {config.models}."
        )
    maps = _Maps(config, progress)

    def measure(name: str, s: int) -> dict[str, float]:
        return agreement(maps.of(s)[0]) if name == "human" else _measure(name, config, s, maps, progress)

    results = over_seeds([*models, "human"], range(seed, seed + config.seeds), measure, "mean_iou", progress)
    people = [row for row in results.pop("human") if row]
    extras = Extras(_metrics(config, results, people), REPORTED)
    return replace(found, seconds={**found.seconds, "compare": time.monotonic() - start}), extras


def _kernels(found: Discovery) -> str:
    """The network whose kernels have the discovered group: round ones for rotations alone, flat ones for more.

    A kernel that rotations leave as it is, has one weight for each radius. Any further generator takes points to other
    radii, and then only a flat kernel stays as it is.
    """
    algebra = found.group.algebra
    rotation = so(2).basis[0].flatten().double()
    frame = algebra.frame().flatten(1)
    inside = float((frame @ rotation).norm() / rotation.norm()) if len(frame) else 0.0
    if inside < _INSIDE:
        raise InputError(
            f"`discovery` must hold rotations of the plane, got {found.headline}; there are no kernels for it here."
        )
    return "SO(2)" if algebra.dimension == 1 else "GL+(2)"


class _Maps:
    """Maps of one seed at a time, made or read when first asked for."""

    def __init__(self, config: ClimateDownstreamConfig, progress: Progress) -> None:
        self._config, self._progress = config, progress
        self._seed: int | None = None
        self._held: tuple[VertexMaps, VertexMaps] | None = None

    def of(self, seed: int) -> tuple[VertexMaps, VertexMaps]:
        """To train on and to test on, standardised; files are the same for every seed."""
        seed = seed if self._config.data is None else 0
        if self._held is None or self._seed != seed:
            train, test = self._read("train", seed), self._read("test", seed)
            self._seed, self._held = seed, (train.standardised(train), test.standardised(train))
        return self._held

    def _read(self, split: Literal["train", "test"], seed: int) -> VertexMaps:
        config = self._config
        if config.data is not None:
            return given_maps(located(config.data), split, resolution=config.resolution, progress=self._progress)
        return synthetic_maps(
            config.train if split == "train" else config.test,
            resolution=config.resolution,
            generator=stream(seed, "climate-downstream", split),
            symmetry=config.symmetry,
            rows=config.rows,
            experts=config.experts,
            discord=config.discord,
        )


def _measure(
    name: str, config: ClimateDownstreamConfig, seed: int, maps: _Maps, progress: Progress
) -> dict[str, float]:
    """Trains one network and measures it; plain values, so that they can be kept."""
    train, test = maps.of(seed)
    network = _network(name, config, seed, variables=train.x.shape[1]).to(config.device)
    trained = _fit(network, train, config, seed, progress, f"training {name}")
    network.cpu()
    return {
        **score_maps(network, test),
        "equivariance": _equivariance(network, test.x[:1]),
        "parameters": float(weight_count(network)),
        **trained.row,
    }


def _network(name: str, config: ClimateDownstreamConfig, seed: int, variables: int = 16) -> IcosahedralUNet:
    flat = _MODELS[name]
    return IcosahedralUNet(
        variables,
        channels=[config.width * 2**i for i in range(5)],
        resolution=config.resolution,
        flat=flat,
        own=flat and config.own,
        generator=stream(seed, "climate-downstream", "weights"),
    )


def _fit(
    network: IcosahedralUNet,
    maps: VertexMaps,
    config: ClimateDownstreamConfig,
    seed: int,
    progress: Progress,
    label: str,
) -> Trained:
    """Trains on every map with every expert, and leaves in the network the running mean of its weights."""
    pairs = torch.tensor(maps.pairs())
    if len(pairs) < config.batch:
        raise InputError(
            f"`batch` must be at most the {len(pairs)} labelled maps, got {config.batch}; make it smaller."
        )
    mean = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(config.average), use_buffers=True)

    def loss(part: Tensor) -> Tensor:
        labels = torch.stack([maps.labels[t][e] for t, e in part.tolist()])
        return jaccard_loss(network(maps.x[part[:, 0]].to(config.device)), labels.to(config.device))

    trained = train_network(
        network,
        loss,
        pairs,
        config,
        generator=stream(seed, "climate-downstream", "order"),
        progress=progress,
        label=label,
        cycle=0.3 if config.schedule == "cycle" else None,
        full_batches=True,  # a rest of one map would have no batch statistics
        after=lambda: mean.update_parameters(network),
    )
    network.load_state_dict(mean.module.state_dict())
    return trained


def _equivariance(network: IcosahedralUNet, x: Tensor) -> float:
    """The largest relative error of the network's scores over all 60 rotations of the grid."""
    grid = icosahedral_grid(network.resolution)
    with torch.no_grad():
        y = network(x)
        errors = [float((network(grid.rotate(x, r)) - grid.rotate(y, r)).abs().max()) for r in grid.rotations]
    return max(errors) / float(y.abs().max())


def _metrics(
    config: ClimateDownstreamConfig,
    results: Mapping[str, list[dict[str, float]]],
    people: list[dict[str, float]],
) -> dict[str, Any]:
    scores = ("iou_bg", "iou_tc", "iou_ar", "mean_iou", "precision", "recall")
    rows: list[dict[str, Any]] = []
    for name, each in results.items():
        mean = mean_row(each)
        at_paper = weight_count(_network(name, replace(config, width=_PAPER_WIDTH, resolution=_PAPER_RESOLUTION), 0))
        rows.append(
            {
                "model": name,
                "parameters": int(mean["parameters"]),
                "parameters_at_paper_size": at_paper,
                **{key: mean[key] for key in scores},
                "best_mean_iou": max(r["mean_iou"] for r in each),
                "equivariance": max(r["equivariance"] for r in each),
                "seconds": mean["seconds"],
                "core_seconds": mean["core_seconds"],
                "paper_mean_iou": REPORTED[name]["mean_iou"],
            }
        )
    if people:
        rows.append({"model": "human", **mean_row(people), "paper_mean_iou": REPORTED["human"]["mean_iou"]})
    metrics: dict[str, Any] = {
        "seeds": max(map(len, results.values())),
        "rows": rows,
        "mean_ious": {name: [r["mean_iou"] for r in each] for name, each in results.items()},
    }
    if len(results) == len(_MODELS):
        curved, flat = (results[name] for name in _MODELS)
        metrics["difference"] = fmean(f["mean_iou"] - c["mean_iou"] for f, c in zip(flat, curved, strict=True))
        metrics["fewer_parameters"] = curved[0]["parameters"] / flat[0]["parameters"]
    return metrics
