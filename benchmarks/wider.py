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


def cosine(a: Tensor, b: Tensor) -> float:
    """Cosine between two fields `(N, n)`."""
    return abs(float((a * b).sum() / a.norm() / b.norm()))


def draw(*shape: int, seed: int) -> Tensor:
    """Normal numbers."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def affine(seed: int) -> None:
    """Ellipses about (1, 1), Shaw et al.: a rotation about a point that is not the origin."""
    for count in (200, 2000, 20000):
        x = draw(count, 2, seed=seed) * torch.tensor([2.0, 1.0]) + 1
        started = time.perf_counter()
        y = (x[:, 0] - 1) ** 2 + 4 * (x[:, 1] - 1) ** 2
        found = ad.discover(x, y, action=ad.AffineAction(), cosets=False, seed=seed, progress=False)
        truth = torch.stack([4 - 4 * x[:, 1], x[:, 0] - 1], dim=-1)
        basis = found.algebra.basis
        fields = x @ basis[:, :2, :2].mT + basis[:, None, :2, 2]
        value = cosine(fields[0], truth) if len(basis) else float("nan")
        took = time.perf_counter() - started
        said = f"{found.group.name}, {len(basis)} generators, cosine {value:.9f}, {took:.1f} s"
        print(f"affine N={count} seed {seed}: {said}")


def cubic(seed: int) -> None:
    """x^3 - y^2, Shaw et al.: a field that is not linear; and the same with a broken term of 30 %."""
    x = 2 * draw(2000, 2, seed=seed)
    y = x[:, 0] ** 3 - x[:, 1] ** 2
    for name, target in (("cubic", y), ("cubic, broken", y + 0.3 * y.std() * torch.sin(2 * x[:, 0] + x[:, 1]))):
        started = time.perf_counter()
        found = ad.discover(x, target, action=ad.PolynomialAction(degree=2), seed=seed, progress=False)
        truth = torch.stack([2 * x[:, 1], 3 * x[:, 0] ** 2], dim=-1)
        values = [cosine(ad.PolynomialAction(degree=2).columns(x) @ f.mT, truth) for f in found.fields]  # type: ignore[attr-defined]
        print(f"{name} seed {seed}: {found.headline}, cosines {values}, {time.perf_counter() - started:.1f} s")


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
