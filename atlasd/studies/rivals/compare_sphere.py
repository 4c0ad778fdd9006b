"""Digits on a sphere, as every method sees them: in charts, or as a whole."""

from __future__ import annotations

__all__ = ["CONTEST", "CompareSphereConfig", "digit_charts"]

from dataclasses import dataclass
from functools import partial
from typing import Any

from atlasd.algebra.known import so
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.spectral import SpectralSearch
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.train import Schedule
from atlasd.runtime.random import stream
from atlasd.studies.config import option
from atlasd.studies.digits.data import BACKGROUND, CENTRES, CLASSES, RADIUS, SphereDigits, sphere_mnist
from atlasd.studies.digits.segment import SegmentPredictor
from atlasd.studies.rivals.asking import ask_map, published_on_charts
from atlasd.studies.rivals.compare import OURS, Answer, CompareConfig, Contest
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegg import LieGG
from atlasd.studies.rivals.measures import span_angle_to
from atlasd.studies.rivals.sphere import find_on_sphere


@dataclass(frozen=True, kw_only=True)
class CompareSphereConfig(CompareConfig):
    """Settings of the comparison on digits on a sphere."""

    samples: int = option(2500, "spheres", least=60)
    epochs: int = option(5, "passes of the predictors over the data", least=1)
    gradient_batches: int = option(150, "batches of the paper's search", least=1)
    liegan_steps: int = option(400, "steps of LieGAN", least=1)


def data(config: CompareSphereConfig, seed: int, control: bool) -> SphereDigits:
    """Digits turned by up to 60 degrees; for the control, digits that were never turned."""
    turned = 0.0 if control else 60.0
    return sphere_mnist(config.samples, rotate=turned, generator=stream(seed, "sphere-mnist", "data"))


def digit_charts() -> Atlas:
    """One chart at the place of each digit."""
    return Atlas.at(list(CENTRES), in_radius=RADIUS, out_radius=RADIUS)


def _predictor(config: CompareSphereConfig) -> SegmentPredictor:
    schedule = Schedule(epochs=config.epochs, batch=32, learning_rate=5e-3, patience=config.epochs)
    return SegmentPredictor(background=BACKGROUND, background_weight=0.1, schedule=schedule)


def _options(config: CompareSphereConfig) -> dict[str, Any]:
    """What our method and those that look at a predictor share."""
    return {"atlas": digit_charts(), "predictor": _predictor(config), "tolerance": config.tolerance}


def ours(side: SphereDigits, config: CompareSphereConfig, seed: int) -> Answer:
    """Finite size in the three charts."""
    search = SpectralSearch(generators=1, samples=100, derivatives=False)
    found = discover(side.x, side.y.long(), search=search, cosets=False, seed=seed, **_options(config))
    return Answer.of(found)


def papers_search(side: SphereDigits, config: CompareSphereConfig, seed: int) -> Answer:
    """The paper's algorithm on the same charts and predictors."""
    return ask_map(_published(config), side.x, side.y.long(), seed=seed, **_options(config))


def papers_own(side: SphereDigits, config: CompareSphereConfig, seed: int) -> Answer:
    """The paper's algorithm with its encoders and decoders in tandem."""
    network = SegmentPredictor.published(background=BACKGROUND)
    return ask_map(_published(config), side.x, side.y.long(), network=network, seed=seed, **_options(config))


def _published(config: CompareSphereConfig) -> GradientSearch:
    return published_on_charts(growth=0.35, loss="cross_entropy", epochs=None, steps=config.gradient_batches)


def liegg(side: SphereDigits, config: CompareSphereConfig, seed: int) -> Answer:
    """The polarization matrix of the same predictors."""
    search = LieGG(samples=200, order=4, batch=8)
    return ask_map(search, side.x, side.y.long(), seed=seed, **_options(config))


def liegan(side: SphereDigits, config: CompareSphereConfig, seed: int, published: bool = False) -> Answer:
    """One generator in so(3) that rotates the whole sphere; no such rotation is a symmetry."""
    search = LieGAN(steps=config.liegan_steps, batch=64)
    search = search.published() if published else search
    basis = find_on_sphere(side.x, side.y, classes=CLASSES, search=search, seed=seed).basis
    axis = [round(float(basis[0][i, j]), 2) for i, j in ((2, 1), (0, 2), (1, 0))] if len(basis) else []
    return Answer(basis, judged=lambda: basis[:0], note=f"rotates the whole sphere about {axis}")


CONTEST = Contest(
    name="sphere-mnist",
    config=CompareSphereConfig,
    measure=span_angle_to(so(2)),
    data=data,
    methods={OURS: ours, "AtlasD": papers_search, "LieGG": liegg, "LieGAN": liegan},
    published={"AtlasD": papers_own, "LieGAN": partial(liegan, published=True)},
    control="digits that were never turned",
    paper={"AtlasD error_deg": 1.46, "LieGAN": "a random rotation of the sphere"},
)
