"""Synthetic years written as files of exactly ClimateNet's form."""

from __future__ import annotations

import importlib
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atlasd.errors import DataError
from atlasd.runtime.files import write_atomically
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream
from atlasd.studies.climate.synthetic import ClimateMaps, Rule, synthetic_climate


def write_climate(
    folder: str | Path,
    *,
    train: int = 40,
    test: int = 8,
    seed: int = 0,
    symmetry: Rule = "events",
    shape: tuple[int, int] = (768, 1152),
    experts: int = 2,
    latitudes: Literal["ascending", "descending"] = "ascending",
    longitudes: Literal["0..360", "-180..180"] = "0..360",
    progress: Progress | None = None,
) -> Path:
    """Writes folders `train` and `test` of netCDF files, one for every time and expert, map by map.

    Arguments:
        train: Times to train on, from 1996.
        test: Times to test on, from 2011.
        symmetry: The rule behind the labels, as in `synthetic_climate`.
        experts: Up to how many labels a time has: one and all of them, alternately.
        latitudes: The direction in which they are written.
        longitudes: The range in which they are written.
    """
    folder, shown = Path(folder), progress or Silent()
    for split, count, first in (("train", train, date(1996, 1, 1)), ("test", test, date(2011, 1, 1))):
        for n in shown.track(range(count), f"write {split}"):
            maps = synthetic_climate(
                1,
                generator=stream(seed, "climate", split, n),
                symmetry=symmetry,
                shape=shape,
                experts=1 if n % 2 else experts,
            )
            day = first + timedelta(days=3 * n)
            for e in range(maps.labels.shape[1]):
                write_map(
                    folder / split / f"data-{day.isoformat()}-01-1_{e}.nc",
                    maps, expert=e, latitudes=latitudes, longitudes=longitudes,
                )  # fmt: skip
    return folder


def write_map(
    path: Path,
    maps: ClimateMaps,
    *,
    number: int = 0,
    expert: int | None = 0,
    latitudes: Literal["ascending", "descending"] = "ascending",
    longitudes: Literal["0..360", "-180..180"] = "0..360",
) -> Path:
    """One map with the labels of one expert as a netCDF file.

    Arguments:
        expert: Whose labels; `None` writes none.
        latitudes: The direction in which they are written.
        longitudes: The range in which they are written.
    """
    try:
        xarray = importlib.import_module("xarray")
        importlib.import_module("h5netcdf")
    except ImportError as error:
        raise DataError(f"`{path}` needs the package {error.name!r}; pip install 'atlasd[climate]'.") from error
    height, width = maps.x.shape[-2:]
    variables: dict[str, Any] = {
        name: (("time", "lat", "lon"), maps.x[number, c][None].numpy()) for c, name in enumerate(maps.variables)
    }
    if expert is not None:
        variables["LABELS"] = (("lat", "lon"), maps.labels[number, expert].numpy().astype(np.int64))
    coordinates = {"lat": np.linspace(90, -90, height), "lon": np.arange(width) * 360 / width, "time": np.zeros(1)}
    dataset = xarray.Dataset(variables, coords=coordinates).sortby("lat", ascending=latitudes == "ascending")
    if longitudes == "-180..180":
        dataset = dataset.assign_coords(lon=(dataset.lon + 180) % 360 - 180).sortby("lon")
    return write_atomically(path, lambda file: dataset.to_netcdf(file, engine="h5netcdf"))
