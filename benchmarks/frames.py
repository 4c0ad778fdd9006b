"""An exact Gaussian blur whose frame is turned at random: does any search prefer the axes?

Run: python benchmarks/frames.py [--frames 20] [--first 0] [--fitted]

Fields are sums of plane waves; the blur is along an ellipse at any angle, up to twice as long as wide, so that the
group is O(2) in a frame of its own. It is given as a function, or fitted to fields. It is asked by the default search,
and by the search by values, which networks of classes need: from random directions, without derivatives. Degrees are
those between the algebra found and the true one. Status 1 if one is more than half a degree off.
"""

from __future__ import annotations

import argparse
import math

import torch

import atlasd as ad
from atlasd.discovery.spectral import SpectralSearch
from atlasd.runtime.random import stream
from atlasd.studies.zoo.foreign import oblique_blur

LIMIT = 0.5
SEARCHES = {"default": SpectralSearch(), "by values": SpectralSearch(derivatives=False)}


def main(arguments: list[str] | None = None) -> int:
    """Prints a line for every frame and search, and the worst."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--fitted", action="store_true", help="stencils fitted to the fields in place of the function")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    worst: dict[str, float] = {}
    for seed in range(options.first, options.first + options.frames):
        generator = stream(seed, "frames")
        system = oblique_blur(generator)
        assert system.function is not None
        x = system.sample(300, generator)
        told = {"y": system.function(x)} if options.fitted else {"function": system.function}
        for name, search in SEARCHES.items():
            found = ad.discover(x, **told, atlas=system.atlas, search=search, seed=seed, progress=False)
            degrees = math.degrees(math.asin(min(found.algebra.distance(system.truth), 1.0)))
            worst[name] = max(worst.get(name, 0.0), degrees)
            print(f"seed {seed}, {name}: {found.group.name}, {degrees:.3f} degrees off; {system.note}", flush=True)
    for name, degrees in worst.items():
        print(f"{name}: at most {degrees:.3f} degrees off over {options.frames} frames")
    return int(max(worst.values()) > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
