"""How often `identify` names noisy, conjugated algebras right, and whether it ever names a random span.

Run `python benchmarks/naming.py`; `--conjugations 4 --sizes 2 3` gives a first impression in seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

import torch
from torch import Tensor

from atlasd.algebra.catalogue import catalogue
from atlasd.algebra.identify import identify, is_described
from atlasd.algebra.lie import LieAlgebra


def random_conjugation(n: int, condition: float, generator: torch.Generator) -> Tensor:
    """A random matrix `(n, n)` with condition number at most `condition`."""
    left, right = (torch.linalg.qr(_normal((n, n), generator)).Q for _ in range(2))
    stretch = torch.rand(n, generator=generator, dtype=torch.float64) * torch.tensor(condition).log()
    return left @ torch.diag(stretch.exp()) @ right


def noisy_conjugate(algebra: LieAlgebra, noise: float, condition: float, generator: torch.Generator) -> LieAlgebra:
    """A conjugate in a random basis, each generator off by `noise` times its Frobenius norm."""
    moved = algebra.adjoint(random_conjugation(algebra.size, condition, generator)).basis
    moved = moved / torch.linalg.matrix_norm(moved)[:, None, None]
    mix = torch.linalg.qr(_normal((len(moved), len(moved)), generator)).Q
    moved = torch.einsum("ab,bij->aij", mix, moved)
    error = _normal(tuple(moved.shape), generator)
    sizes = torch.linalg.matrix_norm(moved) / torch.linalg.matrix_norm(error)
    return LieAlgebra(moved + noise * sizes[:, None, None] * error)


def name_entries(
    sizes: list[int], noises: list[float], conjugations: int, seed: int, condition: float = 3.0
) -> list[dict]:
    """One row per catalogue entry and noise level: how many were right, unknown and wrong."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for n in sizes:
        for entry in catalogue(n):
            for noise in noises:
                names: Counter[str] = Counter()
                for _ in range(conjugations):
                    name = identify(noisy_conjugate(entry.algebra, noise, condition, generator)).name
                    known = "unknown" if is_described(name) else "wrong " + name
                    names["right" if name == entry.name else known] += 1
                wrong = {name[6:]: count for name, count in names.items() if name.startswith("wrong")}
                row = {"size": n, "name": entry.name, "noise": noise, "right": names["right"]}
                rows.append(row | {"unknown": names["unknown"], "wrong": wrong})
    return rows


def name_random_spans(sizes: list[int], count: int, seed: int) -> dict:
    """Names given to `count` random spans, spread evenly over the sizes and dimensions 1 .. n^2 - 1."""
    generator = torch.Generator().manual_seed(seed + 1)
    kinds = [(n, k) for n in sizes for k in range(1, n * n)]
    names: Counter[str] = Counter()
    for i in range(count):
        n, k = kinds[i % len(kinds)]
        name = identify(LieAlgebra(_normal((k, n, n), generator))).name
        if not is_described(name):
            names[f"{name} for a random span of dimension {k} in gl({n})"] += 1
    return {"spans": count, "named": sum(names.values()), "names": dict(names)}


def main(arguments: list[str] | None = None) -> int:
    """Runs the benchmark and prints a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conjugations", type=int, default=20, help="random conjugations per entry and noise")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.0, 0.01, 0.03], help="relative noise")
    parser.add_argument("--condition", type=float, default=3.0, help="largest condition number")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="matrix sizes")
    parser.add_argument("--spans", type=int, default=200, help="number of random spans")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON only")
    options = parser.parse_args(arguments)
    begun = time.perf_counter()
    rows = name_entries(options.sizes, options.noise, options.conjugations, options.seed, options.condition)
    named = time.perf_counter() - begun
    spans = name_random_spans([n for n in options.sizes if n > 1], options.spans, options.seed)
    tried = len(rows) * options.conjugations
    totals = {
        "tried": tried,
        "right": sum(row["right"] for row in rows),
        "unknown": sum(row["unknown"] for row in rows),
        "wrong": sum(sum(row["wrong"].values()) for row in rows),
        "random_spans_named": spans["named"],
        "milliseconds_each": round(1e3 * named / max(tried, 1), 1),
        "seconds": round(time.perf_counter() - begun, 1),
    }
    if options.json:
        print(json.dumps({"rows": rows, "random": spans, "totals": totals}, indent=1))
    else:
        _print_table(rows, options.noise, options.conjugations)
        print(f"\nrandom spans: {spans['named']} of {spans['spans']} named {spans['names'] or ''}")
        print(f"right {totals['right']} of {tried} ({totals['right'] / max(tried, 1):.2%}), ", end="")
        print(f"unknown {totals['unknown']}, wrong {totals['wrong']}; {totals['milliseconds_each']} ms each")
    return 0 if totals["wrong"] == 0 and spans["named"] == 0 else 1


def _print_table(rows: list[dict], noises: list[float], conjugations: int) -> None:
    print(f"right of {conjugations}, by relative noise")
    print(f"{'size':4} {'name':22}" + "".join(f"{noise:>8.0%}" for noise in noises))
    for start in range(0, len(rows), len(noises)):
        group = rows[start : start + len(noises)]
        line = f"{group[0]['size']:4} {group[0]['name']:22}" + "".join(f"{row['right']:8}" for row in group)
        wrong = [f"{name} x{count}" for row in group for name, count in row["wrong"].items()]
        print(line + ("   wrong: " + ", ".join(wrong) if wrong else ""))


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())
