"""The zoo over seeds and processes, as `atlasd zoo`: `python benchmarks/zoo.py --seeds 5`."""

from __future__ import annotations

import sys

from atlasd.cli import main

if __name__ == "__main__":
    raise SystemExit(main(["zoo", *sys.argv[1:]]))
