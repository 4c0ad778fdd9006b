"""Atlases: charts together, tilings, and what does not fit."""

import math

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.geometry.charts import PlaneChart, WholeChart


def test_patches_of_all_charts(waves):
    field = waves(3, (30, 31), channels=2)
    atlas = Atlas.at([(10, 10), (15, 20)], in_radius=6, out_radius=4)
    x, y = atlas.input_patches(field), atlas.output_patches(field)
    assert x.shape == (3, 2, 2, 13, 13) and y.shape == (3, 2, 2, 9, 9)
    assert torch.equal(x[:, 1], atlas.charts[1].input_patch(field))
    assert torch.equal(y, x[..., 2:-2, 2:-2])
    assert len(atlas) == 2 and atlas.radii == (6, 4)
    assert atlas.select([1]).charts == atlas.charts[1:]


@pytest.mark.parametrize("shape", [(40, 40), (37, 52), (21, 21), (24, 25, 26)])
@pytest.mark.parametrize("radii", [(5, 3), (10, 10), (4, 1)])
def test_grid_fits_and_covers(shape, radii):
    atlas = Atlas.grid(shape, *radii)
    atlas.check(shape)
    seen = torch.zeros(shape, dtype=torch.int)
    for chart in atlas.charts:
        window = tuple(slice(int(c) - radii[1], int(c) + radii[1] + 1) for c in chart.center)
        seen[window] += 1
    margin = radii[0] - radii[1]
    reachable = seen[tuple(slice(margin, size - margin) for size in shape)]
    assert reachable.min() >= 1 and reachable.sum() == seen.sum()
    assert len(atlas) <= math.prod(math.ceil(size / (2 * radii[1] + 1)) for size in reachable.shape)


def test_grid_that_fits_exactly_does_not_overlap():
    atlas = Atlas.grid((25, 25), 5, 3)  # 21 pixels can be reached, 7 by each chart
    assert [chart.center for chart in atlas.charts[:3]] == [(5, 5), (5, 12), (5, 19)]
    assert len(atlas) == 9


def test_grid_with_a_stride_overlaps():
    assert len(Atlas.grid((40, 40), 5, 3, stride=3)) > len(Atlas.grid((40, 40), 5, 3))


def test_grid_that_does_not_fit():
    with pytest.raises(InputError, match=r"`in_radius` must fit into the field.*got 12; use at most 9"):
        Atlas.grid((40, 20), 12, 3)


@pytest.mark.parametrize("stride", [0, -3])
def test_grid_stride_must_be_positive(stride):
    with pytest.raises(InputError, match="`stride` must be positive"):
        Atlas.grid((40, 40), 5, 3, stride=stride)


def test_check_names_the_chart_that_leaves():
    atlas = Atlas.at([(20, 20), (20, 38)], in_radius=5, out_radius=3)
    with pytest.raises(InputError, match=r"chart at \(20.0, 38.0\) with in_radius=5 must lie inside"):
        atlas.check((40, 40))


def test_distortions_by_chart_number():
    atlas = Atlas.at([(20, 20), (20, 22)], 5, 3, distortions={1: [[1.0, 0.5], [0.0, 1.0]]})
    assert atlas.charts[0].distortion is None
    assert atlas.charts[1].distortion == ((1.0, 0.5), (0.0, 1.0))
    with pytest.raises(InputError, match=r"`distortions` must name charts 0 to 1, got \[2\]"):
        Atlas.at([(20, 20), (20, 22)], 5, 3, distortions={2: [[1.0, 0.5], [0.0, 1.0]]})


def test_charts_of_unequal_size_and_none():
    with pytest.raises(InputError, match="same radii"):
        Atlas((PlaneChart((9, 9), 3, 2), PlaneChart((9, 9), 4, 2)))
    with pytest.raises(InputError, match="same radii"):
        Atlas((PlaneChart((9, 9), 3, 2), WholeChart()))
    with pytest.raises(InputError, match="at least one chart"):
        Atlas.at([], 3, 2)


def test_whole():
    atlas = Atlas.whole()
    field = torch.randn(2, 1, 5, 5)
    assert atlas.radii is None and torch.equal(atlas.input_patches(field)[:, 0], field)
    atlas.check((5, 5))
