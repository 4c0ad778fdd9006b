"""`fit_predictor`: from data to a predictor of every chart, with its skill."""

from __future__ import annotations

__all__ = ["AutoPredictor", "fit_predictor", "fit_recipe"]

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.blocks import fit_blocks
from atlasd.prediction.moments import MomentPredictor
from atlasd.prediction.neural import ConvPredictor, MLPPredictor
from atlasd.prediction.patch import PatchPredictor
from atlasd.prediction.predictor import FittedPredictor, PredictorSpec
from atlasd.prediction.samples import Samples, split_indices
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream


@dataclass(frozen=True, kw_only=True)
class AutoPredictor:
    """A stencil where a linear map will do, a perceptron on patches where it will not; quadratic forms for sets.

    Arguments:
        enough: Skill at which the closed-form stencil is kept without trying a network.
        exact: Skill at which no other perceptron is tried.
    """

    enough: float = 0.95
    exact: float = 0.999

    def fit(
        self, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
    ) -> FittedPredictor:
        """Fits the cheapest kind that has skill; all charts take the same."""

        def fit(recipe: PredictorSpec) -> FittedPredictor:
            return fit_blocks(recipe, samples, train, held_out, seed=seed, progress=progress)

        if not samples.is_field:
            forms = fit(MomentPredictor()) if samples.x.ndim == 3 else None
            if forms is not None and forms.skill >= self.exact:
                return forms
            plain = fit(MLPPredictor())
            if forms is not None:  # sets of vectors: held-out data say which kind
                return forms if forms.skill > plain.skill else plain
            if samples.classes or plain.skill >= self.exact or plain.skill < 0.5:
                return plain
            # Held-out data say whether layers that multiply fit better.
            gated = MLPPredictor(hidden=(48, 48, 48), gated=True)
            other = fit(gated)
            return other if other.skill > plain.skill else plain
        if samples.classes:
            return fit(ConvPredictor())
        linear = fit(StencilPredictor())
        # The better charts tell whether the map is linear; the worse ones may lie over an obstacle.
        best = float(linear.chart_skill.quantile(0.75))
        if best >= self.enough or not samples.atlas.radii or float(linear.chart_skill.abs().max()) == 0.0:
            return linear
        network = fit(PatchPredictor())
        return network if network.skill > linear.skill else linear


def fit_predictor(
    x: Any,
    y: Any,
    *,
    atlas: Atlas | None = None,
    predictor: PredictorSpec | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> FittedPredictor:
    """Fits a predictor of every chart together, with a held-out split and early stopping.

    Arguments:
        x: Inputs: fields `(N, C, *S)`, vectors `(N, n)` or sets `(N, P, n)`.
        y: Targets.
        atlas: Where the charts lie.
        predictor: The recipe; chosen from the data by default.
        seed: Seed of every random stream.
        progress: Who is told how far it is.

    Returns:
        The predictor, callable on `(B, K, *in)`.

    Example:
        >>> import torch
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(400, 2, generator=generator)
        >>> fitted = fit_predictor(x, x.square().sum(-1), predictor=MLPPredictor(hidden=(32, 32)))
        >>> fitted.skill > 0.9
        True
    """
    samples = Samples.check(x, y, atlas)
    if samples.y is None:
        raise InputError("`y` must be given to fit a predictor, got None.")
    train, search, _ = split_indices(len(samples), stream(seed, "split"))
    return fit_recipe(predictor, samples, train, search, seed=seed, progress=progress or Silent())


def fit_recipe(
    recipe: PredictorSpec | None, samples: Samples, train: Tensor, held_out: Tensor, *, seed: int, progress: Progress
) -> FittedPredictor:
    """Carries out a recipe, by default that which chooses from the data, in blocks of charts."""
    if recipe is None or isinstance(recipe, AutoPredictor):
        return (recipe or AutoPredictor()).fit(samples, train, held_out, seed=seed, progress=progress)
    return fit_blocks(recipe, samples, train, held_out, seed=seed, progress=progress)
