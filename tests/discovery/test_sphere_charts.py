"""Discovery on a sphere: a blur that is the same everywhere commutes with turns of every chart, poles included."""

import math

import torch

import atlasd as ad
from atlasd.algebra.known import so
from atlasd.discovery.discover import discover
from atlasd.runtime.random import stream


def blurred(samples, height=60, spots=60):
    """Sums of round spots, and the same sums of wider spots: a convolution over the sphere."""
    generator = stream(0, "spots")
    centres = torch.randn(samples, spots, 3, generator=generator)
    centres = centres / centres.norm(dim=-1, keepdim=True)
    a = torch.deg2rad(90 - (torch.arange(height) + 0.5) * 180 / height)[:, None]
    b = torch.deg2rad((torch.arange(2 * height) + 0.5) * 180 / height)[None]
    grid = torch.stack([a.cos() * b.cos(), a.cos() * b.sin(), a.sin() * torch.ones_like(b)], -1)
    weights = torch.randn(samples, spots, 1, 1, generator=generator)
    near = torch.einsum("nsi,hwi->nshw", centres, grid) - 1
    wide = torch.exp(40 * near)
    x = (weights * wide * wide.sqrt()).sum(1, keepdim=True)
    y = (weights * wide).sum(1, keepdim=True)
    return x, y


def test_turns_are_found_in_charts_all_over_the_sphere():
    x, y = blurred(60)
    atlas = ad.Atlas.sphere(3, in_radius=10, out_radius=7, pixel=3.0)
    found = discover(x, y, atlas=atlas, seed=0, cosets=False, progress=False)
    assert found.group.dimension == 1
    assert math.degrees(math.asin(found.algebra.distance(so(2)))) < 2
    places = [c.center for c in found.charts]
    assert all(0 <= row < 60 and 0 <= column < 120 for row, column in places)


def test_a_blur_along_meridians_is_not_taken_for_one_with_turns():
    x, _ = blurred(60)
    y = sum(w * x.roll(s, -2) for s, w in ((-3, 0.5), (-1, 1.0), (0, 1.0), (1, 1.0), (3, 0.5)))
    atlas = ad.Atlas.at([(30, 20), (30, 80)], in_radius=10, out_radius=7)
    found = discover(x, y, atlas=atlas, seed=0, cosets=False, progress=False)
    assert found.group.dimension != 1 or found.algebra.distance(so(2)) > 0.3
