"""What the commands share: options that mean the same everywhere, the console and the progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from atlasd.runtime.progress import Progress
    from atlasd.studies.record import Plan, Recorded

Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Tolerance = Annotated[
    float | None,
    typer.Option(help="Largest strength of a breaking that counts as a symmetry, from 0 to 1  [default: 0.2]"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress, only what was guessed.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; `atlasd list NAME` shows all."),
]


@dataclass(frozen=True, kw_only=True)
class Running:
    """Options of every command that works for long: where it works, and what it shows; see `running_options`."""

    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            help="Processes, one thread each  [default: this one; for discover with many charts and zoo, all cores]",
        ),
    ] = None
    dask: Annotated[
        str, typer.Option("--dask", metavar="ADDRESS", help="Work on this Dask cluster: tls://HOST:8786.")
    ] = ""
    tls: Annotated[
        str,
        typer.Option(
            "--tls",
            metavar="CA,CERT,KEY",
            help="With --dask tls://...: files of the authority's certificate, of one's own, and of its key.",
        ),
    ] = ""
    as_json: AsJson = False
    quiet: Quiet = False
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say when every stage is done, and how long it took.")
    ] = False

    def words(self) -> list[str]:
        """The same on a command line."""
        values = {"--workers": self.workers, "--dask": self.dask, "--tls": self.tls}
        flags = {"--json": self.as_json, "--quiet": self.quiet, "--verbose": self.verbose}
        given = [word for key, value in values.items() if value not in (None, "") for word in (key, str(value))]
        return given + [key for key, on in flags.items() if on]


def experiment_names(incomplete: str) -> list[str]:
    """Names of experiments that start so, for the completion of the shell."""
    from atlasd.studies import EXPERIMENTS

    return [e.name for e in EXPERIMENTS if e.name.startswith(incomplete)]


def console() -> Console:
    """Standard output; where it is a pipe, tables are not folded to 80 columns."""
    from atlasd.runtime.text import EscapingConsole

    made = EscapingConsole(highlight=False)
    return made if made.is_terminal else EscapingConsole(highlight=False, width=160)


def tell(message: str, *, err: bool = True) -> None:
    """Writes one line, on standard error unless it is the answer; characters that a terminal obeys are escaped."""
    from atlasd.runtime.text import escaped

    typer.echo(escaped(message), err=err)


@contextmanager
def shown_progress(quiet: bool, verbose: bool = False) -> Iterator[Progress]:
    """Progress on standard error: none, bars and a few lines, or also a line for every stage."""
    from atlasd.errors import InputError
    from atlasd.runtime.progress import Terminal, Terse

    if quiet and verbose:
        raise InputError("--quiet and --verbose must not both be given; leave one out.")

    if quiet:
        yield Terse()
        return
    with Terminal(verbose=verbose) as terminal:
        yield terminal


@contextmanager
def chosen_workers(workers: int | None, dask: str, tls: str = "") -> Iterator[None]:
    """Runs tasks in several processes, on a Dask cluster, or, where neither is asked for, in this process.

    Arguments:
        tls: Files for an encrypted connection to it, as `CA,CERT,KEY`.
    """
    from atlasd.errors import InputError
    from atlasd.runtime.executor import alone, working
    from atlasd.runtime.pool import process_pool

    if workers is not None and workers < 1:
        raise InputError(f"`workers` must be at least 1, got {workers}.")
    if tls and not dask.startswith("tls://"):
        raise InputError(f"--tls must come with --dask tls://HOST:8786, got {dask or 'no address'!r}; give one.")
    if dask:
        if workers is not None:
            raise InputError("--workers and --dask must not both be given; leave one out.")
        with _dask_client(dask, tls) as client, working(client.get_executor()):
            yield
    elif workers is not None and workers > 1:
        with process_pool(workers) as pool, working(pool):
            yield
    elif workers == 1:
        with alone():
            yield
    else:
        yield


def _dask_client(address: str, tls: str) -> Any:
    from atlasd.errors import InputError

    try:
        from distributed import Client
        from distributed.security import Security
    except ImportError as error:
        raise InputError("--dask must have Dask to work with, got none; pip install 'atlasd[dask]'.") from error
    files = [Path(name.strip()) for name in tls.split(",")] if tls else []
    if files and (len(files) != 3 or not all(file.is_file() for file in files)):
        raise InputError(f"--tls must name three files, CA,CERT,KEY, got {tls!r}; check the paths.")
    options: dict[str, Any] = {"timeout": 10}
    if files:
        names = ("tls_ca_file", "tls_client_cert", "tls_client_key")
        given = dict(zip(names, map(str, files), strict=True))
        options["security"] = Security(require_encryption=True, **given)
    try:
        return Client(address, **options)
    except (OSError, ValueError, TimeoutError, TypeError) as error:  # ssl.SSLError is an OSError
        raise InputError(
            f"--dask must be the address of a scheduler, such as tcp://HOST:8786, got {address!r}: {error}"
        ) from error


def write_run_page(recorded: Recorded) -> Path:
    """Writes the report of a run that has just ended into its directory."""
    from atlasd.report.html import write_report

    directory, fields = recorded.plan.directory, recorded.extras.fields
    return write_report(recorded.discovery, directory / "report.html", content=recorded.content, fields=fields)


def carry_out(plan: Plan, running: Running) -> None:
    """Runs a plan, writes its page, and prints what was found."""
    from atlasd.report.figures import write_figures
    from atlasd.studies.record import execute

    placed = chosen_workers(running.workers, running.dask, running.tls)
    with placed, shown_progress(running.quiet, running.verbose) as progress:
        recorded = execute(plan, progress, write_figures)
        page = write_run_page(recorded)
    if running.as_json:
        sys.stdout.write((plan.directory / "result.json").read_text())
        return
    from atlasd.report.tables import print_discovery

    print_discovery(recorded.discovery, console(), metrics=recorded.extras.metrics)
    if not running.quiet:
        tell(f"kept in {plan.directory}; the report is {page}")
