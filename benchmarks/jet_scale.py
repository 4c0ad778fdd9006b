"""Do labels of jets depend on the scale of momenta, or on boosts across the beam? From histograms, without a network.

Run: python benchmarks/jet_scale.py [--sizes 0.0625 0.125 0.25] [--boosts 0.05 0.1 0.2]

Half of all jets gives the share of tops in cells of mass and transverse momentum of the jet; the other half is asked
what it costs to predict its labels at scaled masses and momenta, and at those that
boosts along x by a rapidity lead to, where both cells hold at least 30 jets. Printed is the
strength of the breaking with two standard errors of its square, and the share of jets that are asked.
"""

import argparse
import math

import torch

from atlasd.studies.jets.data import load_jets

FEWEST = 30
MASSES, MOMENTA = torch.linspace(0, 300, 76).double(), torch.linspace(380, 655, 23).double()


def cells(mass, momentum):
    """Number of the cell of each jet, and whether it lies in one."""
    i, j = torch.bucketize(mass, MASSES) - 1, torch.bucketize(momentum, MOMENTA) - 1
    rows, columns = len(MASSES) - 1, len(MOMENTA) - 1
    inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
    return i.clamp(0, rows - 1) * columns + j.clamp(0, columns - 1), inside


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=[0.0625, 0.125, 0.25])
    parser.add_argument("--boosts", type=float, nargs="+", default=[0.05, 0.1, 0.2])
    options = parser.parse_args()
    x, y = load_jets(None, samples=None, constituents=30, invalid="raise")
    p, y = x.double().sum(1), y.double()
    mass = (p[:, 0].square() - p[:, 1:].square().sum(1)).clamp_min(0).sqrt()
    momentum = p[:, 1:3].norm(dim=1)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    known, asked = order[: len(y) // 2], order[len(y) // 2 :]
    number, inside = cells(mass[known], momentum[known])
    count, tops = (
        torch.zeros((len(MASSES) - 1) * (len(MOMENTA) - 1)).double().index_add(0, number[inside], w[inside])
        for w in (torch.ones(len(known)).double(), y[known])
    )
    share = tops / count.clamp_min(1)
    y, mass, momentum, p = y[asked], mass[asked], momentum[asked], p[asked]
    here, inside = cells(mass, momentum)
    inside = inside & (count[here] >= FEWEST)
    plain = (y - share[here]).square()
    print(f"{len(y)} jets asked; mass and momentum explain {1 - float(plain[inside].mean() / y[inside].var()):.1%}")
    signed = [(s * t, kind) for kind in ("sizes", "boosts") for t in getattr(options, kind) for s in (1, -1)]
    for t, kind in signed:
        if kind == "sizes":
            what, there = f"momenta times {math.exp(t):.3f}", (mass * math.exp(t), momentum * math.exp(t))
        else:
            what, there = f"boost by {t:+.3f}", (mass, (math.cosh(t) * p[:, 1] + math.sinh(t) * p[:, 0]).hypot(p[:, 2]))
        there, reached = cells(*there)
        held = inside & reached & (count[there] >= FEWEST)
        excess, label, said = ((y - share[there]).square() - plain)[held], y[held], share[there][held]
        null = label.square().mean() - 2 * label.mean() * said.mean() + said.square().mean() - plain[held].mean()
        ratio, error = float(excess.mean() / null), float(2 * excess.std() / len(excess) ** 0.5 / null)
        low, high = (math.sqrt(max(ratio + s * error, 0.0)) for s in (-1, 1))
        print(
            f"{what}: breaking {math.sqrt(max(ratio, 0)):.1%} ({low:.1%} to {high:.1%}), "
            f"{float(held.double().mean()):.0%} of the jets"
        )


if __name__ == "__main__":
    main()
