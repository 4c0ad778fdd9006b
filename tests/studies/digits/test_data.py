"""Digits on a sphere: the paper's construction, its options, and files that are not there."""

import gzip

import pytest
import torch

from atlasd.data.fetch import find_data
from atlasd.errors import DataError, InputError
from atlasd.geometry.actions import GridAction
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.random import stream
from atlasd.studies.digits import data as digits
from atlasd.studies.digits.data import BACKGROUND, CENTRES, RADIUS, read_idx, sphere_mnist


@pytest.fixture
def blobs():
    """Two smooth "digits", 3 and 7, that no turn leaves unchanged."""
    p = pixel_grid((28, 28))
    images = []
    for row, column in ((-5.0, 2.0), (3.0, 4.0)):
        spot = torch.exp(-((p - torch.tensor([row, column])) / torch.tensor([3.0, 2.0])).square().sum(-1))
        images.append((255 * spot * (spot > 0.01)).reshape(28, 28))
    return torch.stack(images).to(torch.uint8), torch.tensor([3, 7], dtype=torch.uint8)


def window(field, k):
    row, column = CENTRES[k]
    return field[..., row - RADIUS : row + RADIUS + 1, column - RADIUS : column + RADIUS + 1]


def test_construction(blobs):
    data = sphere_mnist(50, generator=stream(0, "sphere"), images=blobs)
    assert data.x.shape == (50, 1, 60, 120) and data.x.dtype == torch.float32
    assert data.y.shape == (50, 60, 120)
    assert float(data.x.min()) >= 0 and float(data.x.max()) <= 1
    assert torch.equal(data.y == BACKGROUND, data.x[:, 0] == 0)  # fully black is background
    for k in range(3):
        inked = window(data.y, k).flatten(1).long()
        assert torch.equal(inked.where(inked != BACKGROUND, -1).amax(1), data.digits[:, k])
    assert float(data.angles.abs().max()) <= torch.pi / 3
    assert float(data.angles.max()) > 0.9 and float(data.angles.min()) < -0.9
    assert set(data.digits.flatten().tolist()) == {3, 7}


def test_each_digit_is_turned_by_its_own_angle(blobs):
    turned = sphere_mnist(6, generator=stream(1, "sphere"), images=blobs)
    upright = sphere_mnist(6, generator=stream(1, "sphere"), images=blobs, rotate=0)
    assert torch.equal(turned.digits, upright.digits) and not upright.angles.any()
    for k in range(3):
        c, s = turned.angles[:, k].cos(), turned.angles[:, k].sin()
        g = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
        moved = GridAction().on_input(g, window(upright.x, k))
        assert float((moved - window(turned.x, k)).abs().max()) < 0.1
        assert float((window(upright.x, k) - window(turned.x, k)).abs().max()) > 0.3


def test_scaled_instead_of_turned(blobs):
    data = sphere_mnist(200, generator=stream(0, "sphere"), images=blobs, rotate=0, scale=1.5)
    assert 1 / 1.5 <= float(data.sizes.min()) < 0.75 and 1.3 < float(data.sizes.max()) <= 1.5
    area = torch.stack([window(data.x[:, 0], k).flatten(1).sum(1) for k in range(3)], 1)
    for digit in (3, 7):
        chosen = data.digits == digit
        ratio = area[chosen] / data.sizes[chosen].square()
        assert float(ratio.std() / ratio.mean()) < 0.1


def test_the_seed_decides(blobs):
    one, same, other = (sphere_mnist(4, generator=stream(s, "sphere"), images=blobs).x for s in (0, 0, 1))
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 0}, "`samples` must be positive"),
        ({"rotate": 200}, "`rotate` must lie between 0 and 180"),
        ({"scale": 0.5}, "`scale` must lie between 1 and 4"),
        ({"split": "other", "images": None}, "`split` must be 'train' or 'test'"),
    ],
)
def test_wrong_options(options, message, blobs):
    arguments = {"samples": 1, "images": blobs, **options}
    with pytest.raises(InputError, match=message):
        sphere_mnist(arguments.pop("samples"), generator=stream(0), **arguments)


def test_idx_files(tmp_path):
    path = tmp_path / "a.gz"
    head = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3])
    path.write_bytes(gzip.compress(head + bytes([1, 2, 3, 4, 5, 6])))
    assert read_idx(path).tolist() == [[1, 2, 3], [4, 5, 6]]
    for content, message in (
        (gzip.compress(b"other"), "must be an idx file"),
        (gzip.compress(head + b"\1"), "must hold 6 bytes"),
        (b"not gzipped", "cannot be read"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_idx(path)


def test_files_that_are_not_there_are_asked_for(monkeypatch, tmp_path):
    asked = []

    def refuse(data, directory=None, *, progress=None, only=()):
        asked.extend(only)
        raise DataError("could not be fetched")

    monkeypatch.setattr(digits, "fetch", refuse)
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path))
    with pytest.raises(DataError, match="could not be fetched"):
        digits.load_mnist("test")
    assert asked == ["t10k-images-idx3-ubyte.gz"]
    assert {name for pair in digits.FILES.values() for name in pair} == {f.name for f in find_data("mnist").files}


def test_an_idx_file_of_a_hundred_axes_is_refused(tmp_path):
    (tmp_path / "d.gz").write_bytes(gzip.compress(bytes([0, 0, 8, 100]) + b"\0\0\0\1" * 100 + b"x"))
    with pytest.raises(DataError, match="must be a complete gzipped idx file"):
        read_idx(tmp_path / "d.gz")
