"""Affine symmetries of ten flows, from noisy velocities: how many are found, and how many claims are false.

The systems, noise and definition of a false claim are those of the certified symmetry discovery of 2026; the truth is
the exact null space of the bracket with the flow, without the flow itself.

    python benchmarks/flows.py            # N = 100, 400, 1600; noise 0.01, 0.1, 0.3; 10 repetitions
    python benchmarks/flows.py --full     # N = 100, 200, ..., 3200; noise 0.01, 0.03, 0.1, 0.3
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import torch
from torch import Tensor
from torch.func import jacrev, vmap

import atlasd as ad

DELTA = 0.05
"""Defect of a claimed generator above which the claim is false; claimed is what breaks at most so much."""
TOLERANCE = 2 * DELTA
"""Tolerance of the discovery: a breaking of this size must be noticed."""


def _top(*moments: float) -> Callable[[Tensor], Tensor]:
    a, b, c = moments

    def field(v: Tensor) -> Tensor:
        x, y, z = v.unbind(-1)
        return torch.stack([(b - c) / a * y * z, (c - a) / b * z * x, (a - b) / c * x * y], dim=-1)

    return field


def _hopf(v: Tensor) -> Tensor:
    x, y = v.unbind(-1)
    r = x * x + y * y
    return torch.stack([x - y - x * r, x + y - y * r], dim=-1)


def _rotation(v: Tensor) -> Tensor:
    x, y = v.unbind(-1)
    return torch.stack([-y, x], dim=-1)


def _ball(v: Tensor) -> Tensor:
    return v * (1 - v.square().sum(-1, keepdim=True))


def _van_der_pol(v: Tensor) -> Tensor:
    x, y = v.unbind(-1)
    return torch.stack([y, -x + y - x * x * y], dim=-1)


def _duffing(v: Tensor) -> Tensor:
    x, y = v.unbind(-1)
    return torch.stack([y, x - x**3 - y / 5], dim=-1)


def _lotka_volterra(v: Tensor) -> Tensor:
    x, y = v.unbind(-1)
    return torch.stack([x - x * y, -y + x * y], dim=-1)


def _selkov(v: Tensor) -> Tensor:
    x, y = v.unbind(-1)
    return torch.stack([0.1 - x + y / 2 + x * x * y, -y / 2 - x * x * y], dim=-1)


def _lorenz(v: Tensor) -> Tensor:
    x, y, z = v.unbind(-1)
    return torch.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], dim=-1)


SYSTEMS: dict[str, tuple[Callable[[Tensor], Tensor], int, float]] = {
    "hopf": (_hopf, 2, 1.0),
    "rotation": (_rotation, 2, 1.0),
    "symmetric top": (_top(1.0, 1.0, 2.0), 3, 1.0),
    "ball": (_ball, 3, 1.0),
    "van der pol": (_van_der_pol, 2, 1.0),
    "duffing": (_duffing, 2, 2.0),
    "lotka-volterra": (_lotka_volterra, 2, 1.0),
    "selkov": (_selkov, 2, 2.0),
    "top": (_top(1.0, 2.0, 3.0), 3, 1.0),
    "lorenz": (_lorenz, 3, 20.0),
}


def box(n: int, half: float, count: int, seed: int) -> Tensor:
    """States drawn uniformly from a box of half-width `half`, `(count, n)`."""
    drawn = torch.rand(count, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return half * (2 * drawn - 1)


def brackets(field: Callable[[Tensor], Tensor], x: Tensor, generators: Tensor) -> tuple[Tensor, Tensor]:
    """The bracket `DF xi - A F` of homogeneous generators `(k, n + 1, n + 1)` with a flow, and its two parts' size."""
    n = x.shape[1]
    slope, speed = vmap(jacrev(field))(x), field(x)
    xi = torch.einsum("kij,bj->kbi", generators[:, :n, :n], x) + generators[:, None, :n, n]
    first = torch.einsum("bij,kbj->kbi", slope, xi)
    second = torch.einsum("kij,bj->kbi", generators[:, :n, :n], speed)
    size = (first.square().sum(-1).mean(-1) + second.square().sum(-1).mean(-1)).sqrt()
    return first - second, size


def truth(name: str) -> int:
    """Number of independent affine symmetries, without the flow itself."""
    field, n, half = SYSTEMS[name]
    x = box(n, half, 400, seed=-1 % 2**31) / half
    units = torch.eye((n + 1) ** 2, dtype=torch.float64).reshape(n + 1, n + 1, n + 1, n + 1)[:n].flatten(0, 1)
    scaled = lambda v: field(half * v) / half  # noqa: E731
    rows, _ = brackets(scaled, x, units)
    values = torch.linalg.svdvals(rows.flatten(1))
    affine = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
    left = scaled(x) - affine @ torch.linalg.lstsq(affine, scaled(x)).solution
    flow = int(float(left.norm() / scaled(x).norm()) < 1e-9)
    return int((values < 1e-9 * values.max()).sum()) - flow


def run(name: str, count: int, noise: float, seed: int) -> tuple[int, int, float]:
    """Claims, false claims and seconds of processor time of one repetition."""
    torch.set_num_threads(1)
    field, n, half = SYSTEMS[name]
    x = box(n, half, count, seed)
    y = field(x)
    drawn = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    y = y + noise * y.square().mean().sqrt() * drawn
    started = time.process_time()
    found = ad.discover_flow(x, y, cosets=False, degree=0, tolerance=TOLERANCE, seed=seed)
    seconds = time.process_time() - started
    basis = found.algebra.basis
    basis = basis[[d.upper <= DELTA for d, _ in zip(found.verdict.directions, basis, strict=True)]]
    if not len(basis):
        return 0, 0, seconds
    rows, size = brackets(field, box(n, half, 2000, seed=99), basis)
    defect = rows.square().sum(-1).mean(-1).sqrt() / size
    return len(basis), int((defect > DELTA).sum()), seconds


def main() -> None:
    """Runs the grid and prints one line for each system, and the totals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the whole grid")
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1000, help="of the first repetition")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    options = parser.parse_args()
    counts = (100, 200, 400, 800, 1600, 3200) if options.full else (100, 400, 1600)
    noises = (0.01, 0.03, 0.1, 0.3) if options.full else (0.01, 0.1, 0.3)
    names = options.systems.split(",")
    truths = {name: truth(name) for name in names}
    rates: list[float] = []
    shares: list[float] = []
    total, runs = 0.0, 0
    with ProcessPoolExecutor(options.workers) as pool:
        for name in names:
            seeds = [options.seed + 10 * i for i in range(options.repetitions)]
            grid = product(counts, noises)
            cells = [[pool.submit(run, name, count, noise, s) for s in seeds] for count, noise in grid]
            parts = []
            for jobs in cells:
                cell = [job.result() for job in jobs]
                false = sum(f > 0 for _, f, _ in cell) / len(cell)
                rates.append(false)
                share = sum(min(k - f, truths[name]) for k, f, _ in cell) / max(truths[name] * len(cell), 1)
                shares += [share] if truths[name] else []
                parts.append((f"{share:4.0%}" if truths[name] else "   -") + f"/{false:<4.0%}")
                total, runs = total + sum(seconds for _, _, seconds in cell), runs + len(cell)
            print(f"{name:15s} {truths[name]}  " + " ".join(parts), flush=True)
    print(f"false claims: mean {sum(rates) / len(rates):.2%}, worst cell {max(rates):.0%}")
    print(f"detection: {sum(shares) / max(len(shares), 1):.0%}; {total:.0f} s of processor time for {runs} runs")


if __name__ == "__main__":
    main()
