"""Errors that libraries raise for damaged files, in one clear line."""

from __future__ import annotations

__all__ = ["reading", "said"]

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from atlasd.errors import AtlasdError, DataError


@contextmanager
def reading(path: Path, kind: str) -> Iterator[None]:
    """Whatever a library raises about a file inside the context becomes one line.

    Arguments:
        path: The file.
        kind: What it should be a whole one of: `HDF5 file`.
    """
    try:
        yield
    except (AtlasdError, ImportError):
        raise
    except MemoryError as error:
        raise DataError(f"`{path}` must fit into memory, got no room for it; use a smaller file.") from error
    except Exception as error:  # damaged files make libraries fail in every way there is
        raise DataError(
            f"`{path}` must be a whole {kind}, got one that cannot be read ({said(error)}); "
            "is it truncated or of another kind? If you fetched it, fetch it again."
        ) from error


def said(error: Exception) -> str:
    """The first line of a message, not too long."""
    lines = [str(line) for line in str(error).strip().splitlines()]
    return (lines[0] if lines else type(error).__name__)[:160]
