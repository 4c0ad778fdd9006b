"""Arrays in files are read as those in memory, by whoever has the reference."""

import pickle
import shutil
from itertools import pairwise
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from atlasd.data.samples import Samples
from atlasd.data.stored import Stored, spill, stored
from atlasd.errors import DataError, InputError
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.packing import Shared, _opened
from atlasd.runtime.random import stream

ATLAS = Atlas.at([(9, 9), (20, 25), (14.5, 12.25)], in_radius=6, out_radius=3)


def kept(kind, path, array):
    """The array in a file of that kind, as a user would hand it over."""
    if kind == "npy":
        np.save(path / "a.npy", array)
        return np.load(path / "a.npy", mmap_mode="r")
    if kind == "hdf5":
        file = h5py.File(path / "a.h5", "w")
        return file.create_dataset("inner/a", data=array, chunks=(4, *array.shape[1:]))
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(str(path / "a.zarr"), mode="w")
    made = group.create_array("inner/a", shape=array.shape, chunks=(4, *array.shape[1:]), dtype=array.dtype)
    made[:] = array
    return made


@pytest.fixture(params=["npy", "hdf5", "zarr"])
def kind(request):
    return request.param


def test_patches_are_the_same(kind, tmp_path):
    array = torch.randn(30, 2, 40, 40, generator=stream(0, "stored")).numpy()
    file = kept(kind, tmp_path, array)
    inside, outside = Samples.check(array, array, ATLAS), Samples.check(file, file, ATLAS)
    assert isinstance(outside.x, Stored) and outside.outputs == 2 and len(outside) == 30
    if kind == "hdf5":
        file.file.close()
    outside = pickle.loads(pickle.dumps(outside))
    assert len(pickle.dumps(outside.x)) < 1000
    index = torch.tensor([7, 3, 29, 3])
    torch.testing.assert_close(outside.inputs(index), inside.inputs(index), rtol=0, atol=1e-5)
    torch.testing.assert_close(outside.targets(index), inside.targets(index), rtol=0, atol=1e-5)
    part = outside.part(range(1, 2))  # a chart on whole pixels: the same to the last bit
    assert torch.equal(part.inputs(index), inside.part(range(1, 2)).inputs(index))
    assert torch.equal(outside.x[5], torch.from_numpy(array[5]))
    assert outside.loaded(10)[0].shape == (10, 2, 40, 40)


def test_order_of_reading(tmp_path):
    array = np.zeros((64, 1, 8, 8), np.float32)
    samples = Samples.check(kept("hdf5", tmp_path, array))
    object.__setattr__(samples.x, "rows", 8)  # shards of eight, whatever fits into 32 MB
    index = torch.randperm(64, generator=stream(0, "order"))[:40]
    assert samples.in_order(index).tolist() == sorted(index.tolist())
    order = samples.shuffled(index, stream(1, "order"))
    assert sorted(order.tolist()) == list(range(40))
    shards = (index[order] // 8).tolist()
    assert sum(a != b for a, b in pairwise(shards)) == len(set(shards)) - 1
    assert order.tolist() != samples.shuffled(index, stream(2, "order")).tolist()


def test_what_is_not_finite_is_found_when_it_is_read(tmp_path):
    array = np.zeros((24, 1, 8, 8), np.float32)
    array[9, 0, 2, 2] = np.nan
    samples = Samples.check(kept("hdf5", tmp_path, array))
    samples.inputs(torch.arange(8))
    with pytest.raises(DataError, match="first: sample 9"):
        samples.inputs(torch.arange(24))
    with pytest.raises(InputError, match="floating-point"):
        Samples.check(kept("npy", tmp_path, np.zeros((24, 3), np.int32)))


@pytest.mark.parametrize("numbers", ["f4", "f8"])
def test_a_file_that_was_written_again_is_read_again(kind, tmp_path, numbers):
    """A second discovery in the same process, or by the same worker, must not see what the first one read."""
    for value in (1.0, 2.0):
        file = kept(kind, tmp_path, np.full((24, 1, 8, 8), value, numbers if value == 2.0 else "f4"))
        reference = stored(file)
        if kind == "hdf5":
            file.file.close()
        assert (reference[torch.arange(3)] == value).all()
        at_a_worker = pickle.loads(pickle.dumps(Shared(reference))).value
        assert (at_a_worker[torch.arange(3)] == value).all()
        del file, reference, at_a_worker
        if kind == "hdf5":
            _opened.clear()  # HDF5 lets no file be written anew that is open; a worker would have its own
        else:
            shutil.rmtree(tmp_path / "a.zarr", ignore_errors=True)


def test_no_file_stays_open_after_its_reference(tmp_path):
    file = kept("hdf5", tmp_path, np.zeros((24, 1, 8, 8), "f4"))
    reference = stored(file)
    file.file.close()
    reference[torch.arange(3)]
    with pytest.raises(OSError, match="already open"):
        h5py.File(tmp_path / "a.h5", "w")
    del reference
    h5py.File(tmp_path / "a.h5", "w").close()


def test_files_that_are_gone(tmp_path):
    reference = stored(kept("npy", tmp_path, np.zeros((24, 3), np.float64)))
    (tmp_path / "a.npy").unlink()
    with pytest.raises(OSError, match="could not be read"):
        reference[torch.arange(3)]
    assert stored([1.0]) is None and stored(np.zeros(3)) is None


def test_spilled_tensors_come_back(tmp_path):
    x = torch.randn(5, 3, generator=stream(0, "spill"))
    assert torch.equal(spill(x, tmp_path / "x.bin")[torch.tensor([4, 0])], x[[4, 0]])


def resident(path):
    """Kilobytes of a mapped file that this process holds."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    starts = [i for i, line in enumerate(lines) if line.endswith(str(path))]
    return sum(int(next(row for row in lines[i:] if row.startswith("Rss:")).split()[1]) for i in starts)


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is in memory")
def test_what_was_read_of_a_large_file_is_let_go_and_read_again(tmp_path, monkeypatch):
    path = tmp_path / "large.bin"
    np.repeat(np.arange(64, dtype="<f4"), 2**14).tofile(path)
    held = Stored("memory", str(path), "", torch.Size((64, 2**14)), "<f4")
    kept = []
    for limit in (0, 2**40):
        monkeypatch.setattr("atlasd.data.stored._LARGE", limit)
        for part in torch.arange(64).split(8):
            assert torch.equal(held[part][:, -1], part.float())
        kept.append(resident(path))
    assert kept[0] == 0 and kept[1] >= 4096
