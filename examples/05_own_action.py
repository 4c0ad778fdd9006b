"""An action of your own: when space turns, the arrows of a vector field turn with it.

Run: python examples/05_own_action.py
"""

import torch
from torch.nn import functional

import atlasd as ad


def bell(width):
    """A round bump, (1, 1, 13, 13), that sums to one."""
    p = torch.arange(-6.0, 7.0)
    kernel = torch.exp(-(p[:, None].square() + p[None].square()) / (2 * width**2))
    return (kernel / kernel.sum())[None, None]


def draw_fields(samples, size=31):
    """Smooth random scalar fields, (N, 1, size, size)."""
    noise = torch.randn(samples, 1, size + 12, size + 12, generator=torch.Generator().manual_seed(0))
    return 5 * functional.conv2d(noise, bell(2.0))


def wind(x):
    """Air that flows down the slope of a blurred field, (N, 2, H, W): along rows, and along columns."""
    blurred = functional.conv2d(x, bell(1.5), padding=6)
    return -torch.cat([torch.gradient(blurred, dim=d)[0] for d in (-2, -1)], dim=1)


def main(samples=40):
    x = draw_fields(samples)
    atlas = ad.Atlas.at([(15, 15)], in_radius=13, out_radius=6)

    # An arrow that is turned by g has its components mixed by g: the representation on outputs is g itself.
    arrows = ad.GridAction(rho_out=lambda g: g)
    told = ad.discover(x, function=wind, atlas=atlas, action=arrows, progress=False)
    print("outputs are arrows:", told, sep="\n")

    # Told that outputs are two unrelated numbers, it finds no generator: a turn mixes them.
    untold = ad.discover_generators(x, function=wind, atlas=atlas)
    print("outputs are two numbers:", untold, sep="\n")
    return told, untold


if __name__ == "__main__":
    main()
