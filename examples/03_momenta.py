"""Special relativity from pairs of momenta: which matrices leave the mass of a pair as it is?

Run: python examples/03_momenta.py
"""

import math

import torch

import atlasd as ad


def draw_pairs(samples):
    """Pairs of particles, (N, 2, 4): energy first, then three components of momentum."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(samples, 2, 3, generator=generator, dtype=torch.float64)
    energy = (p.square().sum(-1) + 0.1).sqrt()
    return torch.cat([energy.unsqueeze(-1), p], dim=-1)


def log_mass(pairs):
    """Logarithm of the invariant mass squared of each pair."""
    total = pairs.sum(1)
    return (total[:, 0].square() - total[:, 1:].square().sum(-1)).clamp_min(1e-6).log()


def main(samples=1500):
    pairs = draw_pairs(samples)
    found = ad.discover(pairs, function=log_mass, progress=False)
    print(found)

    # Which quadratic form do all six generators leave alone? The metric of spacetime, up to its sign.
    lorentz = ad.known.so(1, 3)
    angle = math.degrees(math.asin(min(found.algebra.distance(lorentz), 1.0)))
    print(f"angle to so(1,3): {angle:.4f} degrees; {ad.identify(found.group).name}")
    return found


if __name__ == "__main__":
    main()
