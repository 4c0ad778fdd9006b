"""Groups beyond matrices about a fixed point: the tasks `affine` and `cubic` of others, and pairs of points.

python benchmarks/wider.py --seeds 10 --task affine --task cubic
python benchmarks/wider.py --seeds 5 --task pairs
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

import atlasd as ad
from atlasd.studies.rivals import compare_affine, compare_cubic
from atlasd.studies.rivals.compare_affine import affine_fields, affine_task
from atlasd.studies.rivals.compare_cubic import cubic_task
from atlasd.studies.rivals.measures import angle_of_fields
from atlasd.studies.rivals.tasks import rippled
from atlasd.studies.rivals.vector_fields import homogeneous_to_fields


def draw(*shape: int, seed: int) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def affine(seed: int) -> None:
    """Ellipses about (1, 1), Shaw et al.: a rotation about a point that is not the origin."""
    for count in (200, 2000, 20000):
        x, y = affine_task(count, seed)
        started = time.perf_counter()
        found = ad.discover(x, y, action=ad.AffineAction(), cosets=False, seed=seed, progress=False)
        error = angle_of_fields(
            affine_fields(x, homogeneous_to_fields(found.algebra.basis)), compare_affine.true_field(x)
        )
        took = time.perf_counter() - started
        print(f"affine N={count} seed {seed}: {found.group.name}, {error:.9f} degrees, {took:.1f} s")


def cubic(seed: int) -> None:
    """x^3 - y^2, Shaw et al.: a field that is not linear; and the same with a broken term of 30 %."""
    x, y = cubic_task(2000, seed)
    action = ad.PolynomialAction(degree=2)
    for name, target in (("cubic", y), ("cubic, broken", rippled(x, y))):
        started = time.perf_counter()
        found = ad.discover(x, target, action=action, seed=seed, progress=False)
        fields = torch.einsum("kim,bm->kbi", found.fields, action.columns(x))  # type: ignore[attr-defined]
        error = angle_of_fields(fields, compare_cubic.true_field(x))
        print(f"{name} seed {seed}: {found.headline}, {error:.6f} degrees, {time.perf_counter() - started:.1f} s")


def pairs(seed: int) -> None:
    """A function of the distance of two points; and the same with a broken term of 30 %."""
    for n in (2, 3):
        x = draw(2000, 2, n, seed=seed) + 3
        y = torch.exp(-(x[:, 0] - x[:, 1]).square().sum(-1) / 6)
        for name, target in (("pair", y), ("pair, broken", y + 0.3 * y.std() * torch.sin(2 * x[:, 0].sum(-1)))):
            started = time.perf_counter()
            found = ad.discover(x, target, action=ad.AffineAction(), seed=seed, progress=False)
            print(f"{name} n={n} seed {seed}: {found.headline}, {time.perf_counter() - started:.1f} s")


TASKS: dict[str, Callable[[int], None]] = {"affine": affine, "cubic": cubic, "pairs": pairs}


def main() -> None:
    """Runs the tasks, one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", action="append", choices=list(TASKS), help="all by default")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=100)
    options = parser.parse_args()
    for task in options.task or TASKS:
        for seed in range(options.first, options.first + options.seeds):
            TASKS[task](seed)


if __name__ == "__main__":
    main()
