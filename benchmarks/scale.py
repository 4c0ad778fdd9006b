"""The heat experiment with its nineteen charts: in process, with two processes, and on a Dask cluster of two workers.

Run `python benchmarks/scale.py`; `--samples 400` is quicker, `--rounds 3` takes the best of three. Every way must
give the same tensors. The ratio is that of wall-clock seconds with one thread each, from data to result, on workers
that are already there; it says little on a machine that does other work at the same time, so the load is printed.
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import json
import os
import time
import warnings

import torch
from torch.func import jvp

from atlasd.datasets.heat import heat_atlas, heat_fields, simulate_heat
from atlasd.discovery.discover import discover
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.executor import process_pool
from atlasd.runtime.random import stream


def warm(number: int) -> int:
    """Makes a worker load what it needs; done before the clock starts."""
    torch.set_num_threads(1)
    x = torch.randn(8, 1, 5, 5, generator=stream(number, "warm"))
    jvp(torch.nn.functional.silu, (x,), (x,))  # the first derivative loads much of torch
    time.sleep(1.0)  # so that no worker takes two
    return os.getpid()


def run(x, y, executor) -> tuple[object, float]:
    """One discovery and its seconds."""
    started = time.perf_counter()
    found = discover(
        x, y, atlas=heat_atlas("nineteen"), predictor=StencilPredictor(), executor=executor, progress=False
    )
    return found, time.perf_counter() - started


def same(a, b) -> bool:
    """Whether two discoveries have the same tensors and the same verdict."""
    return (
        torch.equal(a.algebra.basis, b.algebra.basis)
        and torch.equal(a.cosets, b.cosets)
        and torch.equal(a.chart_generators, b.chart_generators)
        and a.spectrum == b.spectrum
        and a.verdict == b.verdict
        and [c.error for c in a.charts] == [c.error for c in b.charts]
    )


def main(arguments: list[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    warnings.simplefilter("ignore")
    with torch.no_grad():
        x = heat_fields(options.samples, generator=stream(0, "heat", "fields"))
        y = simulate_heat(x)
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None)
    client = Client(cluster)
    pool = process_pool(2)
    for executor in (pool, client.get_executor()):
        list(executor.map(warm, range(4)))
    warm(0)
    rows = []
    reference = None
    for name, executor in (("in process", None), ("2 processes", pool), ("Dask, 2 workers", client.get_executor())):
        best = float("inf")
        for _ in range(options.rounds):
            load = os.getloadavg()[0]
            found, seconds = run(x, y, executor)
            best = min(best, seconds)
        reference = reference or found
        rows.append({"where": name, "seconds": best, "same": same(found, reference), "load": load})
        rows[-1]["times_faster"] = rows[0]["seconds"] / best
        if not options.json:
            row = rows[-1]
            print(f"{name:<16} {best:7.2f} s  {row['times_faster']:.2f} times  ", end="")
            print(f"{'the same' if row['same'] else 'OTHER'} result  (load {load:.1f})", flush=True)
    pool.shutdown()
    client.close()
    cluster.close()
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
