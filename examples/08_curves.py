"""Fields that are not linear: along which curves does a number stay as it is?

Run: python examples/08_curves.py
"""

import torch

import atlasd as ad


def main(samples=1000):
    x = 2 * torch.randn(samples, 2, generator=torch.Generator().manual_seed(0))
    curves = ad.PolynomialAction(degree=2)
    cubic = ad.discover(x, x[:, 0] ** 3 - x[:, 1] ** 2, action=curves, progress=False)
    print("x^3 - y^2:", cubic, sep="\n")
    circle = ad.discover(x, (x - 1).square().sum(-1), action=curves, progress=False)
    print("circles about (1, 1):", circle, sep="\n")
    return cubic, circle


if __name__ == "__main__":
    main()
