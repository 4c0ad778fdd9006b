"""Translations: a law of the distance between two points knows no origin, one with an anchor does.

Run: python examples/06_two_points.py
"""

import torch

import atlasd as ad


def bond(x):
    """Energy of two points, (N, 2, n), that attract each other: a function of their distance."""
    return torch.exp(-(x[:, 0] - x[:, 1]).square().sum(-1) / 6)


def anchored(x):
    """The same with a field that pulls the first point towards (2, 3)."""
    return bond(x) + 0.4 * torch.tanh((x[:, 0] - torch.tensor([2.0, 3.0])).square().sum(-1) / 4)


def main(samples=500):
    x = torch.randn(samples, 2, 2, generator=torch.Generator().manual_seed(0)) + torch.tensor([2.0, 3.0])
    free = ad.discover(x, function=bond, action=ad.AffineAction(), progress=False)
    print("free:", free, sep="\n")
    held = ad.discover(x, function=anchored, action=ad.AffineAction(), tolerance=0.1, progress=False)
    print("anchored:", held, sep="\n")
    return free, held


if __name__ == "__main__":
    main()
