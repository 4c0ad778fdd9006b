"""The cases of other origin, as families with random parameters, each with its nearest control: is anything made up?

Run: python benchmarks/foreign.py --seeds 3 [--case sets8] [--first 0]

Truth comes from the exact maps (`atlasd.studies.zoo.foreign` and `foreign_fields`). A claim is FALSE where a
generator, at finite size, or an element has a true strength clearly above the tolerance on fresh inputs. Photographs
are generated ("dead leaves"), so that nothing is downloaded.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter

from atlasd.studies.zoo.run import foreign_systems, plan_zoo, run_task

WORDS = {
    "detected": "found whole",
    "none": "left alone",
    "wrong dimension": "partly found",
    "wrong components": "partly found",
    "inexact": "inexact",
    "cannot tell": "cannot tell",
    "refused": "cannot tell",
    "missed": "DENIED",
    "false discovery": "FALSE",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--case", action="append", default=[], help="a family, with its control; all by default")
    parser.add_argument("--tolerance", type=float, default=0.2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    names = [system.name for system in foreign_systems(options.first)]
    unknown = sorted(set(options.case) - set(names))
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; cases are {', '.join(names)}")
    chosen = [n for n in names if not options.case or n.removesuffix("_control") in options.case or n in options.case]
    tasks = plan_zoo(seeds=options.seeds, first=options.first, only=chosen, tolerance=options.tolerance)
    rows = []
    for task in tasks:
        row = run_task(task)
        rows.append(row)
        if not options.json:
            wanted = f"{row.truth}+{row.components}"
            got = f"{row.found}+{row.found_components}"
            print(
                f"{row.system:24} {row.mode:7} seed {row.seed}  {WORDS[row.outcome]:12} wanted {wanted:5} got {got:5} "
                f"{row.name[:24]:24} {row.seconds:6.1f} s  {row.note}{'; ' if row.note else ''}{row.verdict}",
                flush=True,
            )
    positives = [row for row in rows if row.positive]
    whole = sum(row.outcome == "detected" for row in positives)
    false = sum(row.outcome == "false discovery" for row in rows)
    summary = {"rows": len(rows), "false": false, "groups": len(positives), "whole": whole}
    if options.json:
        print(json.dumps({"summary": summary, "rows": [row.__dict__ for row in rows]}))
        return
    print()
    for name in dict.fromkeys(row.system for row in rows):
        count = Counter(WORDS[row.outcome] for row in rows if row.system == name)
        print(f"{name:24} " + ", ".join(f"{word} {k}" for word, k in count.most_common()))
    share = f" ({100 * whole / len(positives):.0f} %)" if positives else ""
    print(f"\n{false} of {len(rows)} FALSE; {whole} of {len(positives)} groups found whole{share}")


if __name__ == "__main__":
    main()
