"""Finite subgroups of O(2) and O(3), given as noisy elements in random coordinates: are order and name right?

Run `python benchmarks/finite_groups.py [--trials 5] [--seed 0] [--json]`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
import torch

from atlasd.algebra import known as known
from atlasd.algebra.finite import FiniteGroup
from atlasd.algebra.group import Group

NOISES = (0.0, 0.01, 0.02, 0.03)
COORDINATES = ("rotation", "condition 2")
LISTS = ("all elements", "two thirds", "three")


def groups():
    """Elements and name of every group of the benchmark."""
    found = [(f"C{n}", known.cyclic(n).cosets) for n in range(2, 13)]
    found += [("C2", known.dihedral(1).cosets), ("V4", known.dihedral(2).cosets)]
    found += [(f"D{n}", known.dihedral(n).cosets) for n in range(3, 13)]
    solids = {"A4": known.tetrahedral(), "S4": known.octahedral(), "A5": known.icosahedral()}
    for name, group in solids.items():
        found += [(name, group.cosets), (f"{name}xC2", torch.cat([group.cosets, -group.cosets]))]
    return found


def table_of(elements):
    """The abstract group, to know which elements generate it."""
    return FiniteGroup(Group(torch.zeros(0, *elements.shape[1:]), elements).cayley)


def change_of_coordinates(n, kind, rng):
    """A random rotation, or a matrix of condition 2."""
    u, _, v = np.linalg.svd(rng.standard_normal((n, n)))
    stretch = np.linspace(1, 2, n) if kind == "condition 2" else np.ones(n)
    return torch.from_numpy(u @ np.diag(stretch) @ v)


def candidates(elements, finite, kind, coordinates, noise, rng):
    """The elements as a search would give them: shuffled, moved, disturbed, perhaps not all of them."""
    n = elements.shape[-1]
    s = change_of_coordinates(n, coordinates, rng)
    moved = s @ elements @ torch.linalg.inv(s)
    order = rng.permutation(len(moved))
    if kind == "two thirds":
        # More than half of a group generates it.
        order = order[: max(len(order) * 2 // 3, len(order) // 2 + 1)]
    if kind == "three":
        while len(order) > 3:
            order = rng.choice(len(moved), 3, replace=False)
            if len(finite.generate(order.tolist())) < len(moved):
                order = np.arange(len(moved))
    extra = torch.from_numpy(rng.standard_normal(moved.shape))
    norm = torch.linalg.matrix_norm
    return (moved + noise * extra * (norm(moved) / norm(extra))[:, None, None])[order]


def run(trials, seed):
    """One row per noise, list and coordinates."""
    rows, cases = [], [(name, elements, table_of(elements)) for name, elements in groups()]
    for noise in NOISES:
        for kind in LISTS:
            for coordinates in COORDINATES:
                rng = np.random.default_rng(seed)
                start, right, order_right, worst, wrong = time.perf_counter(), 0, 0, 0.0, []
                for name, elements, finite in cases:
                    for _ in range(trials):
                        given = candidates(elements, finite, kind, coordinates, noise, rng)
                        group = Group.close(torch.zeros(0, *elements.shape[1:]), given)
                        order_right += group.components == len(elements)
                        right += (group.components, group.name) == (len(elements), name)
                        if group.name != name:
                            wrong.append(f"{name} -> {group.name}")
                        products = group.cosets[:, None] @ group.cosets[None]
                        worst = max(worst, float((products - group.cosets[group.cayley]).abs().max()))
                total = trials * len(cases)
                rows.append(
                    {
                        "noise": noise,
                        "list": kind,
                        "coordinates": coordinates,
                        "right": right / total,
                        "order_right": order_right / total,
                        "table_error": worst,
                        "milliseconds": 1e3 * (time.perf_counter() - start) / total,
                        "wrong": wrong,
                    }
                )
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=5, help="random coordinates per group")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the rows as JSON and nothing else")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = run(options.trials, options.seed)
    overall = sum(row["right"] for row in rows) / len(rows)
    if options.json:
        json.dump({"groups": len(groups()), "trials": options.trials, "right": overall, "rows": rows}, sys.stdout)
        return
    print(f"{len(groups())} groups x {options.trials} random coordinates")
    print(f"{'noise':>6} {'list':>14} {'coordinates':>12} {'right':>7} {'order':>7} {'table':>9} {'ms':>6}  wrong")
    for row in rows:
        print(
            f"{row['noise']:6.2f} {row['list']:>14} {row['coordinates']:>12} {row['right']:7.1%} "
            f"{row['order_right']:7.1%} {row['table_error']:9.1e} {row['milliseconds']:6.1f}  "
            + ", ".join(sorted(set(row["wrong"])))
        )
    print(f"order and name right: {overall:.1%}")


if __name__ == "__main__":
    main()
