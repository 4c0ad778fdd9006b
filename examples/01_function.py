"""The symmetry of a function: no data to learn from, the function itself is asked.

Run: python examples/01_function.py
"""

import torch

import atlasd as ad


def main(samples=1000):
    generator = torch.Generator().manual_seed(0)
    points = torch.randn(samples, 3, generator=generator)

    # A distance does not change when space is turned or mirrored.
    found = ad.discover(points, function=lambda p: p.norm(dim=-1), progress=False)
    print("distance:", found, sep="\n")

    # A diamond has only the symmetries of the square: a finite group, and no generator.
    diamond = ad.discover(points[:, :2], function=lambda p: p.abs().sum(-1), progress=False)
    print("diamond:", diamond, sep="\n")

    # A function without symmetry: the answer is a plain no.
    def crooked(p):
        return torch.sin(p[:, 0] + 0.5 * p[:, 1] ** 2) + p[:, 0] * p[:, 1] ** 3

    nothing = ad.discover(points[:, :2], function=crooked, progress=False)
    print("crooked:", nothing, sep="\n")
    return found, diamond, nothing


if __name__ == "__main__":
    main()
