"""Where charts may lie: reach, obstacles, missing pixels, and maps that are not local at all."""

import pytest
import torch

import atlasd as ad
from atlasd.discovery.locality import survey_charts
from atlasd.errors import InputError


@pytest.fixture(scope="module")
def noise():
    return torch.randn(80, 1, 36, 36, generator=torch.Generator().manual_seed(0))


def moved(x, *shifts):
    return sum(x.roll(s, (-2, -1)) for s in shifts)


@pytest.mark.parametrize("distance", [1, 4])
def test_reach_is_measured(noise, distance):
    survey = survey_charts(noise, moved(noise, (0, 0), (distance, 0), (0, -distance)))
    assert survey.reach == distance and survey.local and not survey.dropped
    assert survey.outside[distance] < 0.02 < 0.3 < max(survey.outside.values()) or distance == 1
    assert survey.atlas.radii[0] - survey.atlas.radii[1] >= max(distance, 3)


def test_products_of_neighbours_are_local_too(noise):
    survey = survey_charts(noise, noise.roll(1, -1) * noise.roll(-1, -1))
    assert survey.reach == 1 and survey.local and min(survey.skills) > 0.5


def test_a_wide_model_that_is_worse_says_nothing_about_reach():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(24, 1, 40, 40, generator=generator)
    y = (x.roll(1, -1) - x.roll(-1, -1)).abs()  # no product of a few components holds it, and weights overfit
    survey = survey_charts(x, y + moved(x, (0, 1), (0, -1)))
    shares = list(survey.outside.values())
    assert shares == sorted(shares, reverse=True) and survey.outside[survey.reach] < 0.02
    assert survey.reach == 1 and survey.local and "1 pixel away" in survey.describe()


def test_a_map_that_reaches_far_is_not_called_local():
    x = torch.randn(80, 1, 44, 44, generator=torch.Generator().manual_seed(1))
    x = torch.nn.functional.avg_pool2d(x, 9, 1, 4) * 9
    survey = survey_charts(x, moved(x, (0, 0), (0, 1)) + 2 * x.roll(13, -1))
    assert not survey.local and "not local at any radius" in survey.describe()


def test_charts_over_an_obstacle_are_dropped(noise):
    y = moved(noise, (0, 1), (1, 0))
    y[..., :14, :14] = 1.0
    survey = survey_charts(noise, y)
    assert survey.dropped and all(d.outlier and d.reason.startswith("dropped: ") for d in survey.dropped)
    out = survey.atlas.radii[1]
    for chart, skill in zip(survey.atlas.charts, survey.skills, strict=True):
        assert (skill > 0.99) == (max(chart.center) - out >= 14)
    assert all(max(d.center) + out < 14 for d in survey.dropped)


def test_charts_do_not_touch_masked_pixels(noise):
    masked = torch.zeros(36, 36, dtype=torch.bool)
    masked[:5] = True
    survey = survey_charts(noise, moved(noise, (0, 1)), masked=masked)
    inner = survey.atlas.radii[0]
    assert all(c.center[0] - inner >= 5 for c in survey.atlas.charts)
    assert all("missing" in d.reason for d in survey.dropped)
    masked[:] = True
    with pytest.raises(InputError, match="must not touch missing pixels"):
        survey_charts(noise, moved(noise, (0, 1)), masked=masked)


def test_without_any_skill_some_charts_are_left_for_the_verdict(noise):
    other = noise[torch.randperm(len(noise), generator=torch.Generator().manual_seed(2))]
    survey = survey_charts(noise, other)
    assert 1 <= len(survey.atlas) <= 4 and max(survey.skills) < 0.3


def test_given_radii_are_kept(noise):
    survey = survey_charts(noise, moved(noise, (0, 1)), in_radius=9, out_radius=5)
    assert survey.atlas.radii == (9, 5)
    assert ad.survey_charts is survey_charts
    with pytest.raises(InputError, match="charts must fit"):
        survey_charts(noise[..., :6, :6], noise[..., :6, :6])
    with pytest.raises(InputError, match="vectors need no charts"):
        survey_charts(noise[:, 0, 0], noise[:, 0, 0, 0])


def test_a_map_that_is_not_linear_needs_no_atlas():
    white = torch.randn(60, 1, 32, 32, generator=torch.Generator().manual_seed(5))
    x = torch.nn.functional.avg_pool2d(white, 5, stride=1)
    slope = torch.stack(torch.gradient(x, dim=(2, 3)))
    found = ad.discover(x, slope.square().sum(0), cosets=False, progress=False)
    assert found.group.name == "SO(2)" and len(found.charts) > 1
