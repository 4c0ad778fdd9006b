"""Heat flow around a hot block, as every method sees it."""

from __future__ import annotations

__all__ = ["CONTEST", "CompareHeatConfig"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from atlasd.algebra.known import so
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.discover import discover
from atlasd.discovery.spectral import SpectralSearch
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.neural import ConvPredictor
from atlasd.prediction.stencil import StencilPredictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.config import option
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat
from atlasd.studies.rivals.asking import ask_data, ask_map, published_on_charts
from atlasd.studies.rivals.compare import OURS, Answer, CompareConfig, Contest
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG
from atlasd.studies.rivals.measures import span_angle_to
from atlasd.studies.zoo.field_systems import Stencil, apply

_DIRECTIONS = {1: (1.0, 0.2), 2: (0.3, 1.0), 3: (-0.4, 1.0)}
"""Directions of the control's derivatives, by order."""
_WAVE = 15 / 128
"""Typical wave number of the initial fields, in radians per pixel."""


@dataclass(frozen=True, kw_only=True)
class CompareHeatConfig(CompareConfig):
    """Settings of the comparison on heat."""

    atlas: Literal["nineteen", "three"] = option("nineteen", "charts of the local methods")
    initial: Literal["separable", "isotropic"] = option("separable", "initial fields: the paper's, or plane waves")
    samples: int = option(1000, "simulated fields", least=40)
    steps: int = option(50, "steps of the simulator", least=1)
    gradient_batches: int = option(
        625, "batches of the paper's search; 625 are its ten passes over 1000 fields", least=1
    )
    gradient_cosets: bool = option(
        False, "the paper's search for cosets too: 16 matrices on each field of a batch, an hour for each table"
    )
    liegg: Literal["network", "exact"] = option(
        "network", "what LieGG as published looks at: a network fitted to the data, or the map"
    )
    liegg_epochs: int = option(3, "passes of that network over the data", least=1)
    liegan_steps: int = option(600, "steps of LieGAN", least=1)


@dataclass(frozen=True, eq=False)
class HeatSide:
    """Fields, what becomes of them, and the exact map."""

    x: Tensor
    y: Tensor
    function: Callable[[Tensor], Tensor]


def data(config: CompareHeatConfig, seed: int, control: bool) -> HeatSide:
    """Fields with the heat flow, or with heat flow and an oblique operator that no matrix leaves alone."""
    x = heat_fields(config.samples, initial=config.initial, generator=stream(seed, "heat", "fields"))

    def function(u: Tensor) -> Tensor:
        warm = simulate_heat(u, steps=config.steps)
        return warm + 0.5 * oblique(u) if control else warm

    with torch.no_grad():
        y = torch.cat([function(part) for part in x.split(64)])
    return HeatSide(x, y, function)


def oblique(u: Tensor) -> Tensor:
    """A first, a second and a third derivative along unrelated directions, of one size at the waves of these fields.

    The first two alone have a reflection that keeps both.
    """
    total = torch.zeros_like(u)
    for order, (down, across) in _DIRECTIONS.items():
        for i in range(order + 1):
            rows, columns = (Stencil.derivative(k) if k else None for k in (i, order - i))
            share = math.comb(order, i) * down**i * across ** (order - i) / _WAVE**order
            total = total + share * apply(rows, columns, u)
    return total


def ours(side: HeatSide, config: CompareHeatConfig, seed: int) -> Answer:
    """The default search, as in `atlasd run heat`."""
    return Answer.of(
        discover(
            side.x, side.y, atlas=heat_atlas(config.atlas), predictor=StencilPredictor(), search=SpectralSearch(),
            cosets=CosetSearch(), tolerance=config.tolerance, seed=seed, progress=Silent(),
        )
    )  # fmt: skip


def _options(config: CompareHeatConfig) -> dict[str, Any]:
    """Charts and predictors that all local searches share, and that judge the others."""
    return {"atlas": heat_atlas(config.atlas), "predictor": StencilPredictor(), "tolerance": config.tolerance}


def papers_search(side: HeatSide, config: CompareHeatConfig, seed: int, tandem: bool = False) -> Answer:
    """The paper's algorithm on the same charts and predictors, or with its CNNs in tandem."""
    kind = {"epochs": None, "steps": config.gradient_batches}
    network = ConvPredictor.published() if tandem else None
    search = published_on_charts(**kind)
    cosets = CosetSearch.published(charts="mean", **kind) if config.gradient_cosets else None
    return ask_map(search, side.x, side.y, cosets=cosets, network=network, seed=seed, **_options(config))


# The outermost pixels belong to the differences.
_WHOLE = Atlas.at([(64, 64)], in_radius=63, out_radius=59)


def liegg(side: HeatSide, config: CompareHeatConfig, seed: int) -> Answer:
    """The whole polarization matrix of the same kind of predictor, on the whole field."""
    return ask_map(LieGG(dense=True), side.x, side.y, seed=seed, **{**_options(config), "atlas": _WHOLE})


def liegg_own(side: HeatSide, config: CompareHeatConfig, seed: int) -> Answer:
    """The same of the paper's CNN, or of the exact map as a favour."""
    options: dict[str, Any] = {"atlas": _WHOLE, "tolerance": config.tolerance, "seed": seed}
    if config.liegg == "exact":
        return ask_map(LieGG(dense=True), side.x, function=side.function, **options)
    network = ConvPredictor(residual=False, smooth=False, schedule=Schedule(epochs=config.liegg_epochs, batch=16))
    return ask_map(LieGG(dense=True), side.x, side.y, predictor=network, **options)


def liegan(side: HeatSide, config: CompareHeatConfig, seed: int, published: bool = False) -> Answer:
    """One generator for the whole field, with rates that settle sooner than those of its paper, or with those."""
    search = LieGAN(steps=config.liegan_steps, batch=64)
    # Judged on charts: rotated as a whole, the field meets its walls and the block.
    search = search.published() if published else search
    return ask_data(search, side.x, side.y, whole=True, seed=seed, **_options(config))


CONTEST = Contest(
    name="heat",
    config=CompareHeatConfig,
    measure=span_angle_to(so(2)),
    data=data,
    methods={OURS: ours, "AtlasD": papers_search, "LieGG": liegg, "LieGAN": liegan},
    published={
        "AtlasD": partial(papers_search, tandem=True),
        "LieGG": liegg_own,
        "LieGAN": partial(liegan, published=True),
    },
    control="heat flow with an oblique operator added",
    paper={"AtlasD error_deg, nineteen": 1.67, "AtlasD error_deg, three": 10.4, "LieGG": "no global symmetry"},
    growing=(OURS, "LieGG"),
)
