"""Channels without names: which of them turn together when the plane is rotated?

Run: python examples/10_channels.py
"""

import torch
from torch.nn import functional

import atlasd as ad


def fields(samples, channels, size=31):
    """Isotropic random fields, (N, channels, size, size)."""
    line = torch.arange(-7.0, 8.0)
    bell = torch.exp(-(line[:, None] ** 2 + line[None] ** 2) / 12.5)
    shape = (samples * channels, 1, size + 14, size + 14)
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return functional.conv2d(noise, bell[None, None] / bell.sum() * 5).reshape(samples, channels, size, size)


def vorticity(x):
    """How fast a wind of two components, (N, 2, H, W), turns."""
    return (torch.gradient(x[:, 1], dim=-1)[0] - torch.gradient(x[:, 0], dim=-2)[0])[:, None]


def main(samples=24):
    atlas = ad.Atlas.at([(15, 15)], in_radius=13, out_radius=5)
    found = ad.discover_representation(fields(samples, 2), function=vorticity, atlas=atlas)
    print(found)
    return found


if __name__ == "__main__":
    main()
