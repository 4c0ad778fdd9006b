"""All methods side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import Running, Seed, Settings, Tolerance, chosen_workers, console, shown_progress, tell
from atlasd.cli.options import running_options


@running_options
def compare(
    name: Annotated[
        str,
        typer.Argument(
            help="heat, dimuons, top-tagging, sphere-mnist, affine, cubic, sector, flows, two-body or diffusions."
        ),
    ],
    settings: Settings = [],  # noqa: B006
    tolerance: Tolerance = None,
    seed: Seed = 0,
    methods: Annotated[str, typer.Option(metavar="NAME,...", help="Some of the methods; all by default.")] = "",
    out: Annotated[Path | None, typer.Option(help="Run directory  [default: runs/compare-NAME-seedS]")] = None,
    *,
    running: Running,
) -> None:
    """Run every method on the same data, and show what each finds, claims and costs."""
    from atlasd import __version__
    from atlasd.report.html import write_report
    from atlasd.report.tables import row_table
    from atlasd.runtime.stages import NAME, keeping
    from atlasd.studies.config import parse_settings
    from atlasd.studies.record import check_directory
    from atlasd.studies.rivals.compare import find_contest, run_contest

    contest = find_contest(name)
    more = [] if tolerance is None else [f"tolerance={tolerance}"]
    config = parse_settings(contest.config, [*settings, *more])
    directory = out or Path("runs") / f"compare-{name}-seed{seed}"
    check_directory(directory, "compare.json")
    chosen = [m.strip() for m in methods.split(",") if m.strip()]
    words = ["compare", *config.command(name, seed)[1:], *(["--methods", ",".join(chosen)] if chosen else [])]
    with (
        chosen_workers(running.workers, running.dask, running.tls),
        shown_progress(running.quiet, running.verbose) as progress,
        keeping(directory, words, __version__, progress.say),
    ):
        ours = directory / NAME / "ours"
        table = run_contest(contest, config, seed, progress, methods=chosen, keep=ours)
        written = table.write(directory, ours)
        if written is not None:
            discovery, content = written
            write_report(discovery, directory / "report.html", content=content, title=f"compare {name}")
    if running.as_json:
        sys.stdout.write((directory / "compare.json").read_text())
        return
    screen = console()
    if table.methods:
        screen.print(row_table(table.methods))
    if table.published:
        tell("each with the predictors and settings of its own paper:", err=False)
        screen.print(row_table(table.published))
    tell(f"negative control: {contest.control}", err=False)
    if contest.remark:
        tell(contest.remark, err=False)
    if not running.quiet:
        tell(f"kept in {directory}")
