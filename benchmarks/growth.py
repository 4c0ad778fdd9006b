"""Time against samples and charts, and peak memory against samples; every size in a process of its own.

Run `python benchmarks/growth.py`; `--quick` gives a first impression. Time is that of one core, so that what else
the machine does hardly counts. Fields are read from a file that is mapped, not loaded: its pages belong to the
system, which is why the peak is that of the process' own memory (RssAnon), looked at every few milliseconds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from atlasd.discovery.discover import discover
from atlasd.discovery.prepare import prepare
from atlasd.discovery.residual import Residual
from atlasd.discovery.spectral import solve
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.progress import Silent
from atlasd.studies.zoo.field_systems import draw_waves, laplacian, plane_waves

SIZE = 24
SIZES = {
    "fields": (1_000, 10_000, 20_000, 50_000, 100_000),
    "vectors": (1_000, 10_000, 100_000, 300_000, 1_000_000, 3_000_000),
    "charts": (8, 32, 64, 128),
}
# Below these, what does not depend on the samples (imports, solving, the skill on 512 samples) takes the time.
LINEAR_FROM = {"fields": 10_000, "vectors": 300_000, "charts": 8}
# Peak memory is compared up to here; the vectors themselves take 32 MB at the largest size.
MEMORY_TO = 100_000


def exponent(sizes: list[float], values: list[float]) -> float:
    """Slope of a line through the logarithms."""
    x, y = (np.log(np.array(v)) for v in (sizes, values))
    return float(np.polyfit(x, y, 1)[0])


def write_fields(folder: Path, samples: int) -> None:
    """Waves and their Laplacian as two files `(N, 1, 24, 24)`, written part by part."""
    shape = (samples, 1, SIZE, SIZE)
    files = [np.lib.format.open_memmap(folder / f"{n}.npy", "w+", np.float32, shape) for n in ("x", "y")]
    generator = torch.Generator().manual_seed(0)
    for start in range(0, samples, 4096):
        x = plane_waves(*draw_waves(min(4096, samples - start), generator), size=SIZE)
        for file, values in zip(files, (x, 20 * laplacian(x)), strict=True):
            file[start : start + len(x)] = values.numpy()


@contextmanager
def peak_memory() -> Iterator[list[float]]:
    """Peak of the process' own memory inside the context, in MB, as the only entry of a list."""
    peak, done = [0.0], threading.Event()

    def own() -> float:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024
        return math.nan

    def watch() -> None:
        while not done.wait(0.005):
            peak[0] = max(peak[0], own())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak[0] = max(peak[0], own())


def stream_fields(folder: Path) -> None:
    """Fits stencils to all samples, and takes first order from some: the parts that read data."""
    x, y = (np.load(folder / f"{n}.npy", mmap_mode="r+") for n in ("x", "y"))
    atlas = Atlas.at([(SIZE // 2, SIZE // 2)], in_radius=8, out_radius=4)
    problem, _ = prepare(x, y, atlas=atlas, predictor=StencilPredictor(), seed=0, progress=Silent())
    solve(*(m[0] for m in Residual(problem, problem.pick(48)).slopes()))


def stream_vectors(samples: int) -> None:
    """First order over all samples, from a function of two four-vectors."""
    x = torch.randn(samples, 2, 4, generator=torch.Generator().manual_seed(0))
    sign = torch.tensor([-1.0, 1.0, 1.0, 1.0])

    def function(x: Tensor) -> Tensor:
        return (x.prod(1) * sign).sum(-1).tanh()

    problem, _ = prepare(x, function=function, seed=0, progress=Silent())
    solve(*(m[0] for m in Residual(problem, problem.pick(samples)).slopes()))


def draw_grid(charts: int) -> tuple[Tensor, Tensor, Atlas]:
    """Waves, their Laplacian, and a grid of charts."""
    generator = torch.Generator().manual_seed(0)
    size = 128
    x = plane_waves(*draw_waves(400, generator), size=size)
    rows, columns = 4, charts // 4
    centres = [
        (16 + 96 * r // (rows - 1), 16 + 96 * c // max(columns - 1, 1)) for r in range(rows) for c in range(columns)
    ]
    return x, 20 * laplacian(x), Atlas.at(centres, in_radius=14, out_radius=10)


def child(kind: str, size: int, folder: str) -> None:
    """Measures one size and prints it as JSON."""
    torch.set_num_threads(1)
    if kind == "charts":
        x, y, atlas = draw_grid(size)

    def work() -> None:
        if kind == "charts":
            discover(x, y, atlas=atlas, predictor=StencilPredictor(), cosets=False, seed=0)
        elif kind == "fields":
            stream_fields(Path(folder))
        else:
            stream_vectors(size)

    stream_vectors(200)  # what the first call loads is no part of the growth
    processor, clock = time.process_time(), time.perf_counter()
    with peak_memory() as peak:
        work()
    row = {"kind": kind, "size": size, "cpu_seconds": time.process_time() - processor}
    print(json.dumps({**row, "seconds": time.perf_counter() - clock, "peak_mb": peak[0]}))


def measure(kind: str, size: int) -> dict:
    """One size in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        if kind == "fields":
            write_fields(Path(folder), size)
        command = [sys.executable, __file__, "--child", kind, str(size), folder]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    return json.loads(done.stdout.splitlines()[-1])


def main(arguments: list[str] | None = None) -> int:
    """Measures all sizes and prints exponents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--kind", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--json", action="store_true", help="print JSON only")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        kind, size, folder = options.child
        child(kind, int(size), folder)
        return 0
    report = {}
    for kind in options.kind:
        sizes = SIZES[kind]
        rows = [measure(kind, size) for size in (sizes[:3] if options.quick else sizes)]
        timed = [r for r in rows if r["size"] >= LINEAR_FROM[kind]]
        slope = exponent([r["size"] for r in timed], [r["cpu_seconds"] for r in timed]) if len(timed) > 1 else math.nan
        peaks = [r["peak_mb"] for r in rows if r["size"] <= MEMORY_TO]
        growth = max(peaks) / min(peaks)
        report[kind] = {"rows": rows, "exponent": round(slope, 3), "memory_ratio": round(growth, 3)}
        if not options.json:
            for r in rows:
                print(f"{kind:<8} {r['size']:>7}  {r['cpu_seconds']:8.2f} s of one core  {r['peak_mb']:7.1f} MB")
            print(f"{kind:<8} time grows with the power {slope:.2f} from {LINEAR_FROM[kind]:,}", end="")
            print(f", memory by the factor {growth:.2f}", flush=True)
    if options.json:
        print(json.dumps(report, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
