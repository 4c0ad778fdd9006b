"""Top tagging, as every method sees it."""

from __future__ import annotations

__all__ = ["CONTEST", "CompareJetsConfig"]

from dataclasses import dataclass, replace
from typing import Any

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
from atlasd.studies.jets.data import load_jets
from atlasd.studies.rivals.asking import ask_data, ask_map
from atlasd.studies.rivals.compare import OURS, Answer, CompareConfig, Contest
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG
from atlasd.studies.rivals.measures import MetricCosine


@dataclass(frozen=True, kw_only=True)
class CompareJetsConfig(CompareConfig):
    """Settings of the comparison on top tagging."""

    samples: int = option(60_000, "jets", least=200)
    constituents: int = option(30, "leading constituents; LieGAN looks at two, as in its paper", least=2)
    epochs: int = option(6, "passes of the perceptrons that LieGG and the paper's search look at as published", least=1)
    gradient_batches: int = option(400, "batches of the paper's search", least=1)
    liegan_steps: int = option(1500, "steps of LieGAN", least=1)


Pair = tuple[Tensor, Tensor]


def data(config: CompareJetsConfig, seed: int, control: bool) -> Pair:
    """Momenta `(N, P, 4)` and whether each jet is a top `(N,)`; for the control, labels of other jets."""
    x, y = load_jets(samples=config.samples, constituents=config.constituents)
    if control:
        y = y[torch.randperm(len(y), generator=stream(seed, "jets", "labels"))]
    return x, y


def _network(config: CompareJetsConfig) -> MLPPredictor:
    """The paper's perceptron."""
    network = MLPPredictor.published()
    return replace(network, schedule=replace(network.schedule, epochs=config.epochs))


def ours(pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    """The default search on quadratic moments."""
    return Answer.of(
        discover(*pair, predictor=MomentPredictor(), tolerance=config.tolerance, seed=seed, progress=Silent())
    )


def papers_search(pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    """The paper's algorithm with seven generators on the same predictor."""
    search = _published(config)
    if config.aids:
        kind = {"generators": 7, "steps": config.gradient_batches, "batch": 256}
        search = GradientSearch(loss="cross_entropy", spread=0.5, **kind)  # type: ignore[arg-type]
    return ask_map(search, *pair, predictor=MomentPredictor(), tolerance=config.tolerance, seed=seed)


def papers_own(pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    """The same on its perceptron."""
    return ask_map(_published(config), *pair, predictor=_network(config), tolerance=config.tolerance, seed=seed)


def _published(config: CompareJetsConfig) -> GradientSearch:
    return GradientSearch.published(
        generators=7, loss="cross_entropy", growth=1.0, growth_limit=None, weight=0.1, epochs=None,
        steps=config.gradient_batches,
    )  # fmt: skip


def liegg(pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    """The polarization matrix of the same predictor."""
    return ask_map(LieGG(), *pair, predictor=MomentPredictor(), tolerance=config.tolerance, seed=seed)


def liegg_own(pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    """The polarization matrix of the perceptron."""
    return ask_map(LieGG(), *pair, predictor=_network(config), tolerance=config.tolerance, seed=seed)


def liegan(pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    """Seven generators, the two leading constituents and the label, with rates that settle sooner."""
    return _play(LieGAN(generators=7, steps=config.liegan_steps), pair, config, seed)


def liegan_own(pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    """The same at the rates and weights of its paper."""
    return _play(LieGAN(generators=7, steps=config.liegan_steps).published(), pair, config, seed)


def _play(search: LieGAN, pair: Pair, config: CompareJetsConfig, seed: int) -> Answer:
    x, y = pair
    options: dict[str, Any] = {"judged": pair, "predictor": MomentPredictor(), "tolerance": config.tolerance}
    return ask_data(search, x[:, :2].contiguous(), y, seed=seed, **options)


CONTEST = Contest(
    name="top-tagging",
    config=CompareJetsConfig,
    measure=MetricCosine(so(1, 3)),
    data=data,
    methods={OURS: ours, "AtlasD": papers_search, "LieGG": liegg, "LieGAN": liegan},
    published={"AtlasD": papers_own, "LieGG": liegg_own, "LieGAN": liegan_own},
    control="labels in random order",
    paper={"AtlasD metric_cosine": 0.9996, "LieNLSD metric_cosine": 0.99985, "LieGAN metric_cosine": 0.9975},
)
