"""Data at the door: what is taken, and one clear line for what is not."""

import warnings

import numpy as np
import pytest
import torch

import atlasd as ad
from atlasd.data.samples import Samples, split_indices
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.random import stream

FIELD = torch.zeros(30, 1, 20, 20)
VECTOR = torch.zeros(30, 3)


def spoiled(value, bad, where):
    value = value.clone()
    value[where] = bad
    return value


ATLAS = Atlas.at([(10, 10)], 5, 3)
BAD = {
    "chart leaves the field": ((FIELD, FIELD, Atlas.at([(10, 18)], 5, 3)), "must lie inside the field of shape"),
    "chart of another dimension": ((FIELD, FIELD, Atlas.at([(10, 10, 10)], 5, 3)), "as many coordinates as the field"),
    "charts on vectors": ((VECTOR, VECTOR, ATLAS), "`atlas` must be left out for vectors"),
    "a label for each image": ((FIELD[:, 0], VECTOR[:, 0]), "got one for each image; give a value for every pixel"),
    "too few": ((FIELD[:5], FIELD[:5], ATLAS), r"`x` must hold at least \d+ samples, got 5; give more data"),
    "none": ((FIELD[:0], FIELD[:0], ATLAS), r"`x` must hold at least \d+ samples, got 0"),
    "nan in x": ((spoiled(FIELD, torch.nan, 7), FIELD, ATLAS),
                 r"`x` must be finite, got NaN or infinity in 1 of 30 samples \(first: sample 7\)"),
    "infinity in x": ((spoiled(VECTOR, torch.inf, 3), VECTOR), "`x` must be finite.*first: sample 3"),
    "nan in y": ((FIELD, spoiled(FIELD, torch.nan, [4, 5]), ATLAS), "`y` must be finite.*in 2 of 30 samples"),
    "infinity in scalar y": ((VECTOR, spoiled(VECTOR[:, 0], -torch.inf, 9)), "`y` must be finite.*sample 9"),
    "different lengths": ((FIELD, FIELD[:-1], ATLAS), r"`y` must have as many samples as `x` \(30\), got 29"),
    "integer targets that are no classes": ((FIELD, FIELD.int() - 5, ATLAS), "must hold classes.*use floats"),
    "large integer targets": ((VECTOR, torch.arange(30) * 100), "`y` of integers must hold classes"),
    "complex x": ((VECTOR.to(torch.complex64), VECTOR), "`x` must hold real numbers, got torch.complex64; give real"),
    "one label for an image": ((FIELD, FIELD[:, 0, 0, 0]), "give a value for every pixel"),
    "complex y": ((VECTOR, VECTOR.to(torch.complex64)), "`y` must hold real numbers"),
    "one axis": ((torch.zeros(30), VECTOR), "`x` must have shape"),
    "six axes": ((torch.zeros(30, 1, 2, 2, 2, 2), VECTOR), "`x` must have shape"),
    "no components": ((torch.zeros(30, 0), VECTOR), "`x` must not be empty"),
    "a number for y": ((VECTOR, 3.0), "`y` must have as many samples"),
    "another grid": ((FIELD, FIELD[..., 1:], ATLAS), r"`y` must be a field on the grid of `x`.*got \(30, 1, 20, 19\)"),
    "scalar for a field": ((FIELD, VECTOR[:, 0], ATLAS), "`y` must be a field on the grid of `x`"),
    "field for a vector": ((VECTOR, torch.zeros(30, 2, 2)), r"`y` must have shape \(N,\) or \(N, outputs\)"),
    "classes for vectors with two axes": ((VECTOR, torch.zeros(30, 2).long()), "one class per sample"),
    "classes on another grid": ((FIELD, torch.zeros(30, 5, 5).long(), ATLAS), "one class per pixel"),
    "zeros": ((torch.zeros(30, 3), torch.rand(30)), "`x` must vary, got zeros only"),
    "words": ((["a", "b"], VECTOR), "`x` must be an array of numbers, got list"),
    "ragged": (([[1.0], [1.0, 2.0]], VECTOR), "`x` must be an array of numbers"),
    "nothing": ((None, VECTOR), "`x` must be an array of numbers, got NoneType"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("door", ["check", "fit_predictor", "discover"])
def test_bad_input_is_one_clear_line(name, door):
    (x, y, *atlas), message = BAD[name]
    options = {"atlas": atlas[0] if atlas else None}
    with pytest.raises(InputError, match=message) as caught:
        if door == "check":
            Samples.check(x, y, **options)
        elif door == "fit_predictor":
            ad.fit_predictor(x, y, **options)
        else:
            ad.discover(x, y, progress=False, **options)
    assert "\n" not in str(caught.value)


def test_vectors_and_sets():
    x = torch.randn(30, 5, 3)
    samples = Samples.check(x, x[:, 0, 0])
    index = torch.tensor([4, 2])
    assert samples.inputs(index).shape == (2, 1, 5, 3) and samples.targets(index).shape == (2, 1, 1)
    assert samples.size == 3 and not samples.is_field and len(samples) == 30
    assert torch.equal(samples.inputs(index)[:, 0], x[index])


def test_fields_are_read_chart_by_chart():
    x = torch.randn(30, 2, 20, 20)
    atlas = Atlas.at([(10, 10), (9, 8)], 5, 3)
    samples = Samples.check(x, x[:, :1], atlas)
    index = torch.tensor([0, 7, 9])
    assert samples.inputs(index).shape == (3, 2, 2, 11, 11) and samples.targets(index).shape == (3, 2, 1, 7, 7)
    assert samples.size == 2 and samples.is_field
    assert Samples.check(torch.zeros(30, 1, 6, 6, 6)).size == 3


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.bool])
def test_classes(kind):
    labels = (torch.arange(30) % 2).to(kind)
    samples = Samples.check(torch.randn(30, 3, generator=stream(0, "classes")), labels)
    assert samples.classes == 2 and samples.targets(torch.arange(4)).tolist() == [[0], [1], [0], [1]]
    fields = torch.randn(30, 1, 20, 20, generator=stream(0, "fields"))
    pixels = Samples.check(fields, torch.ones(30, 20, 20).to(kind), ATLAS)
    assert pixels.classes == 2 and pixels.targets(torch.arange(4)).shape == (4, 1, 7, 7)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
def test_arrays_and_kinds_of_floats(kind):
    samples = Samples.check(np.arange(90).reshape(30, 3).astype(kind), np.ones(30))
    wide = samples.inputs(torch.arange(2)).dtype
    assert wide == (torch.float64 if kind is np.float64 else torch.float32)


def test_split_is_a_partition_and_seeded():
    a = split_indices(101, stream(0, "split"))
    assert torch.cat(a).sort().values.tolist() == list(range(101))
    assert [len(part) for part in a] == [60, 20, 21]
    assert all(torch.equal(u, v) for u, v in zip(a, split_indices(101, stream(0, "split")), strict=True))


def test_masked_numbers_are_missing_and_not_what_lies_under_the_mask():
    x = np.ma.masked_less(np.random.default_rng(0).normal(size=(30, 2)), -1.5)
    with pytest.raises(InputError, match="`x` must be finite, got NaN"):
        Samples.check(x, np.arange(30.0))
    rows, numbers = list(x), np.arange(30.0)
    with warnings.catch_warnings(action="ignore"):  # torch calls it a prototype
        masked = torch.masked.masked_tensor(torch.from_numpy(x.data), torch.from_numpy(~x.mask))
    for given in (rows, [[row[0], row[1]] for row in rows], [[row[:1], row[1:]] for row in rows], masked):
        with pytest.raises(InputError, match="`x` must be finite, got NaN"):
            Samples.check(given, numbers)
    with pytest.raises(InputError, match="must be an array of numbers, got a list of masked arrays"):
        Samples.check([rows[0], rows[1][:1]], numbers)

    class Pairs(torch.utils.data.Dataset):
        def __len__(self):
            return 30

        def __getitem__(self, k):
            return x[k], torch.tensor(float(k))

    with pytest.raises(InputError, match="`x` must be finite, got NaN"):
        Samples.check(Pairs())
    assert len(Samples.check(np.ma.array(np.arange(60.0).reshape(30, 2)), np.arange(30.0))) == 30


def test_masked_numbers_are_refused_where_nothing_may_be_missing():
    x, turns = np.ma.masked_less(np.random.default_rng(0).normal(size=(30, 2)), -1.5), ad.known.cyclic(4)
    norm = lambda v: v.norm(dim=-1)  # noqa: E731
    found = ad.discover(x.data, function=norm, progress=False)
    for door in (
        lambda: ad.assert_equivariant(norm, turns, x),
        lambda: ad.audit(torch.nn.Linear(2, 1).double(), x, turns),
        lambda: ad.canonicalize(norm, turns, x),
        lambda: ad.discover_flow(x, x.data),
        lambda: found.network(list(x), x.data[:, 0]),
        lambda: found.predictor(x),
    ):
        with pytest.raises(InputError, match=r"`x` must have no masked entries, got \d of 60; fill or drop them"):
            door()


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", ">f4", ">i4", "float16", "longdouble"])
def test_arrays_of_any_kind_are_taken(kind):
    numbers = np.arange(90).reshape(30, 3) % 50
    given = Samples.check(numbers.astype(kind), np.linspace(0, 1, 30))
    assert torch.equal(given.inputs(torch.arange(30))[:, 0].double(), torch.from_numpy(numbers).double())


def test_arrays_that_may_not_be_written_are_copied():
    x = np.random.default_rng(0).standard_normal((30, 3))
    x.flags.writeable = False
    assert Samples.check(x, x[:, 0]).x.shape == (30, 3)


def test_fields_without_an_axis_of_channels():
    x = torch.randn(30, 12, 12, generator=torch.Generator().manual_seed(0))
    for y in (x + 1, (x > 0).long(), x.unsqueeze(1)):
        given = Samples.check(x, y)
        assert given.is_field and given.x.shape == (30, 1, 12, 12) and given.targets(torch.arange(2)).shape[-1] == 12
    assert not Samples.check(x, x[:, 0, 0]).is_field


def test_fields_in_space_without_an_axis_of_channels():
    x = torch.randn(20, 17, 18, 19, generator=torch.Generator().manual_seed(0))
    for y in (x + 1, (x > 0).long(), x.unsqueeze(1)):
        given = Samples.check(x, y)
        assert given.size == 3 and given.targets(torch.arange(2)).shape[-3:] == (17, 18, 19)
    # Channels are at most 16, and inputs with other targets hold channels.
    assert Samples.check(x[:, :16], x[:, :16]).size == 2
    assert Samples.check(x, x[:, :1]).size == 2
