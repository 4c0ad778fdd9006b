"""Files of ClimateNet's form: every arrangement is read the same, and what cannot be read is named in one line."""

import subprocess
import sys

import numpy as np
import pytest
import torch
import xarray
from writers import write_climate, write_map

from atlasd.errors import DataError, InputError
from atlasd.geometry.actions import GridAction
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.climate.files import open_climate
from atlasd.studies.climate.run import DISCOVERY, climate_samples
from atlasd.studies.climate.synthetic import VARIABLES, _classes, _weather, synthetic_climate

SHAPE = (24, 36)
NAMES = ("TMQ", "U850", "PSL")  # files with all sixteen take long to open


@pytest.fixture(scope="module")
def maps():
    return synthetic_climate(3, generator=stream(0), shape=SHAPE, experts=2, variables=NAMES)


@pytest.fixture
def folder(tmp_path, maps):
    """Three times; the first has two experts."""
    for n in range(3):
        for e in range(2 if n == 0 else 1):
            write_map(tmp_path / f"data-1996-01-0{n + 1}-01-1_{e}.nc", maps, number=n, expert=e)
    return tmp_path


def changed(path, change):
    with xarray.open_dataset(path, engine="h5netcdf", decode_times=False) as dataset:
        other = change(dataset.load())
    path.unlink()
    other.to_netcdf(path, engine="h5netcdf")


@pytest.mark.parametrize("latitudes", ["ascending", "descending"])
@pytest.mark.parametrize("longitudes", ["0..360", "-180..180"])
def test_every_arrangement_reads_the_same(tmp_path, maps, latitudes, longitudes):
    write_map(tmp_path / "a_0.nc", maps, latitudes=latitudes, longitudes=longitudes)
    changed(tmp_path / "a_0.nc", lambda d: d.isel(lat=np.random.default_rng(0).permutation(24)).rename(lon="longitude"))
    found = open_climate(tmp_path)
    assert found.shape == SHAPE and found.variables == NAMES
    assert torch.equal(found.fields(0), maps.x[0]) and torch.equal(found.labels(0), maps.labels[0, :1])
    assert torch.equal(found.fields(0, ["PSL", "TMQ"]), maps.x[0, [2, 0]])


def test_experts_of_one_time_are_one_map(folder, maps):
    found = open_climate(folder)
    assert len(found) == 3 and [len(t.sources) for t in found.times] == [2, 1, 1]
    assert torch.equal(found.labels(0), maps.labels[0]) and found.labels(1).shape == (1, *SHAPE)


def test_train_and_test(tmp_path):
    write_climate(tmp_path, train=2, test=1, shape=SHAPE, experts=3)
    assert open_climate(tmp_path).variables == VARIABLES
    assert len(open_climate(tmp_path)) == 2 and len(open_climate(tmp_path, split="test")) == 1
    assert [len(t.sources) for t in open_climate(tmp_path / "train").times] == [3, 1]
    with pytest.raises(DataError, match="must hold the folder 'test', got none; leave `split` out"):
        open_climate(tmp_path / "train", split="test")


def test_samples_are_standardised_over_all_maps(tmp_path, folder):
    four = synthetic_climate(2, generator=stream(1), shape=SHAPE, experts=2, variables=DISCOVERY)
    for n in range(2):
        for e in range(n + 1):
            write_map(tmp_path / "four" / f"data-1996-01-0{n + 1}-01-1_{e}.nc", four, number=n, expert=e)
    x, y = climate_samples(open_climate(tmp_path / "four"), tmp_path, Silent())
    assert len(x) == len(y) == 3  # one for every expert
    spread, mean = torch.std_mean(four.x.double(), dim=(0, 2, 3), keepdim=True, correction=0)
    torch.testing.assert_close(x[torch.arange(3)], ((four.x - mean) / spread)[[0, 1, 1]].float(), rtol=1e-4, atol=1e-4)
    assert torch.equal(y[torch.arange(3)].long(), torch.stack([four.labels[0, 0], *four.labels[1]]).long())


def test_zarr(tmp_path, maps):
    x = {name: (("time", "lat", "lon"), maps.x[:, c].numpy()) for c, name in enumerate(NAMES)}
    x["LABELS"] = (("time", "expert", "lat", "lon"), maps.labels.numpy())
    coordinates = {"lat": np.linspace(90, -90, 24), "lon": np.arange(36) * 10.0}
    xarray.Dataset(x, coords=coordinates).to_zarr(tmp_path / "year.zarr", consolidated=False, zarr_format=2)
    for path in (tmp_path, tmp_path / "year.zarr"):
        found = open_climate(path)
        assert len(found) == 3
        assert torch.equal(found.fields(2), maps.x[2]) and torch.equal(found.labels(2), maps.labels[2])


def test_missing_values(folder, maps):
    def hole(dataset):
        dataset["TMQ"][0, 3, 4:9] = np.nan
        return dataset

    changed(folder / "data-1996-01-02-01-1_0.nc", hole)
    found = open_climate(folder)
    with pytest.raises(DataError, match=r"02-01-1_0.nc` must have a value of TMQ everywhere, got none in 5 of 864 pix"):
        found.fields(1)
    assert torch.equal(found.fields(0), maps.x[0])
    filled = open_climate(folder, missing="fill").fields(1)
    assert bool(filled.isfinite().all()) and int((filled != maps.x[1]).sum()) == 5


def test_without_labels(folder):
    changed(folder / "data-1996-01-02-01-1_0.nc", lambda d: d.drop_vars("LABELS"))
    with pytest.raises(DataError, match=r"02-01-1_0.nc` must hold the variable LABELS, got TMQ, .*labels=False"):
        open_climate(folder)
    found = open_climate(folder, labels=False)
    assert found.fields(1).shape == (3, *SHAPE)
    with pytest.raises(InputError, match="must be opened with labels=True"):
        found.labels(0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.isel(lat=slice(0, 20)), r"must have the grid \(24, 36\) of .*, got \(20, 36\)"),
        (lambda d: d.rename(lat="y", lon="x"), "must have axes lat and lon, got"),
        (lambda d: d.assign_coords(lat=d.lat.values * 3), "must have latitudes from -90 to 90, got -270 to 270"),
        (lambda d: d.assign_coords(lon=d.lon.values + 360), "must have longitudes in -180..180 or 0..360, got 360"),
        (lambda d: d.assign_coords(lat=np.zeros(24)), "must have latitudes from -90 to 90, each once, got some"),
        (lambda d: d[["LABELS"]], "must hold some of TMQ, .*, got none in every file"),
    ],
)
def test_other_grids_are_refused(folder, change, message):
    changed(folder / "data-1996-01-02-01-1_0.nc", change)
    with pytest.raises(DataError, match=message):
        open_climate(folder)


def test_bad_labels_and_files(folder, tmp_path_factory):
    changed(folder / "data-1996-01-02-01-1_0.nc", lambda d: d.assign(LABELS=d.LABELS + 2))
    with pytest.raises(DataError, match=r"must have LABELS from 0 to 2 everywhere, got [34] in \d+ pixels"):
        open_climate(folder).labels(1)
    with pytest.raises(DataError, match="must hold the variable UBOT9, got TMQ"):
        open_climate(folder).fields(0, ["UBOT9"])
    whole = (folder / "data-1996-01-03-01-1_0.nc").read_bytes()
    (folder / "data-1996-01-03-01-1_0.nc").write_bytes(whole[:500])
    with pytest.raises(DataError, match="must be a complete netCDF file or zarr store, got one that cannot be read"):
        open_climate(folder)
    with pytest.raises(DataError, match="must hold netCDF files"):
        open_climate(tmp_path_factory.mktemp("empty"))
    with pytest.raises(DataError, match="got nothing there; `atlasd data climate` fetches"):
        open_climate(folder / "nowhere")


_STREAM = """
import resource, sys, tempfile, torch
torch.set_num_threads(1)
from pathlib import Path
from atlasd.runtime.progress import Silent
from atlasd.studies.climate.files import open_climate
from atlasd.studies.climate.run import climate_samples
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
found = open_climate(sys.argv[1])
found.fields(0)
before = peak()
with tempfile.TemporaryDirectory() as scratch:
    climate_samples(found, Path(scratch), Silent())
size = sum(f.stat().st_size for f in Path(sys.argv[1]).glob("*.nc")) / 2**20
print(size, peak() - before)
"""


@pytest.mark.slow
def test_a_folder_larger_than_memory_streams(tmp_path):
    """As 20 GB in less than 2: memory grows by less than a tenth of the folder."""
    maps = synthetic_climate(1, generator=stream(0), shape=(256, 384))
    first = write_map(tmp_path / "a0_0.nc", maps)
    for n in range(1, 9):
        (tmp_path / f"a{n}_0.nc").write_bytes(first.read_bytes())
    done = subprocess.run([sys.executable, "-c", _STREAM, tmp_path], capture_output=True, text=True, check=True)
    size, grown = map(float, done.stdout.split())
    assert size > 50 and grown < size / 10


@pytest.mark.parametrize("symmetry", ["affine", "rotation", "none"])
def test_the_labels_have_the_symmetry_that_they_should(symmetry):
    """Maps and labels moved by a matrix: the rule gives the moved labels, or it does not."""
    generator = stream(0)
    motions = {"turn": [[0.8, -0.6], [0.6, 0.8]], "grow": [[1.4, 0.0], [0.0, 1.4]], "shear": [[1.0, 0.7], [0.0, 1.0]]}
    missed = dict.fromkeys(motions, 0.0)
    for _ in range(8):
        field, drawn = _weather((96, 96), generator)
        here = _classes(symmetry, field, drawn, generator)
        for name, g in motions.items():
            g = torch.tensor(g, dtype=torch.float64)
            moved = _classes(symmetry, GridAction().on_input(g, field), drawn, generator)
            wanted = GridAction().on_output(g, (here[None] == 1).float())[0] > 0.5
            middle = (slice(28, 68), slice(28, 68))
            missed[name] += float(((moved == 1) != wanted)[middle].float().mean()) / 8
    held = {"affine": {"turn", "grow", "shear"}, "rotation": {"turn"}, "none": set()}[symmetry]
    for name, share in missed.items():
        assert share < 0.05 if name in held else share > 0.08, missed


def test_experts_overlook_but_do_not_invent():
    maps = synthetic_climate(4, generator=stream(0), experts=3, overlooked=0.1, variables=("TMQ",))
    clean = synthetic_climate(4, generator=stream(0), experts=3, overlooked=0.0, variables=("TMQ",))
    assert torch.equal(maps.x, clean.x)
    kept = maps.labels > 0
    assert torch.equal(maps.labels[kept], clean.labels[kept]) and not torch.equal(maps.labels[:, 0], maps.labels[:, 1])
    assert 0.05 < 1 - float(kept.sum() / (clean.labels > 0).sum()) < 0.2
    events = synthetic_climate(4, generator=stream(0), symmetry="events", variables=("TMQ", "PSL"))
    storm, calm = events.labels[:, 0] == 1, events.labels[:, 0] == 0
    assert events.x[:, 1][storm].mean() < events.x[:, 1][calm].mean() - 1000  # low pressure
    assert events.x[:, 0][events.labels[:, 0] == 2].mean() > events.x[:, 0][calm].mean() + 7  # moist
    with pytest.raises(InputError, match="`variables` must be among TMQ"):
        synthetic_climate(1, generator=stream(0), variables=("SNOW",))
    with pytest.raises(InputError, match="must be positive"):
        synthetic_climate(0, generator=stream(0))


def test_experts_at_discord_agree_less_about_events():
    def agreement(discord):
        maps = synthetic_climate(
            6, generator=stream(0), symmetry="events", experts=2, discord=discord, variables=("TMQ",)
        )
        a, b = maps.labels[:, 0] > 0, maps.labels[:, 1] > 0
        return maps.x[0], float((a & b).sum() / (a | b).sum())

    (first, near), (same, apart) = agreement(0.0), agreement(1.0)
    assert torch.equal(first, same)  # the weather is what it was
    assert near > 0.75 and 0.15 < apart < 0.55
    with pytest.raises(InputError, match="`discord` must lie between 0 and 2, got 3"):
        synthetic_climate(1, generator=stream(0), discord=3)
