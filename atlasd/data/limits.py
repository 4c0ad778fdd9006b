"""What a file of data may ask for: how many variables, how deep, how many bytes. Stated in `docs/safety.md`."""

from __future__ import annotations

__all__ = [
    "MOST_BYTES", "MOST_CELLS", "MOST_LEVELS", "MOST_LINE", "MOST_VARIABLES", "check_claim", "check_count",
    "check_size",
]  # fmt: skip

from pathlib import Path

from atlasd.errors import DataError

MOST_VARIABLES = 10_000
"""Variables or columns of a file."""
MOST_LEVELS = 32
"""Groups inside groups."""
MOST_BYTES = 2 << 30
"""Bytes of one variable that are read or unpacked at a time."""
MOST_CELLS = 20_000_000
"""Numbers of a table of text."""
MOST_LINE = 4 << 20
"""Characters of a line of text."""
_PACKED = 2000
"""How many times larger data may be than what is stored of them; compression of a constant gives 1000."""
_SMALL = 1 << 20


def check_count(path: Path, count: int, what: str = "variables") -> None:
    """Raises where a file holds more than anybody could choose from."""
    if count > MOST_VARIABLES:
        raise DataError(
            f"`{path}` must have at most {MOST_VARIABLES} {what}, got {count}; write those that are used to a new file."
        )


def check_size(path: Path, name: str, size: int, remedy: str) -> None:
    """Raises where a variable takes more memory than may be used for one."""
    if size > MOST_BYTES:
        raise DataError(
            f"variable {name!r} of `{path}` must take at most {MOST_BYTES >> 20} MB in memory, got {size >> 20} MB; "
            f"{remedy}."
        )


def check_claim(path: Path, name: str, claimed: int, stored: int) -> None:
    """Raises where a variable claims far more bytes than any compression of what is stored could give.

    Arguments:
        path: The file.
        name: The variable.
        claimed: Bytes by its shape.
        stored: Bytes that the file holds of it.
    """
    if claimed > _PACKED * max(stored, _SMALL):
        raise DataError(
            f"variable {name!r} of `{path}` must hold the {claimed >> 20} MB that its shape claims, got {stored} "
            "bytes; is it truncated, or never filled?"
        )
