"""Damaged files of the formats that other libraries read for us, and of every loader of a named data set.

A damaged file is read as far as it goes or refused in one line of ours; nothing is left beside it.
"""

import gzip
import random
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray
from damage import damaged
from writers import TableWriter, write_map

from atlasd.data.files import open_data
from atlasd.errors import AtlasdError
from atlasd.runtime.random import stream
from atlasd.studies.climate.files import open_climate
from atlasd.studies.climate.synthetic import synthetic_climate
from atlasd.studies.digits.data import read_idx
from atlasd.studies.jets.data import jet_columns, read_jets

EACH = 60
FIELDS = np.linspace(-1, 1, 24 * 4 * 4, dtype=np.float32).reshape(24, 4, 4)


def fields():
    return xarray.Dataset({"x": (("time", "lat", "lon"), FIELDS), "y": (("time", "lat", "lon"), 2 * FIELDS)})


def write_parquet(path):
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"a": FIELDS.ravel(), "t": FIELDS.ravel()}), path)


def write_jets(path):
    columns = jet_columns(3)
    with TableWriter(path, [(columns, "float32"), (["is_signal_new"], "int64")]) as table:
        momenta = np.tile(np.array([5.0, 1.0, 2.0, 4.0], dtype=np.float32), (24, 3))
        table.append([momenta, np.arange(24).reshape(-1, 1) % 2])


def write_jet_arrays(path):
    momenta = np.tile(np.array([5.0, 1.0, 2.0, 4.0], dtype=np.float32), (24, 3, 1))
    np.savez(path, momenta=momenta, label=np.arange(24) % 2)


def write_climate_map(path):
    maps = synthetic_climate(1, generator=stream(0), shape=(16, 24), experts=1, variables=("TMQ", "PSL"))
    write_map(path, maps)


def write_idx(path):
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4]) + bytes(range(32))))


def read_variables(path):
    for variable in open_data(path).variables.values():
        variable.read(slice(0, 5))


def read_climate(path):
    folder = open_climate(path.parent)
    for n in range(len(folder)):
        folder.fields(n), folder.labels(n)


KINDS = {
    "classic.nc": (lambda path: fields().to_netcdf(path, engine="scipy"), read_variables),
    "modern.nc": (lambda path: fields().to_netcdf(path, engine="h5netcdf"), read_variables),
    "store.zarr": (lambda path: fields().to_zarr(path, consolidated=False), read_variables),
    "table.parquet": (write_parquet, read_variables),
    "jets.h5": (write_jets, lambda path: list(read_jets(path))),
    "jets.npz": (write_jet_arrays, lambda path: list(read_jets(path))),
    "data-1996-01-01-01-1_0.nc": (write_climate_map, read_climate),
    "digits-idx3-ubyte": (write_idx, read_idx),
}


def outcome(read, path):
    """`read` or `refused`; any error that is not ours fails the test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read(path)
        except AtlasdError as error:
            assert str(error).strip() and "\n" not in str(error)
            return "refused"
    return "read"


@pytest.mark.parametrize("name", KINDS)
def test_damaged_files_of_every_loader(name, tmp_path):
    write, read = KINDS[name]
    chance = random.Random(name)
    original = tmp_path / "original" / name
    original.parent.mkdir()
    write(original)
    files = (
        sorted(p.relative_to(original) for p in original.rglob("*") if p.is_file()) if original.is_dir() else [Path()]
    )
    assert outcome(read, original) == "read"
    outcomes = set()
    for number in range(EACH):
        place = tmp_path / str(number)
        shutil.copytree(original.parent, place)
        part = place / name / chance.choice(files)
        part.write_bytes(damaged(part.read_bytes(), chance, ways=4))
        before = sorted(place.rglob("*"))
        outcomes.add(outcome(read, place / name))
        assert sorted(place.rglob("*")) == before
        shutil.rmtree(place)
    assert "refused" in outcomes
