"""Searches as the settings of a study ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch
from atlasd.studies.config import PaperConfig, option, tolerance_option


@dataclass(frozen=True, kw_only=True)
class PixelClassConfig(PaperConfig):
    """Settings that the studies of pixel classes share."""

    search: Literal["spectral", "gradient"] = option("spectral", "by values at finite size, or the paper's")
    published: bool = option(False, "searches exactly as the paper describes them; the verdict is given beside")
    tandem: bool = option(False, "train predictors with the generators in the gradient search")
    pooled: Literal["sum", "mean"] = option(
        "sum", "charts in a published search: summed, as in the text, or averaged: growth counts once for each"
    )
    cosets: bool = option(False, "look for mirrors too")
    normalize: bool = option(True, "keep determinants at 1 or -1 in a published search for them")
    tolerance: float = tolerance_option()


def gradient_search(config: Any, names: Sequence[str], published: Mapping[str, Any], **more: Any) -> GradientSearch:
    """The paper's search, with our aids or as published.

    Arguments:
        names: Those that the search has under the same name.
        published: Further settings of the published search.
    """
    settings = {name: getattr(config, name) for name in names} | more
    return GradientSearch.published(**settings, **published) if config.published else GradientSearch(**settings)


def coset_search(config: Any, **published: Any) -> CosetSearch:
    """The search for cosets, ours or as published."""
    settings = {name: getattr(config, name) for name in ("starts", "top", "normalize")}
    if config.published and config.cosets == "gradient":
        return CosetSearch.published(**settings, **published)
    return CosetSearch(method=config.cosets, **settings)


def mirror_search(config: PixelClassConfig, epochs: int) -> CosetSearch | bool:
    """The search for mirrors of a study of pixel classes: none, ours, or as published."""
    if not (config.cosets and config.published):
        return config.cosets
    return CosetSearch.published(loss="cross_entropy", epochs=epochs, normalize=config.normalize)
