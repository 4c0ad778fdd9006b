"""The default search against the paper's on the same heat fields, predictors and cosets included, on one thread.

    python benchmarks/search.py                       ours against the paper's search with our aids, 1000 fields
    python benchmarks/search.py --paper               against the search as published: networks in tandem, 10,000
                                                      fields, nineteen charts, ten passes, then its cosets
    python benchmarks/search.py --paper --samples 4000 --epochs 10 --keep runs/published

`--keep DIR` keeps every finished epoch: the same command goes on where it was stopped. The published search is asked
through its lower door: it has no verdict, and no predictors but its own. Its seconds are those of all its parts, over
all sittings. Measured here on a shared CPU: see docs/paper.md.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from atlasd import __version__
from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.runtime.memory import keep_freed_memory, peak_megabytes, reset_peak
from atlasd.runtime.progress import Silent, Terminal
from atlasd.runtime.random import stream
from atlasd.runtime.stages import current_stages, keeping, resuming
from atlasd.studies.config import configure
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat
from atlasd.studies.heat.run import HeatConfig, _cosets, _predictor, _search, run, span_angle

AIDED = {"search": "gradient", "predictor": "conv", "cosets": "gradient", "starts": 16, "top": 8}


def measure(name: str, values: dict, seed: int) -> dict:
    """One run of the whole pipeline: seconds on the clock and of the processor, memory, and the angle to so(2)."""
    config = configure(HeatConfig, values)
    reset_peak()
    clock, processor = time.perf_counter(), time.process_time()
    found, extras = run(config, seed, Silent())
    proposed = None if found.proposed is None or not len(found.proposed) else LieAlgebra(found.proposed)
    return {
        "search": name,
        "samples": config.samples,
        "epochs": config.epochs,
        "seconds": round(time.perf_counter() - clock, 2),
        "cpu_seconds": round(time.process_time() - processor, 2),
        "peak_mb": round(peak_megabytes()),
        "angle_deg": round(extras.metrics["angle_deg"], 4),
        "proposed_deg": None if proposed is None else round(span_angle(proposed, so(2)), 4),
        "cosets": found.group.components,
        "group": found.group.name,
    }


def published(values: dict, seed: int, keep: Path | None, cosets: bool) -> dict:
    """The search as published on the same fields, epoch by epoch, then its cosets under the networks it ended with."""
    config = configure(HeatConfig, {"preset": "paper", **values})
    reset_peak()
    clock, processor = time.perf_counter(), time.process_time()
    with torch.no_grad():
        x = heat_fields(config.samples, initial=config.initial, generator=stream(seed, "heat", "fields"))
        y = simulate_heat(x, steps=config.steps)
    words = ["search", str(values), str(seed)]
    again = keep is not None and (keep / "stages" / "manifest.json").is_file()
    with (
        resuming() if again else nullcontext(),
        keeping(keep, words, __version__) if keep is not None else nullcontext(),
    ):
        timed = Terminal()
        kind = {"predictor": _predictor(config), "atlas": heat_atlas(config.atlas)}
        problem, found = _search(config).find_in_data(x, y, seed=seed, progress=timed, **kind)
        elements = 0
        if cosets:
            search = replace(_cosets(config), epochs=config.epochs)
            found_cosets = current_stages().do(
                "cosets", lambda: search.find(problem, LieAlgebra(found.basis), seed=seed, progress=timed)
            )
            elements = len(found_cosets)
    steps = max(len(found.curves["error"]) // (config.epochs or 1), 1)
    return {
        "search": "published",
        "samples": config.samples,
        "epochs": config.epochs,
        "seconds": round(time.perf_counter() - clock, 2),
        "cpu_seconds": round(time.process_time() - processor, 2),
        "peak_mb": round(peak_megabytes()),
        "angle_deg": round(span_angle(LieAlgebra(found.basis), so(2)), 4),
        "proposed_deg": round(span_angle(LieAlgebra(found.basis), so(2)), 4),
        "generator": [[round(v, 3) for v in row] for row in found.basis[0].tolist()] if len(found.basis) else None,
        "predictor_loss": round(sum(found.curves["predictor"][-steps:]) / steps, 5),
        "cosets": elements,
        "group": "-",
    }


def main(arguments: list[str] | None = None) -> int:
    """Measures both and prints them with their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paper", action="store_true", help="the search as published, at the paper's settings")
    parser.add_argument("--samples", type=int, help="simulated fields, the same for both")
    parser.add_argument("--epochs", type=int, help="passes of the gradient search over the data")
    parser.add_argument("--clip", choices=["norm", "entries"], help="growth limit of the published search")
    parser.add_argument("--pooled", choices=["sum", "mean"], help="charts in the loss of the published search")
    parser.add_argument("--atlas", default="nineteen", choices=["nineteen", "three", "sheared"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="where finished epochs of the published search are kept")
    parser.add_argument("--no-cosets", action="store_true", help="leave out the published search for cosets")
    parser.add_argument("--skip-gradient", action="store_true", help="measure the default search alone")
    parser.add_argument("--skip-ours", action="store_true", help="measure the gradient search alone")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    keep_freed_memory()  # as the program does
    same = {"atlas": options.atlas} | ({"samples": options.samples} if options.samples else {})
    if options.paper and not options.samples:
        same["samples"] = 10_000
    rows = [] if options.skip_ours else [measure("spectral", same, options.seed)]
    if not options.skip_gradient:
        more = {k: v for k in ("epochs", "clip", "pooled") if (v := getattr(options, k)) is not None}
        if options.paper:
            rows.append(published(same | more, options.seed, options.keep, not options.no_cosets))
        else:
            rows.append(measure("gradient", AIDED | same | more, options.seed))
    ratio = round(rows[-1]["cpu_seconds"] / rows[0]["cpu_seconds"], 1) if len(rows) > 1 else None
    if options.json:
        print(json.dumps({"runs": rows, "times_faster": ratio}, indent=1))
        return 0
    for row in rows:
        print(
            f"{row['search']:<9} {row['samples']} fields: {row['cpu_seconds']:.1f} s of one core "
            f"({row['seconds']:.1f} s by the clock), {row['peak_mb']} MB, {row['angle_deg']:.3f} degrees off so(2), "
            f"{row['cosets']} cosets, {row['group']}"
        )
        print("          " + ", ".join(f"{k} {row[k]}" for k in row if k in ("generator", "predictor_loss", "epochs")))
    if ratio is not None:
        print(f"spectral needs {ratio} times less processor time")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
