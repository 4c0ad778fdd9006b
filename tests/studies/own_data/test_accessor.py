"""`ds.atlasd.discover` on xarray datasets."""

import numpy as np
import pytest

import atlasd as ad
from atlasd.errors import InputError

xarray = pytest.importorskip("xarray")


@pytest.fixture
def dataset(waves):
    x = waves(60, (24, 24), length=8.0)[:, 0].numpy()
    y = np.roll(x, 1, -1) + np.roll(x, -1, -1) + np.roll(x, 1, -2) + np.roll(x, -1, -2)
    dims = ("time", "lat", "lon")
    return xarray.Dataset({"warmth": (dims, x), "later": (dims, y)}, {"lat": np.linspace(10, -10, 24)})


def test_the_accessor_finds_a_symmetry(dataset):
    assert ad.Atlas is not None  # first use: the accessor is there even where xarray came after atlasd
    found = dataset.atlasd.discover("warmth", target="later", charts="11,11", progress=False)
    assert found.algebra.distance(ad.known.so(2)) < 0.1


def test_unknown_names_are_refused(dataset):
    assert ad.Atlas is not None
    with pytest.raises(InputError, match="no variable 'cold'"):
        dataset.atlasd.discover("cold", target="later", progress=False)
    with pytest.raises(InputError, match="chart"):
        dataset.atlasd.discover("warmth", target="later", chart="grid", progress=False)
