"""Real muon pairs and their mass, as every method sees them."""

from __future__ import annotations

__all__ = ["CONTEST", "CompareDimuonsConfig"]

from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.algebra.known import so
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.prediction.moments import MomentPredictor
from atlasd.prediction.neural import MLPPredictor
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.config import option
from atlasd.studies.dimuons.data import load_dimuons
from atlasd.studies.rivals.asking import ask_data, ask_map
from atlasd.studies.rivals.compare import OURS, Answer, CompareConfig, Contest
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG
from atlasd.studies.rivals.measures import MetricCosine


@dataclass(frozen=True, kw_only=True)
class CompareDimuonsConfig(CompareConfig):
    """Settings of the comparison on muon pairs."""

    samples: int = option(30_370, "events, 30,370 are all", least=200, most=30_370)
    width: int = option(256, "width of the perceptron that LieGG and the paper's search look at as published", least=1)
    gradient_batches: int = option(1500, "batches of the paper's search", least=1)
    liegan_steps: int = option(3000, "steps of LieGAN", least=1)


Pair = tuple[Tensor, Tensor]


def data(config: CompareDimuonsConfig, seed: int, control: bool) -> Pair:
    """Momenta `(N, 2, 4)` and log M `(N,)`; for the control, those of other events."""
    events = load_dimuons(config.samples)
    y = events.mass.log()
    if control:
        y = y[torch.randperm(len(y), generator=stream(seed, "dimuons", "labels"))]
    return events.momenta, y


def _network(config: CompareDimuonsConfig) -> MLPPredictor:
    """A perceptron, as in the rivals' papers."""
    return MLPPredictor(hidden=(config.width,) * 3)


def ours(pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    """As in `atlasd run dimuons`."""
    return Answer.of(
        discover(*pair, predictor=MomentPredictor(), tolerance=config.tolerance, seed=seed, progress=Silent())
    )


def _published(config: CompareDimuonsConfig) -> GradientSearch:
    """The paper's algorithm with its settings for jets."""
    return GradientSearch.published(
        generators=7, growth=1.0, growth_limit=None, weight=0.1, epochs=None, steps=config.gradient_batches
    )


def papers_search(pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    """The paper's algorithm with seven generators on the same predictor."""
    search = _published(config)
    if config.aids:
        search = GradientSearch(generators=7, steps=config.gradient_batches, batch=256, growth_limit=1.0, spread=0.5)
    return ask_map(search, *pair, predictor=MomentPredictor(), tolerance=config.tolerance, seed=seed)


def papers_own(pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    """The paper's algorithm on a perceptron."""
    return ask_map(_published(config), *pair, predictor=_network(config), tolerance=config.tolerance, seed=seed)


def liegg(pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    """The polarization matrix of the same predictor."""
    return ask_map(LieGG(), *pair, predictor=MomentPredictor(), tolerance=config.tolerance, seed=seed)


def liegg_own(pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    """The polarization matrix of a perceptron."""
    return ask_map(LieGG(), *pair, predictor=_network(config), tolerance=config.tolerance, seed=seed)


def liegan(pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    """Seven generators against a discriminator of momenta and mass, with rates that settle sooner."""
    return _play(LieGAN(generators=7, steps=config.liegan_steps), pair, config, seed)


def liegan_own(pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    """The same at the rates and weights of its paper."""
    return _play(LieGAN(generators=7, steps=config.liegan_steps).published(), pair, config, seed)


def _play(search: LieGAN, pair: Pair, config: CompareDimuonsConfig, seed: int) -> Answer:
    return ask_data(search, *pair, predictor=MomentPredictor(), tolerance=config.tolerance, seed=seed)


CONTEST = Contest(
    name="dimuons",
    config=CompareDimuonsConfig,
    measure=MetricCosine(so(1, 3)),
    data=data,
    methods={OURS: ours, "AtlasD": papers_search, "LieGG": liegg, "LieGAN": liegan},
    published={"AtlasD": papers_own, "LieGG": liegg_own, "LieGAN": liegan_own},
    control="masses in random order",
    paper={"note": "not in the paper; on top tagging: AtlasD 0.9996, LieNLSD 0.99985, LieGAN 0.9975"},
)
