"""Heat flow around a hot block: every chart away from it has the symmetry O(2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch

from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.result import Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.prediction.neural import ConvPredictor
from atlasd.prediction.predictor import PredictorSpec
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.config import SearchConfig, asking, option
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat
from atlasd.studies.record import Extras
from atlasd.studies.searches import coset_search, gradient_search


@dataclass(frozen=True, kw_only=True)
class HeatConfig(SearchConfig):
    """Settings of the heat experiment."""

    PAPER: ClassVar[Mapping[str, Any]] = {
        "samples": 10_000,
        "predictor": "conv",
        "search": "gradient",
        "published": True,
        "tandem": True,
        "epochs": 10,
        "robust": False,
        "spread": 1.0,
        "learning_rate": 1e-3,
        "cosets": "gradient",
        "starts": 16,
        "top": 8,
    }

    IMPLIES: ClassVar[Mapping[tuple[str, Any], Mapping[str, Any]]] = {
        **SearchConfig.IMPLIES,
        # Eight waves at random directions differ more from field to field than two along the axes.
        ("initial", "isotropic"): {"samples": 2000},
    }

    atlas: Literal["nineteen", "three", "sheared", "shadow"] = option(
        "nineteen", "charts; in sheared, one of three is sheared; in shadow, a twentieth lies over the block"
    )
    initial: Literal["separable", "isotropic"] = option("separable", "initial fields: the paper's, or plane waves")
    samples: int = option(1000, "simulated fields; 2000 of plane waves, unless given", least=8)
    steps: int = option(50, "steps of the simulator", least=1)
    tandem: bool = option(False, "train predictors with the generators in the gradient search")
    pooled: Literal["sum", "mean"] = option(
        "sum", "charts in a published search: summed, as in the text, or averaged: growth counts once for each"
    )
    window: Literal["disc", "patch"] = option(
        "disc", "outputs that count in a published search: on a disc, or the whole patch with zeros beyond"
    )
    predictor: Literal["stencil", "conv"] = option("stencil", "what is fitted to each chart")
    generators: int | Literal["auto"] = option(1, "generators of the gradient search", least=1)
    growth: float = option(0.1, "growth factor of the gradient search", least=0)
    growth_limit: float | None = option(1.0, "growth limit of the gradient search", least=0)
    clip: Literal["norm", "entries"] = option("norm", "what the growth limit is held against, in a published search")
    weight: float = option(0.05, "weight of the similarity term", least=0)
    batches: int = option(300, "batches of the gradient search, unless epochs is given", least=1)
    epochs: int | None = option(None, "passes of the gradient search over the data", least=1)
    batch: int = option(16, "batch of the gradient search", least=1)
    learning_rate: float = option(3e-2, "learning rate of the gradient search", least=1e-12)
    spread: float = option(1.5, "spread of the coefficients eta in the gradient search; 1 in the paper", least=1e-6)
    robust: bool = option(True, "weigh charts by their signal to noise in the gradient search")
    top: int = option(16, "most components that are kept", least=1)


CONFIG = HeatConfig
_ANGLES = {"nineteen": 1.67, "three": 10.4, "sheared": 19.5}
REPORTED = {name: {"angle_deg": a, "dimension": 1, "cosets": 2, "samples": 10_000} for name, a in _ANGLES.items()}
"""What the paper reports, for comparison only."""


def run(config: HeatConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Simulates the fields and asks for their local symmetry."""
    progress.say(f"simulating {config.samples} fields, {config.steps} steps")
    with torch.no_grad():
        x = heat_fields(config.samples, initial=config.initial, generator=stream(seed, "heat", "fields"))
        y = simulate_heat(x, steps=config.steps)
    atlas = heat_atlas(config.atlas)
    found = discover(
        x,
        y,
        atlas=atlas,
        predictor=_predictor(config),
        search=_search(config),
        cosets=_cosets(config),
        **asking(config, seed, progress),
    )
    radii = atlas.radii
    assert radii is not None
    fields = {"input": x[0], "output": y[0], "radii": torch.tensor(radii, dtype=torch.float64)}
    return found, Extras(_metrics(found), REPORTED.get(config.atlas, {}), fields)


def _search(config: HeatConfig) -> SpectralSearch | GradientSearch:
    if config.search == "spectral":
        return SpectralSearch()
    names = ("generators", "growth", "growth_limit", "similarity", "weight", "epochs", "batch", "learning_rate")
    published = {"clip": config.clip, "charts": config.pooled, "window": config.window}
    return gradient_search(config, (*names, "spread", "robust", "tandem"), published, steps=config.batches)


def _cosets(config: HeatConfig) -> CosetSearch:
    return coset_search(config, epochs=config.epochs or 10, charts=config.pooled, window=config.window)


def _predictor(config: HeatConfig) -> PredictorSpec:
    if config.predictor == "stencil":
        return StencilPredictor()
    if not config.published:
        return ConvPredictor()
    network = ConvPredictor.published()
    return replace(network, schedule=replace(network.schedule, epochs=config.epochs or network.schedule.epochs))


def _metrics(found: Discovery) -> dict[str, Any]:
    """Distance from so(2), and what else was found."""
    proposed, elements = found.proposed, found.proposed_cosets
    return {
        "angle_deg": span_angle(found.algebra, so(2)),
        "proposed_angle_deg": None if proposed is None else span_angle(LieAlgebra(proposed), so(2)),
        "proposed_cosets": None if elements is None else len(elements),
        "dimension": found.group.dimension,
        "cosets": found.group.components,
        "group": found.answer,
        "outliers": [k for k, c in enumerate(found.charts) if c.outlier],
    }


def span_angle(found: LieAlgebra, truth: LieAlgebra) -> float:
    """Largest principal angle between two spans in degrees, 90 where their dimensions differ."""
    return math.degrees(math.asin(min(found.distance(truth), 1.0)))
