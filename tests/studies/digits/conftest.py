"""Digits that are not MNIST, in files like those of MNIST."""

import gzip
import struct

import pytest

from atlasd.studies.digits.data import FILES


@pytest.fixture
def in_place_of_mnist(tmp_path, monkeypatch):
    """Writes images `(N, 28, 28)` and labels `(N,)` of both splits where the program looks for MNIST."""

    def write(images, labels):
        folder = tmp_path / "data" / "mnist"
        folder.mkdir(parents=True)
        for names in FILES.values():
            for name, array in zip(names, (images, labels), strict=True):
                head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
                (folder / name).write_bytes(gzip.compress(head + array.byte().numpy().tobytes()))
        monkeypatch.setenv("ATLASD_DATA", str(folder.parent))

    return write
