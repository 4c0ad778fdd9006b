"""Processor time of a step of the paper's searches against the paper's analysis (appendix E), on one thread.

    python benchmarks/complexity.py

The paper: generators take O(k T P) for k generators, T steps and P charts, where the predictors cost most; cosets take
O(K T P) for K candidates. Ours is measured beside it: its one eigenproblem and its fixed number of Gauss-Newton steps.
"""

from __future__ import annotations

import time

import torch

from atlasd.algebra.known import so
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch
from atlasd.discovery.prepare import prepare
from atlasd.discovery.spectral import SpectralSearch
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_atlas, heat_fields, simulate_heat


def clocked(work, repeat: int = 1) -> float:
    work()
    started = time.process_time()
    for _ in range(repeat):
        work()
    return (time.process_time() - started) / repeat


def main() -> None:
    torch.set_num_threads(1)
    x = heat_fields(200, generator=stream(0, "heat", "fields"))
    y = simulate_heat(x, steps=50)
    whole = heat_atlas("nineteen")
    quiet = {"seed": 0, "progress": Silent()}
    problems = {
        p: prepare(x, y, atlas=whole.select(range(p)), predictor=StencilPredictor(), **quiet)[0] for p in (2, 4, 8, 16)
    }
    steps = 4
    for p, problem in problems.items():
        search = GradientSearch.published(epochs=None, steps=steps)
        cosets = CosetSearch.published(epochs=None, steps=steps, starts=4, top=4, batch=4)
        generators = clocked(lambda s=search, q=problem: s.find(q, **quiet)) / steps
        candidates = clocked(lambda s=cosets, q=problem: s.find(q, so(2), **quiet)) / steps
        ours = clocked(lambda q=problem: SpectralSearch().find(q, **quiet))
        print(
            f"P {p:2}  a step of generators {generators:.3f} s, 4 cosets {candidates:.3f} s; ours whole {ours:.2f} s",
            flush=True,
        )
    for k in (1, 2, 4):
        search = GradientSearch.published(epochs=None, steps=steps, generators=k)
        took = clocked(lambda s=search: s.find(problems[4], **quiet)) / steps
        print(f"k {k:2}  a step of generators, P = 4: {took:.3f} s", flush=True)
    for count in (4, 8, 16):
        search = CosetSearch.published(epochs=None, steps=steps, starts=count, top=4, batch=4)
        took = clocked(lambda s=search: s.find(problems[4], so(2), **quiet)) / steps
        print(f"K {count:2}  a step of cosets, P = 4: {took:.3f} s", flush=True)


if __name__ == "__main__":
    main()
