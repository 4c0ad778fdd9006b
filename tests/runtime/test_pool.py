"""Workers: they end when their parent does, and start from no module that lies about."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from atlasd.runtime.pool import process_pool

PARENT = """
import os, sys, time
from atlasd.runtime.pool import process_pool
if __name__ == "__main__":
    with process_pool(2) as pool:
        waiting = [pool.submit(time.sleep, 600) for _ in range(2)]
        print(*pool._processes, flush=True)
        END
"""


def gone(process):
    stat = Path(f"/proc/{process}/stat")
    return not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("end", ["time.sleep(600)", "raise KeyboardInterrupt"], ids=["killed", "interrupted"])
def test_workers_end_with_their_parent(tmp_path, end):
    program = tmp_path / "parent.py"
    program.write_text(PARENT.replace("END", end))
    parent = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    workers = [int(word) for word in parent.stdout.readline().split()]
    assert len(workers) == 2
    if "sleep" in end:
        time.sleep(1.0)  # they are at work
        parent.send_signal(signal.SIGKILL)
    parent.wait(timeout=30)
    parent.stdout.close()
    assert wait_until(lambda: all(gone(worker) for worker in workers))


def test_workers_watch_before_they_import_torch():
    # The import takes half a minute on a busy machine; a worker whose parent is gone would live as long.
    imports = "import sys, atlasd.runtime.pool; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", imports]).returncode == 0


def test_workers_take_no_module_from_the_working_directory(tmp_path, monkeypatch):
    for name in ("multiprocessing", "random", "signal", "torch"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    with process_pool(1) as pool:
        assert pool.submit(os.getcwd).result() == str(tmp_path)
    assert not (tmp_path / "sprung").exists() and "PYTHONSAFEPATH" not in os.environ
