"""Top tagging with networks that use a metric: the one discovered, the exact one, LieGAN's, none, and Euclid's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.algebra.invariants import metric, metric_cosine
from atlasd.algebra.known import lorentz
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.discover import discover
from atlasd.discovery.result import Discovery, load
from atlasd.errors import DataError, InputError
from atlasd.nn.checks import field_error
from atlasd.nn.groups import elements_inside, elements_outside, scalings
from atlasd.nn.metric_gnn import (
    EGNN,
    AtlasGNN,
    LorentzNet,
    LorentzNetWithoutMetric,
    MetricGNN,
    minkowski,
)
from atlasd.nn.metrics import load_metric
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream
from atlasd.runtime.stages import current_stages, located
from atlasd.studies.config import PaperConfig, asking, option, tolerance_option
from atlasd.studies.jets.data import find_jets, jet_count, read_jets
from atlasd.studies.jets.run import jet_moments
from atlasd.studies.networks import Budget, Trained, over_seeds, train_network
from atlasd.studies.record import Extras
from atlasd.studies.rivals.liegan import LieGAN


def train_tagger(
    network: MetricGNN,
    x: Tensor,
    label: Tensor,
    budget: Budget,
    *,
    generator: torch.Generator,
    weight_decay: float = 0.01,
    progress: Progress | None = None,
    name: str = "train",
) -> Trained:
    """Trains a network in place, with gradients of norm 1 at most, and leaves it in evaluation mode.

    Arguments:
        x: Sets of vectors, with shape `(N, P, n)`, padded with zeros.
        label: Classes, with shape `(N,)`.
        budget: How long, with the peak of a one-cycle schedule.
        name: What it is called there.
    """
    if label.shape != x.shape[:1] or label.is_floating_point():
        raise InputError(
            f"`label` must be integer classes with shape ({len(x)},), got {label.dtype} with {tuple(label.shape)}; "
            "give one class for each set."
        )
    network.standardise(x[:512])
    label = label.long()
    return train_network(
        network,
        lambda part: functional.cross_entropy(network(x[part]), label[part]),
        torch.arange(len(x)),
        budget,
        generator=generator,
        progress=progress or Silent(),
        label=name,
        cycle=0.15,
        weight_decay=weight_decay,
        clip=1.0,
    )


def log_odds(network: MetricGNN, x: Tensor, *, batch: int = 256) -> Tensor:
    """Log-odds of the second class against the first, in evaluation mode, with shape `(N,)`."""
    network.eval()
    with torch.no_grad():
        logits = torch.cat([network(part) for part in x.split(batch)])
    return logits[:, 1] - logits[:, 0]


def accuracy(score: Tensor, label: Tensor) -> float:
    """Share of samples on the right side of zero.

    Arguments:
        score: Log-odds of the signal, with shape `(N,)`.
        label: 1 for signal and 0 for background, with shape `(N,)`.
    """
    return float(((score > 0) == (label == 1)).double().mean())


def auroc(score: Tensor, label: Tensor) -> float:
    """Area under the curve of efficiencies: the chance that a signal scores above a background; ties count half.

    Example:
        >>> auroc(torch.tensor([0.1, 0.4, 0.35, 0.8]), torch.tensor([0, 0, 1, 1]))
        0.75
    """
    signal, background = _parts(score, label)
    ordered = background.sort().values
    below, upto = (torch.searchsorted(ordered, signal, right=side) for side in (False, True))
    return float((below + upto).double().mean() / (2 * len(background)))


def background_rejection(score: Tensor, label: Tensor, efficiency: float) -> float:
    """One over the share of background that passes the cut which keeps a share `efficiency` of the signal.

    Where none passes, half an event is counted: the rejection is at least twice the number of background samples.

    Example:
        >>> background_rejection(torch.tensor([3.0, 2.0, 1.0, 0.0, 2.5, -1.0]), torch.tensor([1, 1, 1, 1, 0, 0]), 0.5)
        2.0
    """
    if not 0 < efficiency <= 1:
        raise InputError(f"`efficiency` must be above 0 and at most 1, got {efficiency}; 0.3 and 0.5 are usual.")
    signal, background = _parts(score, label)
    ordered = signal.sort(descending=True).values
    # Rounded first: 0.3 of 10 must be 3 and not 4.
    kept = max(1, -int(-round(efficiency * len(signal), 9) // 1))
    passing = float((background >= ordered[kept - 1]).sum())
    return len(background) / max(passing, 0.5)


def _parts(score: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    if score.ndim != 1 or score.shape != label.shape:
        raise InputError(
            f"`score` and `label` must have one shape (N,), got {tuple(score.shape)} and {tuple(label.shape)}; "
            "give one number for each sample."
        )
    if not bool(torch.isfinite(score).all()):
        raise InputError("`score` must be finite, got nan or infinity; lower the learning rate.")
    signal, background = score[label == 1].double(), score[label == 0].double()
    if not len(signal) or not len(background):
        raise InputError("`label` must hold both 1 and 0, got one of them only; take more samples.")
    return signal, background


_SCORES = ("accuracy", "auroc", "rej_30", "rej_50")
_MEASURED = 64
"""Jets on which the change of outputs under a group is measured."""
_LEADING = 30
"""Constituents that a discovery looks at, as in the paper."""


@dataclass(frozen=True, kw_only=True)
class TopTaggingDownstreamConfig(PaperConfig):
    """Settings of the comparison of taggers."""

    PAPER: ClassVar[Mapping[str, Any]] = {
        "train": 1_200_000,
        "test": 404_000,
        "constituents": 200,
        "hidden": 72,
        "layers": 6,
        "dropout": 0.2,
        "epochs": 35,
        "batch": 32,
        "learning_rate": 3e-4,
    }

    jets: str | None = option(None, "file of jets; by default the reference set, else jets_pythia.npz in ATLASD_DATA")
    invalid: Literal["raise", "drop"] = option("raise", "jets without constituents or with negative energies")
    discovery: str | None = option(None, "run directory of a discovery, whose metric AtlasGNN takes; else made anew")
    liegan: str | None = option(None, "run directory or JSON file with LieGAN's metric, for LieGNN; else made anew")
    discovery_jets: int = option(110_000, "jets that a new discovery and LieGAN look at", least=1000)
    tolerance: float = tolerance_option()
    within: float = option(
        0.0, "entries of the discovered metric this near to 0, 1 or -1 are taken for it", least=0, most=0.5
    )
    liegan_steps: int = option(1000, "steps of LieGAN", least=1)
    seeds: int = option(3, "trainings of every network", least=1)
    train: int = option(20_000, "jets to train on", least=2)
    test: int = option(10_000, "jets to test on", least=2)
    constituents: int = option(16, "leading constituents of each jet", least=2, most=200)
    hidden: int = option(16, "width of the networks", least=1)
    layers: int = option(2, "layers of the networks", least=1)
    dropout: float = option(0.0, "dropout before the last layer", least=0, most=0.99)
    epochs: int = option(12, "passes over the jets, the same for every network", least=1)
    batch: int = option(64, "jets in a step", least=1)
    learning_rate: float = option(3e-3, "peak of the learning rate", least=1e-12)
    weight_decay: float = option(0.01, "weight decay", least=0)
    elements: int = option(4, "elements of each group under which the change of outputs is measured", least=1)


CONFIG = TopTaggingDownstreamConfig
REPORTED = {
    "LorentzNet": {"accuracy": 0.941, "auroc": 0.9862},
    "AtlasGNN": {"accuracy": 0.939, "auroc": 0.9852},
    "LieGNN": {"accuracy": 0.938, "auroc": 0.9849},
    "LorentzNet (w/o)": {"accuracy": 0.935, "auroc": 0.9835},
    "EGNN": {"accuracy": 0.925, "auroc": 0.9799},
}
"""What the paper reports, for comparison only."""


@dataclass(frozen=True)
class _Part:
    """Some jets of a file: the number of the first, and how many."""

    path: Path
    start: int
    count: int

    def read(self, config: TopTaggingDownstreamConfig, constituents: int | None = None) -> tuple[Tensor, Tensor]:
        """Momenta `(N, P, 4)` in GeV and labels `(N,)`."""
        stop = self.start + self.count
        jets = read_jets(self.path, constituents=constituents, start=self.start, stop=stop, invalid=config.invalid)
        parts = list(jets)
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]).long()


def run(config: TopTaggingDownstreamConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Trains every network with the same jets, order, steps and seeds, and compares them."""
    train, test, searched = _find(config)
    given = None if config.discovery is None else _load(located(config.discovery))
    liegan = None if config.liegan is None else load_metric(located(config.liegan))
    found = _discover(config, searched, seed, progress) if given is None else given
    liegan = _play(config, searched, seed, progress) if liegan is None else liegan
    progress.say(f"reading {config.train} jets to train on and {config.test} to test on")
    jets = [part.read(config, config.constituents) for part in (train, test)]
    if any(len(label.unique()) < 2 for _, label in jets):
        raise DataError("the jets must hold tops and others, got one kind; shuffle the file or take more.")
    networks = _networks(config, found, liegan)

    def measure(name: str, s: int) -> dict[str, Any]:
        return _measure(config, name, networks[name], found, jets, s, progress)

    seeds = range(seed, seed + config.seeds)
    each = over_seeds(list(networks), seeds, measure, "auroc", progress)
    form = metric(found.algebra)
    metrics = {
        "metric_cosine": metric_cosine(form.form, minkowski()),
        "rounded_cosine": metric_cosine(form.rounded(config.within), minkowski()),
        "liegan_cosine": metric_cosine(liegan, minkowski()),
        "rows": [_row(name, runs, REPORTED.get(name, {})) for name, runs in each.items()],
        "equivariance": [_changes(name, runs) for name, runs in each.items()],
        "each": [
            {"model": name, "seed": s, **{key: row[key] for key in (*_SCORES, "seconds", "loss")}}
            for name, rows in each.items()
            for s, row in zip(seeds, rows, strict=True)
        ],
    }
    return found, Extras(metrics, REPORTED)


def _load(directory: str | Path) -> Discovery:
    found = load(directory)
    if found.algebra.size != 4 or not found.algebra.dimension:
        raise DataError(
            f"`{directory}` must hold a symmetry of four-vectors, got {found.group.name}; give a discovery on jets."
        )
    return found


def _discover(config: TopTaggingDownstreamConfig, searched: _Part, seed: int, progress: Progress) -> Discovery:
    """The symmetry of the label, from jets that no network is tested on."""
    x, y = searched.read(config)
    recipe = jet_moments(epochs=8)
    found = discover(x[:, :_LEADING], y, predictor=recipe, **asking(config, seed, progress))
    if not found.algebra.dimension:
        raise DataError(
            f"no metric: nothing was found in {len(x)} jets ({found.verdict.reason}); raise discovery_jets or give "
            "discovery=DIR."
        )
    return found


def _play(config: TopTaggingDownstreamConfig, searched: _Part, seed: int, progress: Progress) -> Tensor:
    """The metric of LieGAN's generators, from the two leading constituents as in its paper."""

    def work() -> Tensor:
        x, y = searched.read(config, 2)
        search = LieGAN(generators=7, steps=config.liegan_steps)
        found = search.find_in_data(x, y, seed=seed, progress=progress)
        return metric(LieAlgebra(found.basis)).form

    return current_stages().do("LieGAN's metric", work)


def _find(config: TopTaggingDownstreamConfig) -> tuple[_Part, _Part, _Part]:
    """Jets to train on, to test on and for the searches; of one file, the last jets are those to test on."""
    test = find_jets("test") if config.jets is None else located(config.jets)
    train = find_jets("train") if config.jets is None else test
    one = train == test
    count = jet_count(test)
    spare = count - config.test if one else jet_count(train)
    if count < config.test or spare < config.train:
        least = config.test + config.train if one else config.test if count < config.test else config.train
        path, there = (test, count) if one or count < config.test else (train, spare)
        raise DataError(f"`{path}` must hold {least} jets, got {there}; lower train or test.")
    tested = _Part(test, count - config.test if one else 0, config.test)
    return _Part(train, 0, config.train), tested, _Part(train, 0, min(config.discovery_jets, spare))


def _networks(
    config: TopTaggingDownstreamConfig, found: Discovery, liegan: Tensor
) -> dict[str, Callable[[torch.Generator], MetricGNN]]:
    """How to make each network, in the order of the paper's table."""
    size: dict[str, Any] = {"hidden": config.hidden, "layers": config.layers, "dropout": config.dropout}
    return {
        "LorentzNet": lambda generator: LorentzNet(generator=generator, **size),
        "AtlasGNN": lambda generator: AtlasGNN(
            found.algebra, within=config.within, conformal=True, generator=generator, **size
        ),
        "LieGNN": lambda generator: MetricGNN(liegan, generator=generator, **size),
        "LorentzNet (w/o)": lambda generator: LorentzNetWithoutMetric(generator=generator, **size),
        "EGNN": lambda generator: EGNN(generator=generator, **size),
    }


def _measure(
    config: TopTaggingDownstreamConfig,
    name: str,
    make: Callable[[torch.Generator], MetricGNN],
    found: Discovery,
    jets: Sequence[tuple[Tensor, Tensor]],
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """Trains one network once. The streams do not know its name: all start alike and see the jets in one order."""
    network = make(stream(seed, "tagger", "weights")).to(config.device)
    (x, label), (test, truth) = jets
    x, test = x.to(config.device), test.to(config.device)
    network.standardise(x[:512])
    before = _change(network, found, test[:_MEASURED], config.elements, seed)
    trained = train_tagger(
        network,
        x,
        label.to(config.device),
        config,
        weight_decay=config.weight_decay,
        generator=stream(seed, "tagger", "order"),
        progress=progress,
        name=f"{name}, seed {seed}",
    )
    score = log_odds(network, test).cpu()
    return {
        "accuracy": accuracy(score, truth),
        "auroc": auroc(score, truth),
        "rej_30": background_rejection(score, truth, 0.3),
        "rej_50": background_rejection(score, truth, 0.5),
        "parameters": network.parameter_count,
        **trained.row,
        "before": before,
        "after": _change(network, found, test[:_MEASURED], config.elements, seed),
    }


def _change(network: MetricGNN, found: Discovery, x: Tensor, count: int, seed: int) -> dict[str, float]:
    """Change of the log-odds under several groups, in float64 so that rounding does not hide what is exact."""
    exact = copy.deepcopy(network).double().eval()
    groups = {
        "found": elements_inside(found.group, count, generator=stream(seed, "tagger", "found")),
        "lorentz": elements_inside(lorentz(2), count, generator=stream(seed, "tagger", "lorentz")),
        "scaling": scalings(4, count, generator=stream(seed, "tagger", "scaling")),
        "outside": elements_outside(found.group, count, generator=stream(seed, "tagger", "outside")),
    }
    errors = {name: field_error(lambda x: log_odds(exact, x), x.double(), g) for name, g in groups.items()}
    return {name: float(error.square().mean().sqrt()) for name, error in errors.items()}


def _row(name: str, runs: list[dict[str, Any]], paper: Mapping[str, float]) -> dict[str, Any]:
    """Means and standard deviations over the seeds."""
    row: dict[str, Any] = {"model": name}
    for key in _SCORES:
        values = torch.tensor([r[key] for r in runs], dtype=torch.float64)
        row[key] = float(values.mean())
        row[f"{key}_sd"] = float(values.std()) if len(values) > 1 else None
    row["parameters"] = runs[0]["parameters"]
    row["seconds"] = sum(r["seconds"] for r in runs) / len(runs)
    row |= {"paper_acc": paper.get("accuracy"), "paper_auroc": paper.get("auroc")}
    return row


def _changes(name: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean change of the outputs over the seeds, before and after training."""
    row: dict[str, Any] = {"model": name}
    for group in runs[0]["before"]:
        for when in ("before", "after"):
            row[f"{group}_{when}"] = sum(r[when][group] for r in runs) / len(runs)
    return row
