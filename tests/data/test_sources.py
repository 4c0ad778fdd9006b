"""Data in whatever they come: the same samples arrive."""

import numpy as np
import pytest
import torch
import xarray
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import atlasd as ad
from atlasd.data.samples import Samples
from atlasd.data.sources import arrange, gather
from atlasd.errors import InputError

X = torch.randn(30, 1, 12, 14, generator=torch.Generator().manual_seed(0))
Y = X**2


class Pairs(Dataset):
    def __init__(self, x=X, y=Y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitem__(self, k):
        return self.x[k], self.y[k]


class Stream(IterableDataset):
    def __iter__(self):
        return zip(X, Y, strict=True)


def named(dims, array):
    return xarray.DataArray(array, dims=dims)


LAST = X[:, 0].permute(1, 2, 0).numpy()
SOURCES = {
    "tensors": (X, Y),
    "arrays": (X.numpy(), Y.numpy()),
    "tensor dataset": (TensorDataset(X, Y), None),
    "dataset": (Pairs(), None),
    "iterable dataset": (Stream(), None),
    "loader": (DataLoader(Pairs(), batch_size=7), None),
    "xarray": (named(("time", "lat", "lon"), X[:, 0].numpy()), named(("time", "lat", "lon"), Y[:, 0].numpy())),
    "samples last": (named(("y", "x", "sample"), LAST), named(("y", "x", "sample"), LAST**2)),
    "columns first": (named(("time", "lon", "lat"), X[:, 0].numpy().swapaxes(1, 2)), Y),
    "two sample axes": (named(("member", "time", "channel", "lat", "lon"), X.reshape(5, 6, 1, 12, 14).numpy()), Y),
    "unknown names": (named(("a", "b", "c", "d"), X.numpy()), named(("a", "b", "c", "d"), Y.numpy())),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_samples_arrive(name):
    samples = Samples.check(*SOURCES[name])
    assert torch.equal(samples.x, X) and torch.allclose(samples.y, Y) and samples.is_field


def test_tensors_are_not_copied():
    assert gather(X, Y)[0] is X
    assert gather(TensorDataset(X, Y))[0] is X


def test_classes_of_xarray_have_no_channels():
    classes = named(("time", "lat", "lon"), (X[:, 0] > 0).numpy())
    samples = Samples.check(named(("time", "lat", "lon"), X[:, 0].numpy()), classes)
    assert samples.classes == 2 and samples.y.shape == X.shape


def test_a_function_answers_for_the_targets_of_a_dataset():
    points = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    dataset = TensorDataset(points, points[:, 0])
    found = ad.discover(dataset, function=lambda p: p.norm(dim=-1), progress=False)
    assert found.group.name == "O(2)"
    with pytest.raises(InputError, match="and not both"):
        ad.discover(points, points[:, 0], function=lambda p: p.norm(dim=-1), progress=False)


BAD = {
    "targets twice": ((TensorDataset(X, Y), Y), "`y` must be left out where `x` is a TensorDataset"),
    "three entries": ((TensorDataset(X, Y, Y), None), "must give pairs of input and target, got 3 entries"),
    "words": ((Pairs(X, ["a"] * 30), None), "must give tensors, got Tensor, tuple"),
    "shapes that differ": ((Pairs([torch.zeros(2), torch.zeros(3)], [0, 1]), None), "samples that can be stacked"),
    "batches that differ": ((DataLoader(Pairs([torch.zeros(2), torch.zeros(3)], [0, 1])), None), "inputs of one shape"),
    "no samples": ((Pairs([], []), None), "must hold samples, got an empty dataset"),
    "inputs alone": ((TensorDataset(X), None), "`y` or `function` must be given"),
    "xarray dataset": ((xarray.Dataset({"a": ("n", [1.0])}), Y), "must be a DataArray, got an xarray Dataset"),
    "two row axes": ((named(("time", "lat", "y", "lon"), X.numpy()), Y), "must name rows once"),
    "no samples axis": ((named(("lat", "lon"), X[0, 0].numpy()), Y), "one dimension must count samples"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_used_is_said(name):
    source, message = BAD[name]
    with pytest.raises(InputError, match=message):
        ad.discover(*source, progress=False)


def test_names_of_axes():
    assert arrange(("Time", "Latitude", "Longitude"), (9, 4, 5)).space == (1, 2)
    assert arrange(("time", "level", "z", "y", "x"), (9, 2, 3, 4, 5)).channels == (1,)
    assert arrange(("event", "particle", "entry_"), (9, 2, 4)).channels == (1, 2)
    assert arrange(("a", "b"), (9, 2)) is None
    assert arrange(("lat", "run2", "lon"), (4, 9, 5))(np.zeros((4, 9, 5))).shape == (9, 1, 4, 5)
