"""Memory of one process over many discoveries: it must not grow once everything has been imported and used.

`python benchmarks/long_lived.py --times 100` prints the memory held after every tenth discovery; the exit status is 1
if it grows by more than 5 % from the twentieth to the last.
"""

import argparse
import gc
import sys

import torch

import atlasd as ad
from atlasd.runtime.memory import resident_megabytes
from atlasd.runtime.random import stream


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=100)
    given = parser.parse_args()
    torch.set_num_threads(1)
    held = []
    for number in range(given.times):
        x = torch.randn(500, 2, generator=stream(number, "long lived"))
        ad.discover(x, function=lambda v: v.norm(dim=-1), seed=number, progress=False)
        gc.collect()
        held.append(resident_megabytes())
        if (number + 1) % 10 == 0:
            print(f"{number + 1}: {held[-1]:.0f} MB", flush=True)
    grown = held[-1] / held[min(19, len(held) - 1)] - 1
    print(f"grown by {grown:.1%} since the twentieth")
    return int(grown > 0.05)


if __name__ == "__main__":
    sys.exit(main())
