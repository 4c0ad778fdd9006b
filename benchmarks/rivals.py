"""Tasks of others with several seeds: one process for each method, medians with ranges.

python benchmarks/rivals.py affine --seeds 10
python benchmarks/rivals.py flows --seeds 3 --methods "atlasd;fields, threshold" --set samples=100 --set noise=0.3
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from atlasd.runtime.pool import process_pool
from atlasd.studies.config import parse_settings
from atlasd.studies.rivals.compare import Contest, Task, find_contest, perform, with_control

ROWS = {
    "error": "error",
    "dimension": "dimension",
    "components": "components",
    "false_claims": "false claims in the control",
    "seconds": "processor seconds",
    "working_mb": "working MB",
}
LEFT_OUT = ("peak_mb", "wall_seconds", "note", "confirmed", "false_confirmed")


def measure(contest: Contest, method: str, config: Any, seeds: range) -> dict[str, list[Any]]:
    """All figures of one method, a list over seeds for each; memory is that of the first seed alone."""
    found: dict[str, list[Any]] = {}
    with process_pool(1) as pool:
        for seed in seeds:
            row = with_control(Task(contest.name, method, config, seed), lambda t: pool.submit(perform, t).result())
            figures = {k: v for k, v in row.items() if k not in LEFT_OUT}
            figures["error"] = figures.pop(contest.measure.name)
            for key, value in figures.items():
                found.setdefault(key, []).append(value)
    found["working_mb"] = found["working_mb"][:1]
    return found


def spread(values: list[Any]) -> str:
    """Median and range."""
    known = [v for v in values if v is not None]
    if not known:
        return "-"
    middle, low, high = statistics.median(known), min(known), max(known)
    return f"{middle:.3g}" if low == high else f"{middle:.3g} ({low:.3g} to {high:.3g})"


def main() -> None:
    """Runs one task and prints its table in Markdown, methods as rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--methods", default="", help="separated by semicolons; all by default")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    options = parser.parse_args()
    contest = find_contest(options.task)
    config = parse_settings(contest.config, options.settings)
    seeds = range(options.first, options.first + options.seeds)
    names = options.methods.split(";") if options.methods else list(contest.methods)
    table = {}
    for name in names:
        table[name] = measure(contest, name, config, seeds)
        print(f"<!-- {name}: { {k: spread(v) for k, v in table[name].items()} } -->", flush=True)
    extra = {k: k.replace("_", " ") for row in table.values() for k in row if k not in ROWS}
    columns = ROWS | {"error": contest.measure.name.replace("_", " ")} | extra
    print(f"| {options.task}, {len(seeds)} seeds | {' | '.join(columns.values())} | reported |")
    print("|---" * (len(columns) + 2) + "|")
    for name, row in table.items():
        cells = [spread(row.get(key, [])) for key in columns]
        print(f"| {name} | {' | '.join(cells)} | {contest.reported.get(name, '-')} |")


if __name__ == "__main__":
    main()
