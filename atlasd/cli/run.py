"""Running an experiment by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import Running, Seed, Settings, carry_out, experiment_names
from atlasd.cli.options import running_options


@running_options
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
    *,
    running: Running,
) -> None:
    """Run an experiment and keep what it finds in a directory."""
    from atlasd.studies import find_experiment

    find_experiment(name)  # before the slow imports: a wrong name is told at once
    from atlasd.studies.record import plan_run

    plan = plan_run(name, settings, seed=seed, out=out)
    carry_out(plan, running)
