"""LieGAN on top tagging's jets: the cosine of its invariant metric with Minkowski's, seed by seed.

Run: ATLASD_DATA=... python benchmarks/liegan.py --seeds 3
"""

import argparse
import time

import torch

from atlasd.algebra.invariants import metric, metric_cosine
from atlasd.algebra.lie import LieAlgebra
from atlasd.studies.jets.data import load_jets
from atlasd.studies.rivals.liegan import LieGAN


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--samples", type=int, default=None)
    given = parser.parse_args()
    torch.set_num_threads(1)
    x, y = load_jets(samples=given.samples, constituents=2)  # the two leading constituents, as in its paper
    minkowski = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0], dtype=torch.float64))
    for seed in range(given.first, given.first + given.seeds):
        started = time.process_time()
        found = LieGAN(generators=7, steps=given.steps).find_in_data(x, y, seed=seed)
        form = metric(LieAlgebra(found.basis))
        cosine = metric_cosine(form.form, minkowski)
        print(
            f"seed {seed}  cosine {cosine:.4f}  gap {form.gap:.2f}  {time.process_time() - started:.0f} s", flush=True
        )


if __name__ == "__main__":
    main()
