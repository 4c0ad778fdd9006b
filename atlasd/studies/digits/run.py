"""Digits on a sphere: each one may be rotated by itself, and the sphere as a whole may not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.discover import discover
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.result import Discovery
from atlasd.discovery.spectral import SpectralSearch
from atlasd.geometry.actions import GridAction
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.sphere import Projection, SphereChart, rotate_sphere
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.config import asking, option
from atlasd.studies.digits.data import BACKGROUND, CENTRES, CLASSES, HEIGHT, RADIUS, WIDTH, SphereDigits, sphere_mnist
from atlasd.studies.digits.segment import SegmentPredictor
from atlasd.studies.heat.run import span_angle
from atlasd.studies.record import Extras
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.liegan_sphere import find_on_sphere
from atlasd.studies.searches import PixelClassConfig, gradient_search, mirror_search


@dataclass(frozen=True, kw_only=True)
class SphereMnistConfig(PixelClassConfig):
    """Settings of the experiment with digits on a sphere."""

    PAPER: ClassVar[Mapping[str, Any]] = {
        "samples": 10_000,
        "search": "gradient",
        "published": True,
        "tandem": True,
        "wide": True,
        "skips": False,
        "fit_epochs": 20,
        "epochs": 20,
        "learning_rate": 1e-3,
        "spread": 1.0,
    }

    samples: int = option(20_000, "spheres", least=50)
    rotate: float = option(60.0, "largest random rotation of a digit, in degrees", least=0, most=180)
    scale: float = option(1.0, "largest random enlargement of a digit", least=1, most=4)
    projection: Literal["equirectangular", "orthographic", "gnomonic", "equidistant"] = option(
        "equirectangular", "projection of the charts; the digits are flat in the first"
    )
    generators: int | Literal["auto"] = option(1, "how many generators, or auto to find out", least=1)
    wide: bool = option(False, "predictors with the paper's 32-64-64-64 channels, or half as many")
    skips: bool = option(True, "let the decoder see the levels of the encoder")
    fit_epochs: int = option(6, "passes of the predictors over the data", least=1)
    background_weight: float = option(0.1, "weight of background pixels in the predictors' loss", least=0, most=1)
    search_samples: int = option(600, "spheres that the spectral search looks at", least=8)
    growth: float = option(0.35, "growth factor of the gradient search", least=0)
    batches: int = option(150, "batches of the gradient search, unless epochs is given", least=1)
    epochs: int | None = option(None, "passes of the gradient search over the data", least=1)
    learning_rate: float = option(3e-2, "learning rate of the gradient search", least=1e-12)
    spread: float = option(0.5, "spread of the coefficients eta in the gradient search; 1 in the paper", least=1e-6)
    liegan_steps: int = option(
        40, "steps of LieGAN, whose rotation of the sphere is drawn; 0 for a random one", least=0
    )


CONFIG = SphereMnistConfig
REPORTED = {"angle_deg": 1.46, "dimension": 1, "generator": [[-0.03, -1.0], [1.0, 0.02]], "spheres": 10_000}
"""What the paper reports, for comparison only."""


def run(config: SphereMnistConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Draws the spheres, fits a predictor to each digit's place, and asks for the local symmetry."""
    progress.say(f"drawing {config.samples} spheres")
    data = sphere_mnist(
        config.samples, rotate=config.rotate, scale=config.scale, generator=stream(seed, "sphere-mnist", "data")
    )
    atlas = digit_atlas(config.projection)
    found = discover(
        data.x,
        data.y,
        atlas=atlas,
        predictor=_predictor(config),
        search=_search(config),
        cosets=mirror_search(config, config.epochs or 20),
        **asking(config, seed, progress),
    )
    fields = {
        "input": data.x[0],
        "output": data.y[:1].float(),
        "radii": torch.tensor([RADIUS, RADIUS], dtype=torch.float64),
        "spheres": pictures(
            data.x[:1], atlas, found.algebra, seed=seed, rotation=_global_rotation(data, config, seed, progress)
        ),
    }
    return found, Extras(_metrics(found, data), REPORTED, fields)


def digit_atlas(projection: Projection = "equirectangular") -> Atlas:
    """One chart at the place of each digit, with pixels as large as those of the grid."""
    pixel = 180 / HEIGHT
    return Atlas(
        tuple(
            SphereChart(
                90 - (row + 0.5) * pixel, (column + 0.5) * 360 / WIDTH, RADIUS, RADIUS, pixel, projection=projection
            )
            for row, column in CENTRES
        )
    )


def pictures(x: Tensor, atlas: Atlas, algebra: LieAlgebra, *, seed: int, rotation: Tensor | None = None) -> Tensor:
    """A sphere as it is, after rotations of each chart by itself, and after a rotation of the whole.

    Arguments:
        x: One sphere, with shape `(1, 1, H, W)`.
        atlas: Charts that do not overlap.
        algebra: What was found; without generators the second picture is the first.
        rotation: The rotation of the whole, `(3, 3)`; by default 60 degrees about a random axis.

    Returns:
        Three fields, with shape `(3, H, W)`.
    """
    generator = stream(seed, "sphere-mnist", "pictures")
    draws = torch.randn(len(atlas), algebra.dimension, generator=generator, dtype=torch.float64)
    size = math.radians(50) * draws.sign()
    local = x.clone()
    for k, (row, column) in enumerate(CENTRES if algebra.dimension else ()):
        window = (..., slice(row - RADIUS, row + RADIUS + 1), slice(column - RADIUS, column + RADIUS + 1))
        local[window] = GridAction(fill="zeros").on_input(algebra.exp(size[k]), x[window])
    if rotation is None:
        axis = torch.randn(3, generator=generator, dtype=torch.float64)
        a, b, c = (axis / axis.norm() * math.radians(60)).tolist()
        spin = torch.tensor([[0.0, -c, b], [c, 0.0, -a], [-b, a, 0.0]], dtype=torch.float64)
        rotation = torch.matrix_exp(spin)
    return torch.cat([x, local, rotate_sphere(x, rotation)])[:, 0].clamp(0.0, 1.0)


def _predictor(config: SphereMnistConfig) -> SegmentPredictor:
    schedule = Schedule(epochs=config.fit_epochs, batch=32, learning_rate=5e-3, patience=config.fit_epochs)
    if config.published:
        schedule = replace(SegmentPredictor.published().schedule, epochs=config.fit_epochs)
    return SegmentPredictor(
        widths=(32, 64, 64, 64) if config.wide else (16, 32, 32, 32),
        skips=config.skips,
        background=BACKGROUND,
        background_weight=config.background_weight,
        schedule=schedule,
    )


def _search(config: SphereMnistConfig) -> SpectralSearch | GradientSearch:
    if config.search == "spectral":
        generators = None if config.generators == "auto" else config.generators
        return SpectralSearch(generators=generators, samples=config.search_samples, derivatives=False)
    names = ("generators", "growth", "epochs", "learning_rate", "spread", "tandem")
    return gradient_search(config, names, {"charts": config.pooled}, loss="cross_entropy", steps=config.batches)


def _global_rotation(data: SphereDigits, config: SphereMnistConfig, seed: int, progress: Progress) -> Tensor | None:
    """A rotation of the whole sphere by 60 degrees along the generator in so(3) that LieGAN comes to, `(3, 3)`."""
    if not config.liegan_steps:
        return None
    settings = LieGAN(batch=16, steps=config.liegan_steps)
    passes = 20 * len(data.x) // settings.batch
    search = replace(settings.published(), steps=passes) if config.published else settings
    found = find_on_sphere(data.x, data.y, classes=CLASSES, search=search, seed=seed, progress=progress)
    if not len(found.basis):
        return None
    a = found.basis[0].double()
    return torch.matrix_exp(math.radians(60) * a / torch.linalg.matrix_norm(a, ord=2))


def _metrics(found: Discovery, data: SphereDigits) -> dict[str, Any]:
    """Distance from so(2) and from scaling, and how far rotations were seen to hold."""
    scaling = LieAlgebra(torch.eye(2, dtype=torch.float64)[None])
    extents = [d.extent for d in found.verdict.directions if d.extent is not None]
    return {
        "angle_deg": span_angle(found.algebra, so(2)),
        "proposed_angle_deg": None if found.proposed is None else span_angle(LieAlgebra(found.proposed), so(2)),
        "scaling_angle_deg": span_angle(found.algebra, scaling),
        "dimension": found.group.dimension,
        "group": found.answer,
        "extent_deg": math.degrees(min(extents)) if extents else None,
        "turned_deg": math.degrees(float(data.angles.abs().max())),
        "outliers": [k for k, c in enumerate(found.charts) if c.outlier],
    }
