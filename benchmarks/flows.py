"""Affine symmetries of ten flows, from noisy velocities: how many are found, and how many claims are false.

The systems, noise and definition of a false claim are those of the task `flows`.

    python benchmarks/flows.py            # N = 100, 400, 1600; noise 0.01, 0.1, 0.3; 10 repetitions
    python benchmarks/flows.py --full     # N = 100, 200, ..., 3200; noise 0.01, 0.03, 0.1, 0.3
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import torch

import atlasd as ad
from atlasd.studies.rivals.compare_flows import DELTA, SYSTEMS, claimed, defects, flow_task, true_generators


def run(name: str, count: int, noise: float, seed: int) -> tuple[int, int, float]:
    """Claims, false claims and seconds of processor time of one repetition."""
    torch.set_num_threads(1)
    x, y = flow_task(name, count, noise, seed)
    started = time.process_time()
    found = ad.discover_flow(x, y, cosets=False, degree=0, tolerance=2 * DELTA, seed=seed)
    seconds = time.process_time() - started
    basis = claimed(found)
    return len(basis), int((defects(name, basis) > DELTA).sum()), seconds


def main() -> None:
    """Runs the grid and prints one line for each system, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the whole grid")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000, help="of the first repetition")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    options = parser.parse_args()
    counts = (100, 200, 400, 800, 1600, 3200) if options.full else (100, 400, 1600)
    noises = (0.01, 0.03, 0.1, 0.3) if options.full else (0.01, 0.1, 0.3)
    names = options.systems.split(",")
    truths = {name: len(true_generators(name)) for name in names}
    rates: list[float] = []
    shares: list[float] = []
    total, runs = 0.0, 0
    with ProcessPoolExecutor(options.workers) as pool:
        for name in names:
            seeds = [options.seed + 10 * i for i in range(options.repetitions)]
            grid = product(counts, noises)
            cells = [[pool.submit(run, name, count, noise, s) for s in seeds] for count, noise in grid]
            parts = []
            for jobs in cells:
                cell = [job.result() for job in jobs]
                false = sum(f > 0 for _, f, _ in cell) / len(cell)
                rates.append(false)
                share = sum(min(k - f, truths[name]) for k, f, _ in cell) / max(truths[name] * len(cell), 1)
                shares += [share] if truths[name] else []
                parts.append((f"{share:4.0%}" if truths[name] else "   -") + f"/{false:<4.0%}")
                total, runs = total + sum(seconds for _, _, seconds in cell), runs + len(cell)
            print(f"{name:15s} {truths[name]}  " + " ".join(parts), flush=True)
    print(f"false claims: mean {sum(rates) / len(rates):.2%}, worst cell {max(rates):.0%}")
    print(f"detection: {sum(shares) / max(len(shares), 1):.0%}; {total:.0f} s of processor time for {runs} runs")


if __name__ == "__main__":
    main()
