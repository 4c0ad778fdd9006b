"""Data that are too large to ship: where they are kept, and how they are fetched."""

from __future__ import annotations

__all__ = ["data_directory"]

import os
from pathlib import Path


def data_directory(name: str) -> Path:
    """Where the data of that name are kept: below ATLASD_DATA, or in the user's cache."""
    if root := os.environ.get("ATLASD_DATA"):
        return Path(root) / name
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "atlasd" / name
