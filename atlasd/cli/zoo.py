"""The zoo of systems with known symmetry."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import Running, Tolerance, chosen_workers, shown_progress, tell
from atlasd.cli.options import running_options


@running_options
def zoo(
    seeds: Annotated[int, typer.Option(help="Number of seeds.")] = 5,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    only: Annotated[str, typer.Option(metavar="NAME,...", help="Systems; all by default.")] = "",
    mode: Annotated[
        str, typer.Option(help="Ask the exact maps (oracle), fitted predictors (fitted), or both.")
    ] = "both",
    noise: Annotated[float, typer.Option(help="Noise in the labels, relative to the spread of each output.")] = 0.0,
    tolerance: Tolerance = None,
    out: Annotated[Path, typer.Option(help="Where to keep the table.")] = Path("runs/zoo"),
    quick: Annotated[bool, typer.Option(help="Six small systems, the exact maps, one seed.")] = False,
    *,
    running: Running,
) -> None:
    """Try every system of known symmetry, and count the groups that are found and the false ones."""
    from atlasd import __version__
    from atlasd.limits import TOLERANCE
    from atlasd.runtime.stages import keeping
    from atlasd.studies.record import check_directory
    from atlasd.studies.zoo.run import QUICK, describe_zoo, plan_zoo, run_zoo, write_zoo, zoo_table

    tolerance = TOLERANCE if tolerance is None else tolerance
    names = [name.strip() for name in only.split(",") if name.strip()] or (list(QUICK) if quick else [])
    tasks = plan_zoo(
        seeds=1 if quick else seeds,
        first=first,
        only=names,
        mode="oracle" if quick else mode,
        noise=noise,
        tolerance=tolerance,
    )
    check_directory(out, "zoo.json")
    words = ["zoo", "--seeds", str(seeds), "--only", only, "--mode", mode, *(["--quick"] if quick else [])]
    words += ["--first", str(first)] if first else []
    words += ["--noise", str(noise), "--tolerance", str(tolerance)]
    count = None if running.dask else running.workers or min(len(tasks), os.cpu_count() or 1)
    placed = chosen_workers(running.workers if running.dask else count, running.dask, running.tls)
    with (
        placed,
        shown_progress(running.quiet, running.verbose) as progress,
        keeping(out, words, __version__, progress.say),
    ):
        done = run_zoo(tasks, progress=progress)
        write_zoo(done, out)
    if running.as_json:
        sys.stdout.write((out / "zoo.json").read_text())
        return
    tell(f"{zoo_table(done.rows)}\n\n{describe_zoo(done)}", err=False)
