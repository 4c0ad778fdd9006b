"""Jets of top quarks against light ones: the Lorentz group and its metric, out of the labels alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from atlasd.algebra.invariants import metric, metric_cosine
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.result import Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.prediction.moments import DeepSetsPredictor, MomentPredictor
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.predictor import PredictorSpec
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.runtime.stages import located
from atlasd.studies.config import SearchConfig, asking, option
from atlasd.studies.jets.data import load_jets
from atlasd.studies.lorentz import (
    MINKOWSKI,
    conformal_lorentz,
    lorentz_metrics,
    metric_field,
    shared_pairs,
)
from atlasd.studies.record import Extras
from atlasd.studies.searches import coset_search, gradient_search

_SMALL = 0.05
"""Spread in the gradient search: a label is another one where a momentum is off by some per cent."""
_UNIT = 0.05
"""Unit of growth and weight of the gradient search."""


@dataclass(frozen=True, kw_only=True)
class TopTaggingConfig(SearchConfig):
    """Settings of the top-tagging experiment."""

    PAPER: ClassVar[Mapping[str, Any]] = {
        "search": "gradient",
        "published": True,
        "predictor": "mlp",
        "samples": None,
        "epochs": 10,
        "search_epochs": 10,
        "batch": 16,
        "learning_rate": 1e-3,
        "spread": 1.0,
        "growth_limit": None,
        "cosets": "gradient",
        "starts": 64,
        "top": 16,
    }

    file: str | None = option(None, "jets: .h5 of the reference set's form, or .npz; found by itself by default")
    samples: int | None = option(30_000, "jets that are read, all if none", least=100)
    constituents: int = option(30, "leading constituents", least=1)
    invalid: Literal["raise", "drop"] = option("raise", "jets without constituents or with negative energies")
    labels: Literal["true", "shuffled"] = option("true", "shuffled is a control: nothing is to be found")
    predictor: Literal["moments", "deepsets", "mlp"] = option("moments", "what is fitted")
    epochs: int = option(20, "passes over the jets", least=1)
    generators: int = option(7, "generators of the gradient search", least=1)
    weight: float = option(0.1, "weight of the similarity term", least=0)
    growth: float = option(1.0, "growth factor of the gradient search", least=0)
    growth_limit: float | None = option(1.0, "growth limit of the gradient search", least=0)
    batches: int = option(4000, "batches of the gradient search, unless search_epochs is given", least=1)
    search_epochs: int | None = option(None, "passes of the gradient search over the jets", least=1)
    batch: int = option(64, "batch of the gradient search", least=1)
    learning_rate: float = option(5e-3, "learning rate of the gradient search", least=1e-12)
    spread: float = option(_SMALL, "spread of the coefficients eta in the gradient search; 1 in the paper", least=1e-6)
    coset_epochs: int = option(3, "passes of a published coset search over the jets", least=1)
    top: int = option(64, "most components that are kept", least=1)


CONFIG = TopTaggingConfig
REPORTED: Mapping[str, Mapping[str, float]] = {
    "standard": {"metric_cosine": 0.9996, "generators": 7, "cosets": 2, "shared_pairs": 1},
    "cosine": {"generators": 7, "shared_pairs": 21},
}
"""What the paper reports, for comparison only."""


def run(config: TopTaggingConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Learns the labels from the momenta and asks for the symmetry of what was learned."""
    file = None if config.file is None else located(config.file)
    x, y = load_jets(file, samples=config.samples, constituents=config.constituents, invalid=config.invalid)
    progress.say(f"{len(x)} jets, {x.shape[1]} constituents, {int(y.sum())} of them tops")
    found = discover(
        x,
        _labels(y, config, seed),
        predictor=_predictor(config),
        search=_search(config),
        cosets=_cosets(config),
        **asking(config, seed, progress),
    )
    metrics = lorentz_metrics(found, conformal_lorentz())
    metrics["shared_pairs"] = shared_pairs(found.algebra.basis)
    if config.search == "gradient" and found.proposed is not None:
        metrics |= _proposed(found.proposed)
    return found, Extras(metrics, REPORTED[config.similarity], metric_field(found))


def _proposed(basis: Tensor) -> dict[str, Any]:
    """The proposal of the paper's search, before the verdict brings it to a standard form."""
    metrics: dict[str, Any] = {"proposed": len(basis), "shared_pairs": shared_pairs(basis)}
    if len(basis):
        algebra, exact = LieAlgebra(basis), torch.diag(torch.tensor(MINKOWSKI, dtype=torch.float64))
        metrics["proposed_angle_deg"] = math.degrees(float(algebra.angles(conformal_lorentz()).max()))
        metrics["proposed_metric_cosine"] = metric_cosine(metric(algebra).form, exact)
    return metrics


def _labels(y: Tensor, config: TopTaggingConfig, seed: int) -> Tensor:
    if config.labels == "true":
        return y
    return y[torch.randperm(len(y), generator=stream(seed, "top-tagging", "labels"))]


def _search(config: TopTaggingConfig) -> SpectralSearch | GradientSearch:
    if config.search == "spectral":
        return SpectralSearch()
    # The error of probabilities has an upper end, which the cross-entropy of the paper has not: growth and weight
    # count in small units, or large generators would pay whatever they do to the labels.
    unit = 1.0 if config.published else _UNIT
    names = ("generators", "similarity", "growth_limit", "batch", "spread", "learning_rate")
    more: dict[str, Any] = {"steps": config.batches, "epochs": config.search_epochs}
    more |= {"weight": unit * config.weight, "growth": unit * config.growth}
    return gradient_search(config, names, {"loss": "cross_entropy"}, **more)


def _cosets(config: TopTaggingConfig) -> CosetSearch:
    return coset_search(config, loss="cross_entropy", epochs=config.coset_epochs, batch=config.batch)


def jet_moments(epochs: int) -> MomentPredictor:
    """The predictor of jets that every experiment on them uses."""
    schedule = Schedule(epochs=epochs, batch=256, learning_rate=5e-3, patience=epochs)
    return MomentPredictor(pools=4, forms=32, hidden=(64, 64), schedule=schedule)


def _predictor(config: TopTaggingConfig) -> PredictorSpec:
    if config.predictor == "moments":
        return jet_moments(config.epochs)
    if config.published and config.predictor == "mlp":
        network = MLPPredictor.published()
        return replace(network, schedule=replace(network.schedule, epochs=config.epochs))
    slow = Schedule(epochs=config.epochs, batch=256, learning_rate=1e-3, patience=config.epochs)
    if config.predictor == "deepsets":
        return DeepSetsPredictor(inner=(128, 128), hidden=(128,), schedule=slow)
    return MLPPredictor(hidden=(512, 512), schedule=slow)
