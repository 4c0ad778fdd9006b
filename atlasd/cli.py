"""The program `atlasd`; heavy modules are imported by the command that needs them."""

from __future__ import annotations

__all__ = ["app", "main"]

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasd.errors import AtlasdError, DataError

if TYPE_CHECKING:
    from rich.console import Console

    from atlasd.runtime.progress import Progress

app = typer.Typer(
    name="atlasd",
    help="Find the local symmetry of your data, and be told how sure that is.",
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Settings = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a setting; `atlasd list NAME` shows all."),
]


@app.callback(invoke_without_command=True)
def _top(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"atlasd {version('atlasd')}")
        raise typer.Exit()
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("list")
def list_experiments(
    name: Annotated[str | None, typer.Argument(help="Show the settings of one experiment.")] = None,
) -> None:
    """List the experiments, or the settings of one."""
    from atlasd.experiments import EXPERIMENTS, find_experiment

    if name is None:
        width = max(len(e.name) for e in EXPERIMENTS)
        for experiment in EXPERIMENTS:
            typer.echo(f"{experiment.name:<{width}}  {experiment.description}")
        return
    experiment = find_experiment(name)
    from atlasd.report.tables import option_table

    typer.echo(f"{experiment.name}: {experiment.description}")
    _console().print(option_table(experiment.config().describe()))


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="Name of the experiment; `atlasd list` shows all.")],
    settings: Settings = [],  # noqa: B006
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Run directory  [default: runs/NAME-seedS]")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print result.json and nothing else.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run an experiment and keep what it finds in a directory."""
    from atlasd.experiments import find_experiment

    find_experiment(name)  # before the slow imports: a wrong name is told at once
    from atlasd.experiments.record import execute, plan_run
    from atlasd.report.figures import write_figures

    plan = plan_run(name, settings, seed=seed, out=out)
    with _progress(quiet) as progress:
        recorded = execute(plan, progress, write_figures)
    if as_json:
        sys.stdout.write((plan.directory / "result.json").read_text())
        return
    from atlasd.report.tables import print_discovery

    print_discovery(recorded.discovery, _console(), metrics=recorded.extras.metrics)
    if not quiet:
        typer.echo(f"kept in {plan.directory}; `atlasd report {plan.directory}` writes the page", err=True)


@app.command()
def report(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Where to write the page  [default: DIR/report.html]")] = None,
) -> None:
    """Write the report of a run as one HTML page."""
    if not directory.is_dir():
        raise DataError(f"`{directory}` must be a run directory, got {_what(directory)}; `atlasd run` makes one.")
    from atlasd.discovery.result import load
    from atlasd.experiments.record import read_fields
    from atlasd.report.html import write_report

    discovery = load(directory)
    content = json.loads((directory / "result.json").read_text())
    path = write_report(discovery, out or directory / "report.html", content=content, fields=read_fields(directory))
    typer.echo(str(path))


@app.command()
def demo(
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Where to keep the runs and the page.")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Find two groups from nothing, and write a report about them."""
    from atlasd.experiments.demo import run_demo
    from atlasd.report.figures import write_figures
    from atlasd.report.html import Section, write_page
    from atlasd.report.tables import print_discovery

    sections = []
    console = _console()
    with _progress(quiet) as progress:
        for step, recorded in run_demo(out, seed, progress, write_figures):
            print_discovery(recorded.discovery, console, metrics=recorded.extras.metrics, title=step.title)
            console.print()
            sections.append(Section(recorded.discovery, recorded.content, recorded.extras.fields, step.title))
    page = write_page(out / "report.html", sections, "atlasd demo")
    typer.echo(f"The report is {page.resolve()}")


@app.command()
def zoo(
    seeds: Annotated[int, typer.Option(help="Number of seeds, from 0.")] = 5,
    only: Annotated[str, typer.Option(metavar="NAME,...", help="Systems; all by default.")] = "",
    mode: Annotated[
        str, typer.Option(help="Ask the exact maps (oracle), fitted predictors (fitted), or both.")
    ] = "both",
    workers: Annotated[int | None, typer.Option(help="Processes  [default: one for each core]")] = None,
    out: Annotated[Path, typer.Option(help="Where to keep the table.")] = Path("runs/zoo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print zoo.json and nothing else.")] = False,
    quick: Annotated[bool, typer.Option(help="Six small systems, the exact maps, one seed.")] = False,
    quiet: Quiet = False,
) -> None:
    """Try every system of known symmetry, and count what is found and what is made up."""
    from atlasd.experiments.record import check_directory
    from atlasd.experiments.zoo import QUICK, describe_zoo, plan_zoo, run_zoo, write_zoo, zoo_table

    names = [name.strip() for name in only.split(",") if name.strip()] or (list(QUICK) if quick else [])
    tasks = plan_zoo(seeds=1 if quick else seeds, only=names, mode="oracle" if quick else mode)
    check_directory(out, "zoo.json")
    with _progress(quiet) as progress:
        done = run_zoo(tasks, workers=workers or min(len(tasks), os.cpu_count() or 1), progress=progress)
    write_zoo(done, out)
    if as_json:
        sys.stdout.write((out / "zoo.json").read_text())
        return
    typer.echo(f"{zoo_table(done.rows)}\n\n{describe_zoo(done)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit status: 0 done, 2 bad input, 130 interrupted."""
    command = typer.main.get_command(app)
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = command.main(given, prog_name="atlasd", standalone_mode=False)
    except KeyboardInterrupt:
        status = 130
    except (AtlasdError, OSError) as error:
        return _fail(str(error))
    except typer.Abort:
        status = 130
    except Exception as error:
        # Usage errors: their class is click's in older typer and typer's own in newer.
        if not callable(getattr(error, "format_message", None)):
            raise
        return _fail(error.format_message())  # type: ignore[attr-defined]
    if status == 130:
        print("atlasd: interrupted; run the same command again to start over.", file=sys.stderr)
    return status if isinstance(status, int) else 0


def _fail(message: str) -> int:
    print(f"atlasd: error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _what(path: Path) -> str:
    return "a file" if path.exists() else "nothing there"


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    # A pipe has no width: tables must not be folded to 80 columns there.
    return console if console.is_terminal else Console(highlight=False, width=160)


@contextmanager
def _progress(quiet: bool) -> Iterator[Progress]:
    from atlasd.runtime.progress import Silent, Terminal

    if quiet:
        yield Silent()
        return
    with Terminal() as terminal:
        yield terminal
