"""Muon pairs and top tagging, as every method sees them: two contests about the Lorentz group."""

from __future__ import annotations

__all__ = ["DIMUONS", "TOP_TAGGING", "CompareDimuonsConfig", "CompareJetsConfig"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from atlasd.algebra.known import so
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.prediction.moments import MomentPredictor
from atlasd.prediction.neural import MLPPredictor
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.config import option
from atlasd.studies.dimuons.data import load_dimuons
from atlasd.studies.jets.data import load_jets
from atlasd.studies.rivals.asking import ask_data, ask_map
from atlasd.studies.rivals.compare import OURS, Answer, CompareConfig, Contest
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG
from atlasd.studies.rivals.measures import metric_likeness
from atlasd.studies.rivals.tasks import Pair


@dataclass(frozen=True, kw_only=True)
class CompareDimuonsConfig(CompareConfig):
    """Settings of the comparison on muon pairs."""

    samples: int = option(30_370, "events, 30,370 are all", least=200, most=30_370)
    width: int = option(256, "width of the perceptron that LieGG and the paper's search look at as published", least=1)
    gradient_batches: int = option(1500, "batches of the paper's search", least=1)
    liegan_steps: int = option(3000, "steps of LieGAN", least=1)

    def load(self) -> Pair:
        """Momenta `(N, 2, 4)` and log M `(N,)`."""
        events = load_dimuons(self.samples)
        return events.momenta, events.mass.log()

    def network(self) -> MLPPredictor:
        """A perceptron, as in the rivals' papers."""
        return MLPPredictor(hidden=(self.width,) * 3)


@dataclass(frozen=True, kw_only=True)
class CompareJetsConfig(CompareConfig):
    """Settings of the comparison on top tagging."""

    samples: int = option(60_000, "jets", least=200)
    constituents: int = option(30, "leading constituents; LieGAN looks at two, as in its paper", least=2)
    epochs: int = option(6, "passes of the perceptrons that LieGG and the paper's search look at as published", least=1)
    gradient_batches: int = option(400, "batches of the paper's search", least=1)
    liegan_steps: int = option(1500, "steps of LieGAN", least=1)

    def load(self) -> Pair:
        """Momenta `(N, P, 4)` and whether each jet is a top `(N,)`."""
        return load_jets(samples=self.samples, constituents=self.constituents)

    def network(self) -> MLPPredictor:
        """The paper's perceptron."""
        network = MLPPredictor.published()
        return replace(network, schedule=replace(network.schedule, epochs=self.epochs))


Settings = CompareDimuonsConfig | CompareJetsConfig


def _contest(name: str, config: type[Settings], published: Mapping[str, Any], **texts: Any) -> Contest:
    """All methods on one kind of events.

    Arguments:
        name: Name of the contest, and of the stream that permutes the labels of the control.
        config: The class of its settings.
        published: Settings of the paper's search, beside those for jets.
        texts: What the contest says of itself.
    """

    def data(config: Settings, seed: int, control: bool) -> Pair:
        x, y = config.load()
        if control:
            y = y[torch.randperm(len(y), generator=stream(seed, name, "labels"))]
        return x, y

    def ours(pair: Pair, config: Settings, seed: int) -> Answer:
        options: dict[str, Any] = {"predictor": MomentPredictor(), "tolerance": config.tolerance}
        return Answer.of(discover(*pair, seed=seed, progress=Silent(), **options))

    def gradient(config: Settings) -> GradientSearch:
        """The paper's algorithm with its settings for jets: seven generators."""
        kind = {"generators": 7, "growth": 1.0, "growth_limit": None, "weight": 0.1, "epochs": None, **published}
        return GradientSearch.published(**kind, steps=config.gradient_batches)

    def looking(search: Callable[[Settings], GradientSearch | LieGG], network: bool) -> Callable[..., Answer]:
        """A search that looks at the predictor that all share, or at a perceptron."""

        def ask(pair: Pair, config: Settings, seed: int) -> Answer:
            predictor = config.network() if network else MomentPredictor()
            return ask_map(search(config), *pair, predictor=predictor, tolerance=config.tolerance, seed=seed)

        return ask

    def liegan(as_published: bool) -> Callable[..., Answer]:
        """Seven generators against a discriminator of two momenta and the label; ours settles sooner."""

        def ask(pair: Pair, config: Settings, seed: int) -> Answer:
            search = LieGAN(generators=7, steps=config.liegan_steps)
            options: dict[str, Any] = {"judged": pair, "predictor": MomentPredictor(), "tolerance": config.tolerance}
            seen = pair[0][:, :2].contiguous()
            return ask_data(search.published() if as_published else search, seen, pair[1], seed=seed, **options)

        return ask

    return Contest(
        name=name,
        config=config,
        measure=metric_likeness(so(1, 3)),
        data=data,
        methods={
            OURS: ours,
            "AtlasD": looking(gradient, network=False),
            "LieGG": looking(lambda _: LieGG(), network=False),
            "LieGAN": liegan(as_published=False),
        },
        published={
            "AtlasD": looking(gradient, network=True),
            "LieGG": looking(lambda _: LieGG(), network=True),
            "LieGAN": liegan(as_published=True),
        },
        **texts,
    )


DIMUONS = _contest(
    "dimuons",
    CompareDimuonsConfig,
    {},
    control="masses in random order",
    paper={"note": "not in the paper; on top tagging: AtlasD 0.9996, LieNLSD 0.99985, LieGAN 0.9975"},
)
TOP_TAGGING = _contest(
    "top-tagging",
    CompareJetsConfig,
    {"loss": "cross_entropy"},
    control="labels in random order",
    paper={"AtlasD metric_cosine": 0.9996, "LieNLSD metric_cosine": 0.99985, "LieGAN metric_cosine": 0.9975},
)
