"""Functions with a known exact group: asked directly, or through a predictor fitted to their values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.result import Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.errors import InputError
from atlasd.prediction.neural import MLPPredictor
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.runtime.text import did_you_mean
from atlasd.studies.config import SearchConfig, asking, option
from atlasd.studies.record import Extras
from atlasd.studies.searches import coset_search, gradient_search
from atlasd.studies.toys.functions import toy, toys
from atlasd.studies.zoo.system import System


@dataclass(frozen=True, kw_only=True)
class FunctionConfig(SearchConfig):
    """Settings of every experiment on a function of vectors."""

    PAPER: ClassVar[Mapping[str, Any]] = {"published": True, "cosets": "gradient", "starts": 256, "top": 128}

    samples: int = option(2000, "random inputs", least=8)
    predictor: Literal["oracle", "mlp"] = option("oracle", "ask the function itself, or a perceptron fitted to it")
    generators: int | Literal["auto"] = option(1, "generators of the gradient search", least=1)
    top: int = option(64, "most components that are kept", least=1)
    coset_epochs: int = option(20, "passes of a published coset search; the paper does not say", least=1)

    def make_search(self) -> SpectralSearch | GradientSearch:
        """The search for generators that is asked for."""
        if self.search == "spectral":
            return SpectralSearch()
        return gradient_search(self, ("generators", "similarity"), {})

    def make_cosets(self) -> CosetSearch:
        """The search for cosets that is asked for."""
        return coset_search(self, epochs=self.coset_epochs)


@dataclass(frozen=True, kw_only=True)
class ToyConfig(FunctionConfig):
    """Settings of the toy experiment."""

    name: str = option("o2", f"one of {', '.join(each.name for each in toys())}")

    def __post_init__(self) -> None:
        super().__post_init__()
        names = [each.name for each in toys()]
        if self.name not in names:
            hint = did_you_mean(self.name, names)
            raise InputError(f"`name` must be one of {', '.join(names)}, got {self.name!r}{hint}")


CONFIG = ToyConfig


def run(config: ToyConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Discovers the group of one toy and compares it with the truth."""
    chosen = toy(config.name)
    found = discover_toy(chosen, config, seed, progress)
    truth = chosen.group
    metrics = {
        "group": found.answer,
        "truth": truth.name,
        "angle_deg": math.degrees(math.asin(min(found.algebra.distance(truth.algebra), 1.0))),
        "dimension": found.group.dimension,
        "true_dimension": truth.dimension,
        "components": found.group.components,
        "true_components": truth.components,
    }
    return found, Extras(metrics)


def discover_toy(chosen: System, config: FunctionConfig, seed: int, progress: Progress) -> Discovery:
    """Draws inputs and asks for the symmetry of the function, or of a predictor fitted to its values."""
    x = chosen.sample(config.samples, stream(seed, "toy", chosen.name))
    options = {"search": config.make_search(), "cosets": config.make_cosets(), **asking(config, seed, progress)}
    if config.predictor == "oracle":
        return discover(x, function=chosen.function, **options)
    assert chosen.function is not None
    with torch.no_grad():
        y = chosen.function(x)
    return discover(x, y, predictor=MLPPredictor(), **options)


def element_errors(found: Tensor, truth: Tensor) -> tuple[list[float], list[int]]:
    """Distance of each element from the nearest orthogonal one, in degrees, and which one that is.

    A rotation by an angle is that angle away from the identity; other differences count by their size.

    Arguments:
        found: Elements, with shape `(m, n, n)`.

    Example:
        >>> angle = math.radians(30.0)
        >>> rotation = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        >>> errors, nearest = element_errors(rotation[None], torch.stack([-torch.eye(2), torch.eye(2)]))
        >>> round(errors[0], 3), nearest
        (30.0, [1])
    """
    n = found.shape[-1]
    away = torch.linalg.matrix_norm(found.double()[:, None] - truth.double()[None])  # (m, M)
    least, nearest = away.min(dim=1)
    degrees = torch.rad2deg(2 * torch.asin((least / (2 * math.sqrt(n))).clamp(max=1.0)))
    return degrees.tolist(), nearest.tolist()
