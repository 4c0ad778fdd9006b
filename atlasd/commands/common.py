"""What the commands share: options that mean the same everywhere, the console and the progress."""

from __future__ import annotations

__all__ = ["AsJson", "Quiet", "Seed", "Settings", "console", "shown_progress"]

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from atlasd.runtime.progress import Progress

Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; `atlasd list NAME` shows all."),
]


def console() -> Console:
    """Standard output; where it is a pipe, tables are not folded to 80 columns."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=160)


@contextmanager
def shown_progress(quiet: bool) -> Iterator[Progress]:
    """Progress on standard error, or none."""
    from atlasd.runtime.progress import Silent, Terminal

    if quiet:
        yield Silent()
        return
    with Terminal() as terminal:
        yield terminal
