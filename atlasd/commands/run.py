"""Running an experiment by name."""

from __future__ import annotations

__all__ = ["run"]

import sys
from pathlib import Path
from typing import Annotated

import typer

from atlasd.commands.common import (
    AsJson,
    Dask,
    Quiet,
    Seed,
    Settings,
    Verbose,
    WorkerCount,
    chosen_workers,
    console,
    experiment_names,
    shown_progress,
    write_run_page,
)


def run(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME", autocompletion=experiment_names, help="Name of the experiment; `atlasd list` shows all."
        ),
    ],
    settings: Settings = [],  # noqa: B006
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Run directory  [default: runs/NAME-seedS]")] = None,
    workers: WorkerCount = None,
    dask: Dask = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Run an experiment and keep what it finds in a directory."""
    from atlasd.experiments import find_experiment

    find_experiment(name)  # before the slow imports: a wrong name is told at once
    from atlasd.experiments.record import execute, plan_run
    from atlasd.report.figures import write_figures

    plan = plan_run(name, settings, seed=seed, out=out)
    with chosen_workers(workers, dask), shown_progress(quiet, verbose) as progress:
        recorded = execute(plan, progress, write_figures)
        page = write_run_page(recorded)
    if as_json:
        sys.stdout.write((plan.directory / "result.json").read_text())
        return
    from atlasd.report.tables import print_discovery

    print_discovery(recorded.discovery, console(), metrics=recorded.extras.metrics)
    if not quiet:
        typer.echo(f"kept in {plan.directory}; the report is {page}", err=True)
