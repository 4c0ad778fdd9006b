"""Fetching data that are too large to ship."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import Quiet, Seed, shown_progress, tell


def data(
    name: Annotated[str | None, typer.Argument(help="Name of the data; leave it out for a list.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to  [default: NAME below ATLASD_DATA, or below the user's cache]")
    ] = None,
    only: Annotated[str, typer.Option(metavar="FILE,...", help="Only these files of it.")] = "",
    count: Annotated[int, typer.Option(help="Of `jets`: how many to generate.")] = 10_000,
    workers: Annotated[int | None, typer.Option(help="Of `jets`: processes  [default: one for each core]")] = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Fetch a data set, going on where an earlier try stopped, or list what there is; `jets` are generated."""
    from atlasd.data.fetch import REGISTRY, data_directory, fetch, find_data

    if name is None:
        width = max(len(key) for key in REGISTRY)
        for key, each in REGISTRY.items():
            names = [*(file.name for file in each.files), *(folder for folder, _ in each.folders)]
            there = all((data_directory(key) / name).exists() for name in names)
            state = "; here" if there else ""
            tell(f"{key:<{width}}  {each.description}; {each.licence}, {each.source}{state}", err=False)
        tell(f"{'jets':<{width}}  jets generated with Pythia and FastJet", err=False)
        return
    if name == "jets":
        from atlasd.runtime.executor import usable_cores
        from atlasd.studies.jets.generate import generate_jets

        with shown_progress(quiet) as progress:
            path = generate_jets(
                (out or data_directory("jets")) / f"jets-{count}-seed{seed}.npz",
                count,
                seed=seed,
                workers=workers or usable_cores(),
                progress=progress,
            )
        tell(str(path), err=False)
        return
    wanted = tuple(word.strip() for word in only.split(",") if word.strip())
    with shown_progress(quiet) as progress:
        paths = fetch(find_data(name), out, progress=progress, only=wanted)
    for path in paths:
        tell(str(path), err=False)
