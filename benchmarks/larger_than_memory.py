"""A zarr store of 100,000 fields that is larger than the memory a discovery on it may use.

Run `python benchmarks/larger_than_memory.py [SAMPLES] [MEGABYTES]` (100,000 and 1,000 by default). The store holds
waves on 56 x 56 pixels and what heat flow makes of them. The discovery runs in a process of its own, whose data the
system limits (RLIMIT_DATA): beyond that, allocations fail and so does the process.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import zarr

from atlasd.discovery.discover import discover
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.memory import peak_megabytes
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import blur, draw_waves, plane_waves

SIDE, PART = 56, 1000


def write(path: Path, samples: int) -> float:
    """Writes the store part by part and returns its size in megabytes."""
    store = zarr.open_group(str(path), mode="w")
    shape, chunk = (samples, 1, SIDE, SIDE), (min(PART, samples), 1, SIDE, SIDE)
    x, y = (store.create_array(name, shape=shape, chunks=chunk, dtype="f4", compressors=None) for name in "xy")
    generator = stream(0, "store")
    for start in range(0, samples, PART):
        u = plane_waves(*draw_waves(min(PART, samples - start), generator), size=SIDE)
        x[start : start + len(u)], y[start : start + len(u)] = u.numpy(), blur(u, 2.0).numpy()
    return sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) / 1e6


def read(path: Path, megabytes: float) -> None:
    """One discovery under the limit."""
    resource.setrlimit(resource.RLIMIT_DATA, (int(megabytes * 1e6),) * 2)
    torch.set_num_threads(1)
    store, started = zarr.open_group(str(path), mode="r"), time.perf_counter()
    atlas = Atlas.at([(20, 20), (20, 35), (35, 20), (35, 35)], in_radius=14, out_radius=10)
    found = discover(store["x"], store["y"], atlas=atlas, predictor=StencilPredictor(width=9), progress=False)
    print(f"{found.group.name}: {found.verdict.reason}")
    print(f"{time.perf_counter() - started:.0f} s, peak {peak_megabytes():.0f} MB under a limit of {megabytes:.0f} MB")


def main(samples: int = 100_000, megabytes: float = 1000) -> int:
    """Writes, and reads in a process of its own."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "waves.zarr"
        print(f"{samples} samples, {write(path, samples):.0f} MB on disk", flush=True)
        return subprocess.run([sys.executable, __file__, "read", str(path), str(megabytes)]).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        raise SystemExit(main(*(int(a) for a in sys.argv[1:])))
