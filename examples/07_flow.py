"""Flows: what commutes with a differential equation, and what it conserves.

Run: python examples/07_flow.py
"""

import torch

import atlasd as ad


def spring(v, friction=0.0):
    """Velocities of states (position, momentum) of a mass on a spring."""
    return torch.stack([v[:, 1], -v[:, 0] - friction * v[:, 1]], dim=-1)


def whirl(v):
    """A whirl that settles on the unit circle."""
    r = v.square().sum(-1, keepdim=True)
    return v - r * v + torch.stack([-v[:, 1], v[:, 0]], dim=-1)


def main(samples=600):
    x = torch.randn(samples, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    answers = []
    for name, speeds in (("whirl", whirl(x)), ("spring", spring(x)), ("with friction", spring(x, 0.3))):
        found = ad.discover_flow(x, speeds, cosets=False)
        print(f"{name}:", found, sep="\n")
        answers.append(found)
    return answers


if __name__ == "__main__":
    main()
