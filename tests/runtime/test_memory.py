"""Memory that is kept costs no page faults."""

import subprocess
import sys

import numpy as np
import pytest

from atlasd.runtime.memory import bounded_memory

CODE = """
import resource, sys, torch
from atlasd.runtime.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
for _ in range(3):
    [torch.ones(500_000) for _ in range(8)]
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    [torch.ones(500_000) for _ in range(8)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is the GNU C library's")
def test_pages_are_not_asked_for_again():
    done = subprocess.run([sys.executable, "-c", CODE, "keep"], capture_output=True, text=True, timeout=100, check=True)
    assert int(done.stdout) < 500  # of 78,000 pages that were filled


def test_elsewhere_nothing_is_done(monkeypatch):
    from atlasd.runtime.memory import keep_freed_memory

    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the system's limit on data")
def test_memory_beyond_a_bound_is_refused_and_the_bound_goes():
    with bounded_memory(50.0):
        np.ones(1_000_000)
        with pytest.raises(MemoryError), bounded_memory(1000.0):  # no bound inside another is wider
            np.ones(40_000_000)
    np.ones(40_000_000)
