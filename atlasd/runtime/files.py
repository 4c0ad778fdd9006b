"""Files that are either whole or absent."""

from __future__ import annotations

__all__ = ["write_atomically"]

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atlasd.errors import DataError


def write_atomically(path: Path, write: Callable[[Path], Any]) -> Path:
    """Lets `write` fill a temporary file beside `path`, then renames it into place.

    Arguments:
        path: Where the file is to stand.
        write: Fills the file whose path it is given.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"`{path}` could not be written: {error}; choose another directory.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path
