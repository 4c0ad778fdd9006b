"""The default search against the paper's gradient descent on heat flow, predictors and cosets included.

Run `python benchmarks/search.py` for the settings of this repository, `--paper` for the paper's own;
`--samples` and `--epochs` make the gradient search shorter. Both run on one thread, one after the other.
"""

from __future__ import annotations

__all__ = ["main", "measure"]

import argparse
import json
import time

import torch

from atlasd.algebra.known_algebras import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.experiments.config import configure
from atlasd.experiments.heat import HeatConfig, run, span_angle
from atlasd.runtime.progress import Silent

GRADIENT = {"search": "gradient", "predictor": "conv", "cosets": "gradient", "starts": 16, "top": 8}


def measure(name: str, values: dict, seed: int) -> dict:
    """One run: seconds on the clock and of the processor, and the angle to so(2)."""
    config = configure(HeatConfig, values)
    clock, processor = time.perf_counter(), time.process_time()
    found, extras = run(config, seed, Silent())
    proposed = None if found.proposed is None or not len(found.proposed) else LieAlgebra(found.proposed)
    return {
        "search": name,
        "samples": config.samples,
        "epochs": config.epochs,
        "batches": config.batches if config.epochs is None and config.search == "gradient" else None,
        "seconds": round(time.perf_counter() - clock, 2),
        "cpu_seconds": round(time.process_time() - processor, 2),
        "parts": {k: round(v, 2) for k, v in found.seconds.items()},
        "angle_deg": round(extras.metrics["angle_deg"], 4),
        "proposed_deg": None if proposed is None else round(span_angle(proposed, so(2)), 4),
        "group": found.group.name,
    }


def main(arguments: list[str] | None = None) -> int:
    """Measures both and prints them with their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paper", action="store_true", help="the paper's settings for the gradient search")
    parser.add_argument("--samples", type=int, help="simulated fields for the gradient search")
    parser.add_argument("--epochs", type=int, help="passes of the gradient search over the data")
    parser.add_argument("--atlas", default="nineteen", choices=["nineteen", "three", "sheared"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--skip-gradient", action="store_true", help="measure the default search alone")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows = [measure("spectral", {"atlas": options.atlas}, options.seed)]
    if not options.skip_gradient:
        values = {"preset": "paper"} if options.paper else dict(GRADIENT)
        values |= {"atlas": options.atlas}
        values |= {k: v for k in ("samples", "epochs") if (v := getattr(options, k)) is not None}
        rows.append(measure("gradient", values, options.seed))
    ratio = round(rows[-1]["cpu_seconds"] / rows[0]["cpu_seconds"], 1)
    if options.json:
        print(json.dumps({"runs": rows, "times_faster": ratio if len(rows) > 1 else None}, indent=1))
        return 0
    for row in rows:
        budget = f"{row['samples']} fields" + (f", {row['epochs']} epochs" if row["epochs"] else "")
        budget += f", {row['batches']} batches" if row["batches"] else ""
        print(
            f"{row['search']:<9} {row['seconds']:9.1f} s ({row['cpu_seconds']:.1f} s of one core)  "
            f"{row['angle_deg']:7.3f} degrees off so(2)  {row['group']}  [{budget}]"
        )
        if row["proposed_deg"] is not None:
            print(f"          {row['proposed_deg']:.3f} degrees off before the verdict, which counts none as 90")
        print("          " + ", ".join(f"{k} {v:.1f} s" for k, v in row["parts"].items()))
    if len(rows) > 1:
        print(f"spectral is {ratio} times as fast (time of one core)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
