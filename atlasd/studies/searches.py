"""Searches as the settings of a study ask for them."""

from __future__ import annotations

__all__ = ["coset_search", "gradient_search"]

from collections.abc import Mapping, Sequence
from typing import Any

from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch


def gradient_search(config: Any, names: Sequence[str], published: Mapping[str, Any], **more: Any) -> GradientSearch:
    """The paper's search, with our aids or as published.

    Arguments:
        config: The settings of a study.
        names: Those that the search has under the same name.
        published: Further settings of the published search.
        more: Further settings of both.
    """
    settings = {name: getattr(config, name) for name in names} | more
    return GradientSearch.published(**settings, **published) if config.published else GradientSearch(**settings)


def coset_search(config: Any, **published: Any) -> CosetSearch:
    """The search for cosets, ours or as published."""
    settings = {name: getattr(config, name) for name in ("starts", "top", "normalize")}
    if config.published and config.cosets == "gradient":
        return CosetSearch.published(**settings, **published)
    return CosetSearch(method=config.cosets, **settings)
