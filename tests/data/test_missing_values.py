"""Masks, and numbers that mark missing values: honoured or refused, never taken for data."""

import h5py
import numpy as np
import pytest
import zarr

from atlasd.data.files import Variable, open_data
from atlasd.data.stored import stored
from atlasd.errors import DataError, InputError


def test_masks_are_honoured(tmp_path):
    values = np.ma.masked_greater(np.arange(4.0), 2)
    assert np.isnan(Variable("x", (4,), np.dtype("f8"), lambda rows, axis: values[rows]).read(slice(0, 4))).sum() == 1
    whole = np.ma.masked_greater(np.arange(4), 2)
    with pytest.raises(InputError, match="no masked entries, got 1 of 4"):
        Variable("x", (4,), np.dtype("i8"), lambda rows, axis: whole[rows]).read(slice(0, 4))


@pytest.mark.parametrize("key", ["_FillValue", "missing_value"])
def test_numbers_that_mark_missing_values_are_missing(tmp_path, key):
    x = np.random.default_rng(0).standard_normal((30, 2))
    x[7, 1] = 1e6
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file.create_dataset("x", data=x).attrs[key] = 1e6
        file.create_dataset("n", data=np.arange(30)).attrs[key] = [3, 4]
        file.create_dataset("t", data=x).attrs[key] = "none"
    found = open_data(tmp_path / "d.h5").variables
    assert np.argwhere(np.isnan(found["x"].read(slice(0, 30)))).tolist() == [[7, 1]]
    with pytest.raises(InputError, match="`n` must have no masked entries, got 2 of 30"):
        found["n"].read(slice(0, 30))
    assert np.isfinite(found["t"].read(slice(0, 30))).all()
    with h5py.File(tmp_path / "d.h5") as file, pytest.raises(DataError, match=r"missing values in 1 of 30 .*sample 7"):
        stored(file["x"]).read(slice(0, 30))
    array = zarr.create_array(str(tmp_path / "d.zarr"), data=x, attributes={key: 1e6})
    with pytest.raises(DataError, match=r"missing values in 1 of 30 .*sample 7"):
        stored(array).read(slice(0, 30))
