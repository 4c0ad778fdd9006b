"""Going on with a run that was stopped."""

from __future__ import annotations

__all__ = ["resume"]

import os
from pathlib import Path
from typing import Annotated

import typer

from atlasd.commands.common import AsJson, Dask, Quiet, WorkerCount
from atlasd.errors import DataError


def resume(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="The run directory.")],
    workers: WorkerCount = None,
    dask: Dask = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run that was stopped or killed; finished stages are not done again."""
    from atlasd.runtime.stages import NAME, read_plan, resuming

    if not directory.is_dir():
        raise DataError(f"`{directory}` must be a run directory, got nothing there; `atlasd run` makes one.")
    if (directory / "result.json").is_file() and not (directory / NAME).exists():
        typer.echo(f"{directory} is finished; there is nothing to continue", err=True)
        return
    plan = read_plan(directory)
    words = [*plan["words"], "--out", str(directory.resolve())]
    words += ["--json"] * as_json + ["--quiet"] * quiet
    words += [] if workers is None else ["--workers", str(workers)]
    words += ["--dask", dask] if dask else []
    where = Path(str(plan.get("where", ".")))
    if where.is_dir():
        os.chdir(where)  # files may have been named from there
    with resuming():
        context.find_root().command.main(words, prog_name="atlasd", standalone_mode=False)
