"""A zarr store of 100,000 fields that is larger than the memory a discovery on it may use.

Run `python benchmarks/larger_than_memory.py [SAMPLES] [MEGABYTES]` (100,000 and 1,000 by default). The store holds
heat flow on 56 x 56 pixels. The discovery runs in a process of its own, whose data the system limits (RLIMIT_DATA):
beyond that, allocations fail and so does the process.
"""

from __future__ import annotations

__all__ = ["main"]

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import zarr
from torch import Tensor
from torch.nn import functional

from atlasd.discovery.discover import discover
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.memory import peak_megabytes
from atlasd.runtime.random import stream

SIDE, PART = 56, 1000


def fields(count: int, generator: torch.Generator) -> Tensor:
    """Sums of plane waves in random directions, with shape `(count, 1, SIDE, SIDE)`."""
    k, phase = torch.randn(count, 4, 2, generator=generator) * 0.3, 6.3 * torch.rand(count, 4, generator=generator)
    line = torch.arange(SIDE, dtype=torch.float32)
    rows = torch.exp(1j * (k[..., :1] * line + phase[..., None]))
    columns = torch.exp(1j * k[..., 1:] * line)
    return torch.einsum("nwi,nwj->nij", rows, columns).real.unsqueeze(1)


def flow(u: Tensor) -> Tensor:
    """Four steps of the heat equation."""
    kernel = torch.tensor([[0.0, 0.2, 0.0], [0.2, 0.2, 0.2], [0.0, 0.2, 0.0]]).reshape(1, 1, 3, 3)
    for _ in range(4):
        u = functional.conv2d(functional.pad(u, (1,) * 4, mode="replicate"), kernel)
    return u


def write(path: Path, samples: int) -> float:
    """Writes the store part by part and returns its size in megabytes."""
    store = zarr.open_group(str(path), mode="w")
    shape, chunk = (samples, 1, SIDE, SIDE), (min(PART, samples), 1, SIDE, SIDE)
    x, y = (store.create_array(name, shape=shape, chunks=chunk, dtype="f4", compressors=None) for name in "xy")
    generator = stream(0, "store")
    for start in range(0, samples, PART):
        u = fields(min(PART, samples - start), generator)
        x[start : start + len(u)], y[start : start + len(u)] = u.numpy(), flow(u).numpy()
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
        path = Path(scratch) / "heat.zarr"
        print(f"{samples} samples, {write(path, samples):.0f} MB on disk", flush=True)
        return subprocess.run([sys.executable, __file__, "read", str(path), str(megabytes)]).returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(Path(sys.argv[2]), float(sys.argv[3]))
    else:
        raise SystemExit(main(*(int(a) for a in sys.argv[1:])))
