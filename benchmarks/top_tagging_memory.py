"""Reading a reference-format file of a given size in parts: peak memory and speed.

python benchmarks/top_tagging_memory.py [GIGABYTES]   (0.2 by default; 2 for the claim of docs)
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from writers import TableWriter

from atlasd.studies.jets.data import LABEL, jet_columns, read_jets

COLUMNS = [*jet_columns(200), "truthE", "truthPX", "truthPY", "truthPZ"]


def write(path, gigabytes):
    """Jets of 50 constituents, not compressed, so that the file has its size."""
    rng = np.random.default_rng(0)
    values = np.zeros((4096, len(COLUMNS)), np.float32)
    p = rng.normal(size=(4096, 50, 3))
    values[:, :200] = np.concatenate([np.linalg.norm(p, axis=-1, keepdims=True), p], -1).reshape(4096, -1)
    label = np.stack([np.zeros(4096, np.int64), rng.integers(0, 2, 4096)], 1)
    with TableWriter(path, [(COLUMNS, "float32"), (["ttv", LABEL], "int64")], compression=None) as table:
        for _ in range(round(gigabytes * 1e9 / (4096 * (len(COLUMNS) * 4 + 24)))):
            table.append([values, label])


def read(path):
    started, jets = time.perf_counter(), 0
    for _, labels in read_jets(path):
        jets += len(labels)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    size, seconds = Path(path).stat().st_size / 1e9, time.perf_counter() - started
    print(f"{size:.2f} GB, {jets} jets, {seconds:.1f} s, {peak:.0f} MB")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        read(sys.argv[2])
    else:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "train.h5"
            write(file, float(sys.argv[1]) if len(sys.argv) > 1 else 0.2)
            # In a process of its own: the peak is that of reading, not of writing.
            subprocess.run([sys.executable, __file__, "read", str(file)], check=True)
