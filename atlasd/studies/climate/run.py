"""Cyclones and atmospheric rivers: with which linear transformations of the weather in a chart its labels commute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.known import gl, so
from atlasd.algebra.lie import LieAlgebra
from atlasd.data.samples import Samples, split_indices
from atlasd.data.stored import Stored
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.locality import MINIMUM_SKILL
from atlasd.discovery.result import Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.geometry.actions import GridAction
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_recipe
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.runtime.stages import located, scratch_directory
from atlasd.studies.climate.cgnet import CGNetPredictor
from atlasd.studies.climate.files import ClimateFolder, open_climate
from atlasd.studies.climate.second_order import SecondOrderPredictor, class_findings, pictures
from atlasd.studies.climate.synthetic import CLASSES, synthetic_climate
from atlasd.studies.config import asking, option
from atlasd.studies.heat.run import span_angle
from atlasd.studies.record import Extras
from atlasd.studies.searches import PixelClassConfig, gradient_search, mirror_search

DISCOVERY = ("TMQ", "U850", "V850", "PSL")
"""The four variables that the paper's predictors see."""
PUBLISHED = {"TMQ": (19.22, 15.82), "U850": (1.553, 8.298), "V850": (0.254, 6.232), "PSL": (100_814.0, 1461.0)}
"""Means and spreads of the published code."""


def climate_samples(
    folder: ClimateFolder, directory: Path, progress: Progress, units: Mapping[str, tuple[float, float]] | None = None
) -> tuple[Tensor | Stored, Tensor | Stored]:
    """Inputs `(N, C, H, W)` and classes `(N, H, W)`; written map by map to files that are read as they are needed.

    Arguments:
        directory: Where the files may stand, for as long as they are used.
        units: Mean and spread of every variable; those of the maps themselves by default.
    """
    variables = DISCOVERY
    if units is None:
        mean, spread = _measured(folder, progress)
    else:
        mean, spread = torch.tensor([units[v] for v in variables]).mT
    mean, spread = mean[:, None, None], spread.clamp_min(1e-12)[:, None, None]
    paths = directory / "maps.bin", directory / "labels.bin"
    count = 0
    # Plain writes, not a map of the file: what was written needs no memory.
    with paths[0].open("wb") as fields, paths[1].open("wb") as labels:
        for number in progress.track(range(len(folder)), "read maps"):
            x = ((folder.fields(number, variables) - mean) / spread).numpy()
            for drawn in folder.labels(number):
                x.astype("<f4").tofile(fields)
                drawn.numpy().astype(np.uint8).tofile(labels)
                count += 1
    shapes = torch.Size((count, len(variables), *folder.shape)), torch.Size((count, *folder.shape))
    return (
        Stored("memory", str(paths[0].resolve()), "", shapes[0], "<f4"),
        Stored("memory", str(paths[1].resolve()), "", shapes[1], "|u1"),
    )


def _measured(folder: ClimateFolder, progress: Progress) -> tuple[Tensor, Tensor]:
    """Mean and spread of every variable over all maps, in one pass."""
    parts = []
    for number in progress.track(range(len(folder)), "measure maps"):
        x = folder.fields(number, DISCOVERY).double()
        parts.append(torch.stack([x.mean((1, 2)), x.var((1, 2), correction=0)]))
    means, variances = torch.stack(parts, dim=1)
    return means.mean(0).float(), (variances.mean(0) + means.var(0, correction=0)).sqrt().float()


@dataclass(frozen=True, kw_only=True)
class ClimateConfig(PixelClassConfig):
    """Settings of the climate experiment."""

    PAPER: ClassVar[Mapping[str, Any]] = {
        "rows": 768,
        "samples": 400,
        "predictor": "cgnet",
        "search": "gradient",
        "published": True,
        "tandem": True,
        "generators": 4,
        "units": "published",
    }

    data: str = option("", "folder of ClimateNet's files; synthetic maps by default")
    symmetry: Literal["affine", "rotation", "none", "events", "background"] = option(
        "affine", "local symmetry of the labels of synthetic maps"
    )
    samples: int = option(250, "synthetic maps", least=30)
    rows: int = option(96, "rows of synthetic maps; half as many more columns", least=64)
    units: Literal["measured", "published"] = option(
        "measured", "means and spreads of the variables of files: of these maps, or those of the published code"
    )
    missing: Literal["refuse", "fill"] = option("refuse", "what to do about missing values")
    predictor: Literal["second-order", "cgnet"] = option("second-order", "what is fitted to each chart")
    winds: Literal["scalar", "vector"] = option("scalar", "winds transform as scalars, as in the paper, or as vectors")
    generators: int | Literal["auto"] = option("auto", "how many generators, or auto to find out", least=1, most=4)
    charts: Literal["code", "text"] = option(
        "code", "the paper's four charts: one above the other, as in its code, or along the equator, as in its text"
    )
    search_samples: int = option(16, "maps that the spectral search looks at", least=8)
    growth: float = option(5.0, "growth factor of the gradient search", least=0)
    weight: float = option(0.05, "weight of the similarity term", least=0)
    epochs: int = option(30, "passes of the gradient search and of CGNet over the data", least=1)
    learning_rate: float = option(1e-3, "learning rate of the gradient search", least=1e-12)


CONFIG = ClimateConfig
REPORTED = {"group": "GL+(2)", "dimension": 4, "note": "read off four generators of comparable size"}
"""What the paper reports, for comparison only."""


def run(config: ClimateConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Reads or draws the maps, fits a predictor to each chart, and asks for the local symmetry."""
    with scratch_directory() as scratch:
        return _run(config, seed, progress, scratch)


def _run(config: ClimateConfig, seed: int, progress: Progress, scratch: Path) -> tuple[Discovery, Extras]:
    x, y = _maps(config, seed, progress, scratch)
    atlas = climate_atlas((x.shape[-2], x.shape[-1]), config.charts)
    action = GridAction(rho_in=_turned_winds if config.winds == "vector" else None)
    recipe = _predictor(config)
    found = discover(
        x,
        y,
        atlas=atlas,
        action=action,
        predictor=recipe,
        search=_search(config),
        cosets=mirror_search(config, config.epochs),
        **asking(config, seed, progress),
    )
    # The figures and the classes look at one predictor of their own, on maps that it was not fitted to.
    samples = Samples.check(x, y, atlas)
    train, search, test = split_indices(len(samples), stream(seed, "split"))
    fitted = fit_recipe(recipe, samples, train, search, seed=seed, progress=progress)
    rows = class_findings(fitted, samples, test[:12], action, CLASSES)
    found = _judged_by_class(found, rows)
    radii = atlas.radii
    assert radii is not None
    fields = {
        "input": samples.x[test[:1]][0],
        "output": y[test[:1]].float(),
        "radii": torch.tensor(radii, dtype=torch.float64),
        "actions": pictures(fitted, samples, test, action),
    }
    metrics = {
        "group": found.answer,
        "dimension": found.group.dimension,
        "angle_so2_deg": span_angle(found.algebra, so(2)),
        "angle_gl2_deg": span_angle(found.algebra, gl(2)),
        "rows": rows,
    }
    return found, Extras(metrics, REPORTED, fields)


def climate_atlas(shape: tuple[int, int], charts: Literal["code", "text"] = "code") -> Atlas:
    """The paper's four overlapping charts, in the same proportion on any grid: radii 200 and 150 of 768 rows.

    Arguments:
        charts: `code` has them one above the other in the middle column, as the published code does; `text` evenly
            spread along the equator, as the paper's text says.

    Example:
        >>> climate_atlas((768, 1152)).radii, climate_atlas((96, 144)).radii
        ((200, 150), (25, 19))
        >>> [chart.center for chart in climate_atlas((768, 1152), "text").charts]
        [(384.0, 200.0), (384.0, 450.0), (384.0, 701.0), (384.0, 951.0)]
    """
    height, width = shape
    radius = round(200 * height / 768)
    if charts == "code":
        centres = [(round(share * height), round(width / 2)) for share in (0.35, 0.45, 0.55, 0.65)]
    else:
        room = width - 1 - 2 * radius
        centres = [(round(height / 2), radius + round(room * k / 3)) for k in range(4)]
    return Atlas.at(centres, radius, round(150 * height / 768))


def _turned_winds(g: Tensor) -> Tensor:
    """TMQ and PSL stay; (U850, V850) is a vector, eastward along columns and northward against rows."""
    rho = torch.zeros(*g.shape[:-2], 4, 4, dtype=g.dtype)
    rho[..., 0, 0] = rho[..., 3, 3] = 1.0
    # (U, V) = (column, -row): the same matrix in that order.
    rho[..., 1, 1], rho[..., 1, 2] = g[..., 1, 1], -g[..., 1, 0]
    rho[..., 2, 1], rho[..., 2, 2] = -g[..., 0, 1], g[..., 0, 0]
    return rho


def _maps(
    config: ClimateConfig, seed: int, progress: Progress, scratch: Path
) -> tuple[Tensor | Stored, Tensor | Stored]:
    if config.data:
        folder = open_climate(located(config.data), missing=config.missing)
        progress.say(f"{len(folder)} maps of {folder.shape[0]} x {folder.shape[1]} in {folder.path}")
        return climate_samples(folder, scratch, progress, PUBLISHED if config.units == "published" else None)
    progress.say(f"drawing {config.samples} maps")
    shape = (config.rows, config.rows * 3 // 2)
    maps = synthetic_climate(
        config.samples,
        generator=stream(seed, "climate", "maps"),
        symmetry=config.symmetry,
        shape=shape,
        variables=DISCOVERY,
    )
    mean, spread = maps.x.mean((0, 2, 3), keepdim=True), maps.x.std((0, 2, 3), keepdim=True)
    return (maps.x - mean) / spread, maps.labels[:, 0]


def _predictor(config: ClimateConfig) -> PredictorSpec:
    if config.predictor == "second-order":
        return SecondOrderPredictor()
    if config.published:
        network = CGNetPredictor.published()
        return replace(network, schedule=replace(network.schedule, epochs=config.epochs))
    return CGNetPredictor(schedule=replace(CGNetPredictor().schedule, epochs=config.epochs, patience=config.epochs))


def _search(config: ClimateConfig) -> SpectralSearch | GradientSearch:
    if config.search == "spectral":
        return SpectralSearch(
            generators=None if config.generators == "auto" else config.generators,
            samples=config.search_samples,
            derivatives=False,
        )
    names = ("generators", "growth", "weight", "epochs", "learning_rate", "tandem")
    return gradient_search(config, names, {"charts": config.pooled}, loss="cross_entropy")


def _judged_by_class(found: Discovery, rows: list[dict[str, Any]]) -> Discovery:
    """The verdict with what its classes say; nothing is claimed where no class but the background was learned."""
    verdict = found.verdict
    events = [r for r in rows[1:] if r["share"] > 1e-4 and r["skill"] >= MINIMUM_SKILL]
    if not events:
        share = f"{rows[0]['share']:.1%} of the labels are background"
        learned = ", ".join(f"{r['class']} {r['share']:.1%} of them with skill {r['skill']:.2f}" for r in rows[1:])
        reason = f"Cannot tell: {share} and nothing else was learned ({learned}), so that nothing can be tested."
        nothing = replace(verdict, symmetric=False, reason=reason, directions=(), cosets=())
        empty = LieAlgebra(torch.zeros(0, 2, 2, dtype=torch.float64))
        return replace(found, group=Group(empty, torch.eye(2, dtype=torch.float64)[None]), verdict=nothing)
    words = []
    for r in events:
        worst = max(r["strengths"], default=float("nan"))
        words.append(f"{r['class']} skill {r['skill']:.2f}, largest strength under GL+(2) {worst:.0%}")
    return replace(found, verdict=replace(verdict, reason=f"{verdict.reason} By class: {'; '.join(words)}."))
