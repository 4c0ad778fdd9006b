"""Files are whole or absent."""

import pytest

from atlasd.errors import DataError
from atlasd.runtime.files import write_atomically


def test_writes_and_makes_directories(tmp_path):
    path = write_atomically(tmp_path / "a" / "b.txt", lambda p: p.write_text("all"))
    assert path.read_text() == "all"
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_replaces(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old and long")
    write_atomically(path, lambda p: p.write_text("new"))
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interruption_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "b.txt"
    path.write_text("old")

    def fail(temporary):
        temporary.write_text("half")
        raise error

    with pytest.raises(error):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"could not be written.*choose another directory"):
        write_atomically(tmp_path / "file" / "b.txt", lambda p: p.write_text("x"))
