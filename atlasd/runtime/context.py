"""What work takes along: its workers, the stages that it keeps, and where its files were named from."""

from __future__ import annotations

__all__ = ["Surroundings", "surroundings", "within"]

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlasd.runtime.executor import Workers
    from atlasd.runtime.stages import Stages


@dataclass(frozen=True)
class Surroundings:
    """What is not passed from call to call.

    Arguments:
        workers: Where tasks run; `None` if nobody chose.
        stages: Finished stages of the run that is under way; `None` where nothing is kept.
        origin: The directory from which the files of a resumed run were named; `None` for a new run.
    """

    workers: Workers | None = None
    stages: Stages | None = None
    origin: Path | None = None


_NOTHING = Surroundings()
_surroundings: ContextVar[Surroundings] = ContextVar("atlasd", default=_NOTHING)


def surroundings() -> Surroundings:
    """What surrounds the caller."""
    return _surroundings.get()


@contextmanager
def within(**changes: Any) -> Iterator[None]:
    """Changes the surroundings of what happens inside.

    Arguments:
        changes: Fields of `Surroundings`.
    """
    token = _surroundings.set(replace(_surroundings.get(), **changes))
    try:
        yield
    finally:
        _surroundings.reset(token)
