"""One owner of a directory, whatever stands in its place."""

import os
import subprocess
import sys
import threading
import time

import pytest

from atlasd.errors import DataError
from atlasd.runtime import files
from atlasd.runtime.files import sole_owner

CONTENDER = """
import os, sys, time
from pathlib import Path
from atlasd.errors import DataError
from atlasd.runtime.files import sole_owner
directory, until = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
owned = 0
while time.monotonic() < until:
    try:
        with sole_owner(directory / "run"):
            os.close(os.open(directory / "inside", os.O_CREAT | os.O_EXCL))  # fails where there are two owners
            time.sleep(0.001)
            os.unlink(directory / "inside")
            owned += 1
    except DataError:
        pass
print(owned)
"""


@pytest.mark.parametrize("link", [os.symlink, os.link], ids=["symbolic", "hard"])
def test_a_link_in_place_of_the_lock_is_not_written_through(tmp_path, link):
    precious = tmp_path / "thesis.tex"
    precious.write_text("years of work")
    (tmp_path / "run").mkdir()
    link(precious, tmp_path / "run" / ".lock")
    with pytest.raises(DataError, match=r"must be a plain file.*remove it"), sole_owner(tmp_path / "run"):
        pass
    assert precious.read_text() == "years of work"


def test_a_pipe_in_place_of_the_lock_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / ".lock")
    with pytest.raises(DataError, match="must be a plain file"), sole_owner(tmp_path):
        pass


def test_the_lock_of_a_removed_file_is_no_lock(tmp_path, monkeypatch):
    """The last owner removes the file while another waits for it: that one must not own a file without a name."""
    taken = []
    real = files._lock

    def late(descriptor):
        if not taken:
            taken.append(descriptor)
            (tmp_path / ".lock").unlink()
        return real(descriptor)

    monkeypatch.setattr(files, "_lock", late)
    with sole_owner(tmp_path):
        assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(DataError, match="two runs"), sole_owner(tmp_path):
            pass
    assert not list(tmp_path.iterdir())


def test_processes_that_come_and_go_are_never_two(tmp_path):
    command = [sys.executable, "-c", CONTENDER, str(tmp_path), "1.5"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [process.communicate(timeout=60) for process in running]
    assert all(process.returncode == 0 for process in running), answers
    assert sum(int(out) for out, _ in answers) > 10


def test_threads_wait_their_turn(tmp_path):
    inside = []

    def work():
        with sole_owner(tmp_path):
            inside.append(1)
            time.sleep(0.02)

    with sole_owner(tmp_path):
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.03)
        assert not inside
    thread.join()
    assert inside
