"""Shifts on charts: is the law the same a few pixels away, and where is it not?

Run: python examples/09_nearby.py
"""

import torch
from torch.nn import functional

import atlasd as ad


def fields(samples, size=47):
    """Isotropic random fields, (N, 1, size, size)."""
    line = torch.arange(-7.0, 8.0)
    bell = torch.exp(-(line[:, None] ** 2 + line[None] ** 2) / 12.5)
    noise = torch.randn(samples, 1, size + 14, size + 14, generator=torch.Generator().manual_seed(0))
    return functional.conv2d(noise, bell[None, None] / bell.sum() * 5)


def diffusion(x, uneven=0.0):
    """What diffusion does to a field; in the upper half its speed may change from column to column."""
    kernel = torch.tensor([[1.0, 4.0, 1.0], [4.0, -20.0, 4.0], [1.0, 4.0, 1.0]]) / 6
    change = functional.conv2d(functional.pad(x, (1, 1, 1, 1), mode="replicate"), kernel[None, None])
    speed = torch.ones(x.shape[-2:])
    speed[: x.shape[-2] // 2] += uneven * torch.sin(torch.arange(x.shape[-1]) * torch.pi / 12)
    return speed * change


def main(samples=160):
    x = fields(samples)
    atlas = ad.Atlas.at([(12, 12), (12, 34), (34, 12), (34, 34)], in_radius=11, out_radius=8)
    found = ad.discover(
        x, diffusion(x, uneven=0.8), atlas=atlas, action=ad.GridAction(translations=True), progress=False
    )
    print(found)
    print("charts on which the law changes:", [chart.center for chart in found.charts if chart.outlier])
    return found


if __name__ == "__main__":
    main()
