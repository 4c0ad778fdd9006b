"""Charts and atlases."""

import math

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas, Chart, PlaneChart, WholeChart

SHEAR = ((1.0, 0.5), (0.0, 1.0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("center", [(9, 11), (9, 11, 8)])
def test_slices_equal_resampling(center, dtype, waves):
    field = waves(2, (20, 21, 19)[: len(center)], channels=2, dtype=dtype)
    plain = PlaneChart(center, in_radius=4, out_radius=2)
    eye = tuple(tuple(float(i == j) for j in range(len(center))) for i in range(len(center)))
    resampled = PlaneChart(center, in_radius=4, out_radius=2, distortion=eye)
    for one, other in (
        (plain.input_patch(field), resampled.input_patch(field)),
        (plain.output_patch(field), resampled.output_patch(field)),
    ):
        assert one.dtype == other.dtype == dtype
        torch.testing.assert_close(one, other)


def test_patches_have_the_pixels_of_the_field():
    field = torch.arange(400.0).reshape(1, 1, 20, 20)
    chart = PlaneChart((5, 12), in_radius=3, out_radius=1)
    assert torch.equal(chart.input_patch(field)[0, 0], field[0, 0, 2:9, 9:16])
    assert torch.equal(chart.output_patch(field)[0, 0], field[0, 0, 4:7, 11:14])


def test_space():
    field = torch.arange(1000.0).reshape(1, 1, 10, 10, 10)
    chart = PlaneChart((4, 5, 6), in_radius=2, out_radius=1)
    assert torch.equal(chart.output_patch(field)[0, 0], field[0, 0, 3:6, 4:7, 5:8])
    chart.check((10, 10, 10))
    with pytest.raises(InputError, match="must lie inside the field"):
        chart.check((10, 10, 8))


def test_between_pixels():
    rows = torch.arange(12.0)[:, None].expand(12, 12)[None, None]
    patch = PlaneChart((5.5, 5), in_radius=2, out_radius=1).output_patch(rows)
    torch.testing.assert_close(patch[0, 0, :, 0], torch.tensor([4.5, 5.5, 6.5]))


def test_distortion_shows_the_field_at_centre_plus_m_p():
    rows = torch.arange(30.0)[:, None].expand(30, 30)[None, None]
    patch = PlaneChart((15, 15), in_radius=4, out_radius=3, distortion=SHEAR).output_patch(rows)
    offsets = torch.arange(-3.0, 4.0)
    torch.testing.assert_close(patch[0, 0], 15 + offsets[:, None] + 0.5 * offsets[None, :])
    # Columns are not sheared.
    patch = PlaneChart((15, 15), in_radius=4, out_radius=3, distortion=SHEAR).output_patch(rows.mT)
    torch.testing.assert_close(patch[0, 0], (15 + offsets).expand(7, 7))


@pytest.mark.parametrize("center", [(3, 10), (10, 3), (16, 10), (10, 16), (-5, 10)])
def test_a_chart_outside_the_field_is_refused(center):
    with pytest.raises(InputError, match=r"must lie inside the field of shape .* make the radius smaller"):
        PlaneChart(center, in_radius=4, out_radius=2).check((20, 20))


def test_the_edge_of_the_field_is_inside():
    PlaneChart((4, 15), in_radius=4, out_radius=2).check((20, 20))


def test_a_distorted_chart_may_leave_where_a_plain_one_does_not():
    PlaneChart((5, 10), in_radius=5, out_radius=2).check((20, 20))
    with pytest.raises(InputError, match="must lie inside"):
        PlaneChart((5, 10), in_radius=5, out_radius=2, distortion=SHEAR).check((20, 20))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((1,), 2, 1), "`center` must have 2 or 3 coordinates, got 1"),
        (((1, 2, 3, 4), 2, 1), "`center` must have 2 or 3 coordinates, got 4"),
        (((9, 9), 2, 3), "`out_radius` must be at least 1 and at most `in_radius`"),
        (((9, 9), 2, 0), "`out_radius` must be at least 1"),
    ],
)
def test_bad_charts(arguments, message):
    with pytest.raises(InputError, match=message):
        PlaneChart(*arguments)


def test_wrong_number_of_axes():
    with pytest.raises(InputError, match="as many coordinates as the field has axes"):
        PlaneChart((9, 9), 2, 1).check((20, 20, 20))


def test_whole_chart_is_the_field():
    field = torch.randn(2, 1, 5, 6)
    chart = WholeChart()
    assert chart.input_patch(field) is field and chart.output_patch(field) is field
    chart.check((5, 6))
    assert isinstance(chart, Chart) and isinstance(PlaneChart((9, 9), 2, 1), Chart)


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
