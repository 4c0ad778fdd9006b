"""Files that cannot be trusted: how much one may ask for, and one clear line about a damaged one (`docs/safety.md`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from atlasd.errors import AtlasdError, DataError
from atlasd.runtime.memory import bounded_memory

MOST_VARIABLES = 10_000
"""Variables or columns of a file."""
MOST_LEVELS = 32
"""Groups inside groups."""
MOST_BYTES = 2 << 30
"""Bytes of one variable that are read or unpacked at a time."""
MOST_CHUNK = 256 << 20
"""Bytes of a chunk; a library holds two or three of them at a time."""
MOST_CELLS = 20_000_000
"""Numbers of a table of text."""
MOST_LINE = 4 << 20
"""Characters of a line of text."""
MARGIN = 900.0
"""MB that opening a file may take, and reading from it beyond four times what is read: a part may unpack to more."""
_PACKED = 2000
"""How many times larger data may be than what is stored of them; compression of a constant gives 1000."""
_SMALL = 1 << 20


def check_count(path: Path, count: int, what: str = "variables") -> None:
    """Raises where a file holds more than anybody could choose from."""
    if count > MOST_VARIABLES:
        raise DataError(
            f"`{path}` must have at most {MOST_VARIABLES} {what}, got {count}; write those that are used to a new file."
        )


def check_size(path: Path, name: str, size: int, remedy: str, most: int = 0) -> None:
    """Raises where a variable, or a part of it, takes more memory than may be used for one."""
    most = most or MOST_BYTES
    if size > most:
        raise DataError(
            f"variable {name!r} of `{path}` must take at most {most >> 20} MB in memory, got {size >> 20} MB; {remedy}."
        )


def check_chunk(path: Path, name: str, size: int) -> None:
    """Raises where a chunk of a variable, all of which is unpacked at once, is larger than chunks may be."""
    check_size(path, name, size, "write it in smaller chunks", MOST_CHUNK)


def check_claim(path: Path, name: str, claimed: int, stored: int) -> None:
    """Raises where a variable claims far more bytes than any compression of what is stored could give."""
    if claimed > _PACKED * max(stored, _SMALL):
        raise DataError(
            f"variable {name!r} of `{path}` must hold the {claimed >> 20} MB that its shape claims, got {stored} "
            "bytes; is it truncated, or never filled?"
        )


@contextmanager
def reading(path: Path, kind: str, size: float = 0.0) -> Iterator[None]:
    """Whatever a library raises about a file inside the context becomes one line, and so does too much memory.

    Arguments:
        kind: What it should be: `HDF5 file`.
        size: Bytes that it may take, beyond `MARGIN`; infinite for what the user has opened.
    """
    try:
        with bounded_memory(MARGIN + size / 2**20):
            yield
    except (AtlasdError, ImportError):
        raise
    except MemoryError as error:
        raise DataError(f"`{path}` must fit into memory, got no room for it; use fewer samples of it.") from error
    except Exception as error:  # damaged files make libraries fail in every way there is
        raise DataError(
            f"`{path}` must be a complete {kind}, got one that cannot be read ({said(error)}); "
            "is it truncated or of another kind? If you fetched it, fetch it again."
        ) from error


def said(error: Exception) -> str:
    """The first line of a message, not too long."""
    lines = [str(line) for line in str(error).strip().splitlines()]
    return (lines[0] if lines else type(error).__name__)[:160]
