"""Finished parts of long work, kept so that a run that is killed loses nothing it had finished."""

from __future__ import annotations

__all__ = ["Checkpoint"]

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atlasd.runtime.content import read_json
from atlasd.runtime.files import write_atomically

_NAME = "parts.json"


class Checkpoint:
    """A directory with the parts that are done; without one, nothing is kept.

    Arguments:
        directory: Where to keep them; made when the first part is done.
        title: What the work is. Parts of other work in the same place are not used, and are dropped.

    Example:
        >>> import tempfile
        >>> place = Path(tempfile.mkdtemp()) / "kept"
        >>> Checkpoint(place, "sums").do("2 + 2", lambda: 2 + 2)
        4
        >>> Checkpoint(place, "sums").do("2 + 2", lambda: print("not done again"))
        4
    """

    def __init__(self, directory: Path | None = None, title: str = "") -> None:
        self.directory, self._title = directory, title
        self._parts: dict[str, Any] = {}
        if directory is None:
            return
        try:
            content = read_json(directory / _NAME, follow=False)
            same = content["title"] == title and isinstance(content["parts"], dict)
        except (OSError, ValueError, KeyError, TypeError):
            same = False
        if same:
            self._parts = content["parts"]
        else:
            self.remove()

    @classmethod
    def stands(cls, directory: Path) -> bool:
        """Whether parts of some work are kept there."""
        return (directory / _NAME).is_file()

    def __contains__(self, key: str) -> bool:
        return key in self._parts

    def do(self, key: str, work: Callable[[], Any]) -> Any:
        """The part of that name: as it was kept, or done now and kept. It must be plain JSON."""
        if key not in self._parts:
            done = work()
            self._parts[key] = done
            if self.directory is not None:
                text = json.dumps({"title": self._title, "parts": self._parts}, indent=1) + "\n"
                write_atomically(self.directory / _NAME, lambda path: path.write_text(text))
        return self._parts[key]

    def remove(self) -> None:
        """Forgets everything; called when the work is done."""
        self._parts = {}
        if self.directory is not None and not self.directory.is_symlink():
            shutil.rmtree(self.directory, ignore_errors=True)
