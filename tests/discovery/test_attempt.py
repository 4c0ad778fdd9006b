"""Translations beside a group, and charts."""

import math

import pytest
import torch
from torch.nn import functional

import atlasd as ad
from atlasd.algebra.known import so
from atlasd.discovery.discover import discover
from atlasd.errors import InputError
from atlasd.prediction.stencil import StencilPredictor
from atlasd.runtime.random import stream

ATLAS = ad.Atlas.at([(12, 12), (12, 34), (34, 12), (34, 34)], in_radius=11, out_radius=8)
SHIFTS = {"action": ad.GridAction(translations=True), "cosets": False, "progress": False, "atlas": ATLAS}


def fields(samples=160, seed=0):
    line = torch.arange(-7.0, 8.0)
    bell = torch.exp(-(line[:, None] ** 2 + line[None] ** 2) / 12.5)
    noise = torch.randn(samples, 1, 61, 61, generator=stream(seed, "fields"))
    return functional.conv2d(noise, bell[None, None] / bell.sum() * 5)


def smoothed(x):
    line = torch.arange(-2.0, 3.0)
    bell = torch.exp(-(line[:, None] ** 2 + line[None] ** 2) / 4)
    return functional.conv2d(functional.pad(x, (2, 2, 2, 2), mode="replicate"), bell[None, None]) - bell.sum() * x


def uneven(y, where=slice(None)):
    """The same with a factor that changes over the columns of some rows."""
    factor = torch.ones(47, 47)
    factor[where] += 0.8 * torch.sin(torch.arange(47.0) * 2 * torch.pi / 24)
    return factor * y


def test_stencils_that_change_over_a_chart():
    x = fields(60)
    y = smoothed(x) * (torch.arange(47.0) - 12)
    plain, placed = (ad.fit_predictor(x, y, predictor=StencilPredictor(placed=p), atlas=ATLAS) for p in (False, True))
    assert float(placed.chart_skill[0]) > 0.9 and float(plain.chart_skill[0]) < 0.2


@pytest.mark.slow
def test_one_law_everywhere():
    x = fields()
    assert ad.discover(x, smoothed(x), **SHIFTS | {"cosets": None}).group.name == "E(2)"


@pytest.mark.slow
def test_a_law_that_changes_from_place_to_place():
    x = fields()
    found = ad.discover(x, uneven(smoothed(x)), **SHIFTS)
    assert not any(float(a[:2, 2].norm()) > 0.5 and abs(float(a[1, 2])) > 0.1 for a in found.algebra.basis)


@pytest.mark.slow
def test_charts_on_which_the_law_changes_are_named():
    x = fields()
    found = ad.discover(x, uneven(smoothed(x), where=slice(0, 23)), **SHIFTS)
    assert found.group.name == "SE(2)" and [chart.outlier for chart in found.charts] == [True, True, False, False]


def test_only_predictors_that_may_change_are_asked():
    x = fields(40)
    with pytest.raises(InputError, match="must be a StencilPredictor where fields are shifted"):
        ad.discover(x, smoothed(x), predictor=ad.ConvPredictor(), **SHIFTS)
    with pytest.raises(InputError, match="SpectralSearch with translations"):
        ad.discover(x, smoothed(x), search=ad.GradientSearch(), **SHIFTS)


def test_translations_of_vectors_are_mentioned():
    x = torch.randn(300, 2, generator=stream(0, "points"), dtype=torch.float64) * torch.tensor([2.0, 1.0]) + 1
    bowl = (x[:, 0] - 1) ** 2 + 4 * (x[:, 1] - 1) ** 2
    said = ad.discover(x, bowl, cosets=False, progress=False).verdict.reason
    assert "with translations there is more: 1 generator in place of 0, SO(2)" in said
    assert (
        "translations" not in ad.discover(x, x[:, 0] ** 2 + x[:, 1] ** 2, cosets=False, progress=False).verdict.reason
    )


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
