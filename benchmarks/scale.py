"""The heat experiment with its nineteen charts: in process, with two processes, and on a Dask cluster of two workers.

Run `python benchmarks/scale.py`; `--samples 400` is quicker, `--rounds 3` takes the best of three. Every way must
give the same tensors. One ratio is that of wall-clock seconds with one thread each, from data to result, on workers
that are there and have worked before; it says little on a machine that does other work at the same time, so the load
is printed. The other ratio is that of processor seconds: in process against those of this process and of the busiest
worker together, which is what would pass if they never waited for anything but each other. With `--undisturbed`, for
whoever may do that on Linux, the timed work goes before all other jobs of the machine, which wait as long as it takes.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

import psutil
import torch

from atlasd.discovery.discover import discover
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.pool import process_pool
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat


def warm(number: int) -> int:
    """Makes a worker load what it needs, by one small discovery of its own; done before the clock starts."""
    torch.set_num_threads(1)
    x = torch.randn(200, 2, generator=stream(number, "warm"))
    discover(x, x.norm(dim=-1), progress=False)
    time.sleep(1.0)  # so that no worker takes two
    return os.getpid()


@contextmanager
def undisturbed(processes) -> Iterator[None]:
    """Gives all threads of this process and of the workers a real-time class."""
    threads = [thread.id for process in (psutil.Process(), *processes) for thread in process.threads()]
    for each in threads:
        os.sched_setscheduler(each, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        for each in threads:
            with suppress(ProcessLookupError):
                os.sched_setscheduler(each, os.SCHED_OTHER, os.sched_param(0))


def used(processes) -> list[float]:
    """Processor seconds of this process, and of each of the workers."""
    return [time.process_time(), *(sum(p.cpu_times()[:2]) for p in processes)]


def run(x, y, executor, processes) -> tuple[object, float, float]:
    """One discovery, its seconds, and the processor seconds of this process and the busiest worker."""
    started, before = time.perf_counter(), used(processes)
    found = discover(
        x, y, atlas=heat_atlas("nineteen"), predictor=StencilPredictor(), executor=executor, progress=False
    )
    own, *others = (b - a for a, b in zip(before, used(processes), strict=True))
    return found, time.perf_counter() - started, own + max(others, default=0.0)


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
    parser.add_argument("--undisturbed", action="store_true")
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
    processes = {
        name: [psutil.Process(pid) for pid in set(executor.map(warm, range(4)))]
        for name, executor in (("2 processes", pool), ("Dask, 2 workers", client.get_executor()))
    }
    warm(0)
    rows = []
    reference = None
    for name, executor in (("in process", None), ("2 processes", pool), ("Dask, 2 workers", client.get_executor())):
        best = cpu = float("inf")
        for _ in range(options.rounds):
            load = os.getloadavg()[0]
            others = processes.get(name, [])
            with undisturbed(others) if options.undisturbed else nullcontext():
                found, seconds, busy = run(x, y, executor, others)
            best, cpu = min(best, seconds), min(cpu, busy)
        reference = reference or found
        rows.append({"where": name, "seconds": best, "same": same(found, reference), "load": load})
        rows[-1] |= {"times_faster": rows[0]["seconds"] / best, "cpu_seconds": cpu}
        rows[-1]["times_less_cpu"] = rows[0]["cpu_seconds"] / cpu
        if not options.json:
            row = rows[-1]
            print(f"{name:<16} {best:7.2f} s  {row['times_faster']:.2f} times faster; ", end="")
            print(f"{cpu:7.2f} s of processors  {row['times_less_cpu']:.2f} times less; ", end="")
            print(f"{'the same' if row['same'] else 'OTHER'} result  (load {load:.1f})", flush=True)
    pool.shutdown()
    client.close()
    cluster.close()
    if options.json:
        print(json.dumps(rows, indent=1))
    return 0 if all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
