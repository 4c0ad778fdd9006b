"""Heat over several seeds: angle to so(2), group, charts that stand apart, seconds.

Run: python benchmarks/heat.py --atlas nineteen --initial separable --seeds 10
"""

from __future__ import annotations

import argparse
import json
import time

import torch

from atlasd.runtime.progress import Silent
from atlasd.studies.config import configure
from atlasd.studies.heat.run import HeatConfig, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--atlas", default="nineteen", choices=["nineteen", "three", "sheared", "shadow"])
    parser.add_argument("--initial", default="separable", choices=["separable", "isotropic"])
    parser.add_argument("--search", default="spectral", choices=["spectral", "gradient"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--samples", type=int, help="simulated fields; as in `atlasd run heat` by default")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = ("atlas", "initial", "search", "samples")
    config = configure(HeatConfig, {name: v for name in names if (v := getattr(options, name)) is not None})
    rows = []
    for seed in range(options.first, options.first + options.seeds):
        started = time.perf_counter()
        found, extras = run(config, seed, Silent())
        seconds = time.perf_counter() - started
        bound = max((d.upper for d in (*found.verdict.directions, *found.verdict.cosets)), default=float("nan"))
        rows.append({"seed": seed, **extras.metrics, "bound": bound, "seconds": seconds})
        if not options.json:
            print(
                f"{options.atlas} {options.initial} {options.search} seed {seed}: {found.group.name}, "
                f"{extras.metrics['angle_deg']:.3f} degrees, bound {bound:.4f}, "
                f"apart {extras.metrics['outliers']}, {seconds:.1f} s",
                flush=True,
            )
    worst = max(r["angle_deg"] for r in rows)
    right = sum(r["group"] == "O(2)" for r in rows)
    if options.json:
        print(json.dumps({"rows": rows, "worst_deg": worst, "named": right}))
    else:
        settings = f"{options.atlas} {options.initial} {options.search}"
        print(f"{settings}: worst {worst:.3f} degrees, O(2) in {right} of {len(rows)}")


if __name__ == "__main__":
    main()
