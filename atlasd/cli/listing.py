"""What can be run."""

from __future__ import annotations

from typing import Annotated

import typer

from atlasd.cli.common import console, tell


def list_experiments(
    name: Annotated[str | None, typer.Argument(help="Show the settings of one experiment.")] = None,
) -> None:
    """List the experiments, or the settings of one."""
    from atlasd.studies import EXPERIMENTS, find_experiment

    if name is None:
        width = max(len(e.name) for e in EXPERIMENTS)
        for experiment in EXPERIMENTS:
            tell(f"{experiment.name:<{width}}  {experiment.description}", err=False)
        return
    experiment = find_experiment(name)
    from atlasd.report.tables import option_table

    tell(f"{experiment.name}: {experiment.description}", err=False)
    console().print(option_table(experiment.config().describe()))
