"""Progress: the library reports it, the caller decides whether it is shown."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sized
from typing import Protocol, TypeVar

T = TypeVar("T")
LOG = logging.getLogger("atlasd")
"""Everything that is said can be had from here as well; silent unless somebody listens."""
LOG.addHandler(logging.NullHandler())


class Progress(Protocol):
    """Tells somebody how far long work has come."""

    def track(self, items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
        """Yields the items and counts them."""

    def say(self, message: str) -> None:
        """Says one line."""


class Silent:
    """Shows nothing."""

    def track(self, items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
        """Yields the items."""
        yield from items

    def say(self, message: str) -> None:
        """Keeps quiet."""


class Logged:
    """Passes progress on, and hands every line to the logger `atlasd` as well."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def note(self, message: str, level: int = logging.INFO) -> None:
        """Writes a line down without showing it."""
        LOG.log(level, message)

    def track(self, items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
        """Yields the items, and notes how long they took."""
        started = time.monotonic()
        yield from self._progress.track(items, label, total)
        self.note(f"{label}: {time.monotonic() - started:.2f} s", logging.DEBUG)

    def say(self, message: str) -> None:
        """Shows one line and notes it."""
        self.note(message)
        self._progress.say(message)

    def tell(self, message: str) -> None:
        """Shows one line that must be known, and notes it."""
        self.note(message)
        tell(self._progress, message)


class Terse(Silent):
    """Shows no progress, and only those messages that a user must see: guesses, and data that were left out."""

    def tell(self, message: str) -> None:
        """Says one line that is never left out."""
        from atlasd.runtime.text import EscapingConsole

        EscapingConsole(stderr=True, soft_wrap=True).print(message, highlight=False, markup=False)


def tell(progress: Progress, message: str) -> None:
    """Says one line that must be known; displays without a voice for that say it as any other."""
    getattr(progress, "tell", progress.say)(message)


class Terminal:
    """Shows bars with the time left on standard error; only what is said where that is not a terminal.

    Arguments:
        verbose: Also say when every stage is done, and how long it took.
    """

    def __init__(self, verbose: bool = False) -> None:
        import rich.progress as bars

        from atlasd.runtime.text import EscapingConsole

        self._verbose = verbose
        self._console = EscapingConsole(stderr=True, soft_wrap=True)
        columns = (bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeElapsedColumn(), bars.TimeRemainingColumn())
        self._bars = bars.Progress(
            bars.TextColumn("{task.description:<28}"), *columns,
            console=self._console, transient=True, disable=not self._console.is_terminal,
        )  # fmt: skip

    def __enter__(self) -> Terminal:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def track(self, items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
        """Yields the items behind a bar."""
        if total is None and isinstance(items, Sized):
            total = len(items)
        self._bars.start()  # a bar may be asked for outside the context, by `discover(progress=True)`
        task = self._bars.add_task(label, total=total)
        started = time.monotonic()
        try:
            for item in items:
                yield item
                self._bars.advance(task)
        finally:
            self._bars.remove_task(task)
            if self._verbose:
                self.say(f"{label}: {time.monotonic() - started:.1f} s")
            if not self._bars.tasks:
                self._bars.stop()

    def say(self, message: str) -> None:
        """Writes one line."""
        self._console.print(message, highlight=False, markup=False)
