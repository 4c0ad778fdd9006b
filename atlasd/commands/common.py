"""What the commands share: options that mean the same everywhere, the console and the progress."""

from __future__ import annotations

__all__ = [
    "AsJson", "Quiet", "Seed", "Settings", "Verbose", "console", "experiment_names", "shown_progress", "write_run_page",
]  # fmt: skip

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from atlasd.experiments.record import Recorded
    from atlasd.runtime.progress import Progress

Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say when every stage is done, and how long it took.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; `atlasd list NAME` shows all."),
]


def experiment_names(incomplete: str) -> list[str]:
    """Names of experiments that start so, for the completion of the shell."""
    from atlasd.experiments import EXPERIMENTS

    return [e.name for e in EXPERIMENTS if e.name.startswith(incomplete)]


def console() -> Console:
    """Standard output; where it is a pipe, tables are not folded to 80 columns."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=160)


@contextmanager
def shown_progress(quiet: bool, verbose: bool = False) -> Iterator[Progress]:
    """Progress on standard error: none, bars and a few lines, or also a line for every stage."""
    from atlasd.errors import InputError
    from atlasd.runtime.progress import Silent, Terminal

    if quiet and verbose:
        raise InputError("--quiet and --verbose must not both be given; leave one out.")

    if quiet:
        yield Silent()
        return
    with Terminal(verbose=verbose) as terminal:
        yield terminal


def write_run_page(recorded: Recorded) -> Path:
    """Writes the report of a run that has just ended into its directory."""
    from atlasd.report.html import write_report

    directory, fields = recorded.plan.directory, recorded.extras.fields
    return write_report(recorded.discovery, directory / "report.html", content=recorded.content, fields=fields)
