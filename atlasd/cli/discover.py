"""From a file to an answer."""

from __future__ import annotations

__all__ = ["discover"]

from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import (
    AsJson,
    Dask,
    Quiet,
    Seed,
    Tls,
    Tolerance,
    Verbose,
    WorkerCount,
    carry_out,
)

_FILE = "npz, npy, HDF5, netCDF, zarr, CSV or parquet."


def discover(
    file: Annotated[Path, typer.Argument(metavar="FILE", readable=False, help=f"The data: {_FILE}")],
    second: Annotated[
        Path | None,
        typer.Argument(metavar="TARGETS", readable=False, help="The targets, where they are in a file of their own."),
    ] = None,
    input: Annotated[str, typer.Option(metavar="NAME,...", help="Variables of the input.")] = "",
    target: Annotated[str, typer.Option(metavar="NAME,...", help="Variables of the target.")] = "",
    tokens: Annotated[
        str, typer.Option(metavar="COLUMNS", help="Sets of vectors in a table: 'E1,px1,py1,pz1;E2,px2,py2,pz2'.")
    ] = "",
    charts: Annotated[
        str, typer.Option(metavar="WHERE", help="auto, grid, whole, sphere:12, or centres in pixels '64,19;86,19'.")
    ] = "auto",
    in_radius: Annotated[int | None, typer.Option(help="Half the width of input patches, in pixels.")] = None,
    out_radius: Annotated[int | None, typer.Option(help="Half the width of output patches, in pixels.")] = None,
    vectors: Annotated[
        str, typer.Option(metavar="PAIRS", help="Channels that are components of a vector: auto, none, find or 'u,v'.")
    ] = "auto",
    targets: Annotated[
        str,
        typer.Option(metavar="HOW", help="Targets move with the inputs, as vectors do, or are fixed; auto tries both."),
    ] = "auto",
    ahead: Annotated[int, typer.Option(help="Take the target this many samples after the input.")] = 0,
    task: Annotated[str, typer.Option(metavar="KIND", help="The target holds values or classes; or auto.")] = "auto",
    nan: Annotated[
        str, typer.Option(metavar="WHAT", help="refuse missing values, or mask them; auto masks rows of tables.")
    ] = "auto",
    duplicates: Annotated[str, typer.Option(metavar="WHAT", help="refuse many copies, or drop them.")] = "refuse",
    samples: Annotated[int, typer.Option(help="Most samples used; 0 for 1000 fields or 30000 vectors.")] = 0,
    budget: Annotated[
        str,
        typer.Option(metavar="TIME", help="Begin nothing new after this time, such as 90s or 2min."),
    ] = "",
    flow: Annotated[
        bool, typer.Option("--flow", help="The data are states; the target is their velocity, or else the next row.")
    ] = False,
    translations: Annotated[
        bool,
        typer.Option("--translations", help="Look at translations, too; on charts: is the law the same nearby?"),
    ] = False,
    tolerance: Tolerance = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Run directory  [default: runs/FILE-seedS]")] = None,
    workers: WorkerCount = None,
    dask: Dask = "",
    tls: Tls = "",
    as_json: AsJson = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Find the symmetry of the data in a file, and be told how sure that is.

    Fields on a grid are looked at chart by chart; tables and arrays of vectors as a whole. What is not given is
    guessed, and said before the work starts.

    \b
    Examples:
      atlasd discover run.npz
      atlasd discover x.npy y.npy --charts '64,19;86,19' --in-radius 14
      atlasd discover wind.nc --input u10,v10 --target pressure --nan mask
      atlasd discover events.csv --tokens 'E1,px1,py1,pz1;E2,px2,py2,pz2' --target M
      atlasd discover states.csv --flow
    """
    from atlasd.studies import OWN
    from atlasd.studies.config import configure

    chosen = {} if tolerance is None else {"tolerance": tolerance}
    config = configure(
        OWN.config(),
        {
            "file": str(file), "second": str(second or ""), "input": input, "target": target, "tokens": tokens,
            "charts": charts, "in_radius": in_radius, "out_radius": out_radius, "vectors": vectors,
            "targets": targets, "ahead": ahead, "task": task, "nan": nan, "duplicates": duplicates,
            "samples": samples, "flow": flow, "translations": translations, "budget": budget, **chosen,
        },
    )  # fmt: skip
    from atlasd.studies.record import plan_config

    plan = plan_config(OWN, config, seed=seed, out=out)
    carry_out(plan, workers=workers, dask=dask, tls=tls, as_json=as_json, quiet=quiet, verbose=verbose)
