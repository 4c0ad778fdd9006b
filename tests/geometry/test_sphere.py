"""Charts of the sphere: known functions and flows come out right from every chart, poles and date line included."""

import math

import pytest
import torch
from scipy.spatial.transform import Rotation

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas, Chart, PlaneChart
from atlasd.geometry.resample import pixel_grid
from atlasd.geometry.sphere import SphereChart, fibonacci_points, rotate_sphere
from atlasd.runtime.random import stream

SHAPE = (90, 180)
PLACES = [(0.0, 180.0), (0.5, 0.0), (40.0, 359.5), (88.0, 10.0), (90.0, 0.0), (-90.0, 77.0), (-85.0, -170.0)]
TANGENT = ["orthographic", "gnomonic", "equidistant"]
ARC = {"orthographic": math.asin, "gnomonic": math.atan, "equidistant": float}


def unit(latitude, longitude):
    a, b = math.radians(latitude), math.radians(longitude)
    return torch.tensor([math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a)], dtype=torch.float64)


def grid(poles=False):
    """Unit vectors of the pixels, with shape `(H, W, 3)`, and the directions to the east and to the north."""
    height, width = SHAPE
    row, column = torch.arange(height, dtype=torch.float64), torch.arange(width, dtype=torch.float64)
    a = torch.deg2rad(90 - (180 * row / (height - 1) if poles else (row + 0.5) * 180 / height))[:, None]
    b = torch.deg2rad((column + (0 if poles else 0.5)) * 360 / width)[None]
    x = torch.stack([a.cos() * b.cos(), a.cos() * b.sin(), a.sin() * torch.ones_like(b)], -1)
    east = torch.stack([-b.sin(), b.cos(), torch.zeros_like(b)], -1).expand_as(x)
    north = torch.stack([-a.sin() * b.cos(), -a.sin() * b.sin(), a.cos() * torch.ones_like(b)], -1)
    return x, east, north


def bumps(x):
    """A smooth function without any symmetry."""
    return torch.sin(2 * x[..., 0] + x[..., 1]) + x[..., 2] * x[..., 0] + 0.5 * torch.cos(3 * x[..., 1] - x[..., 2])


def turned_from(rotation, chart):
    """The chart that shows at `R x` what `chart` shows at `x`."""
    frame = Rotation.from_matrix(chart_frame(chart).numpy())
    moved = torch.from_numpy((rotation * frame).as_matrix())
    centre, row = moved[:, 0], moved[:, 1]
    latitude = math.degrees(math.asin(max(-1.0, min(1.0, float(centre[2])))))
    longitude = math.degrees(math.atan2(float(centre[1]), float(centre[0])))
    plain = chart_frame(SphereChart(latitude, longitude, 4, 2))
    turn = math.degrees(math.atan2(float(row @ plain[:, 2]), float(row @ plain[:, 1])))
    return SphereChart(latitude, longitude, chart.in_radius, chart.out_radius, chart.pixel, turn, chart.projection)


def chart_frame(chart):
    """Columns: the centre, the row axis, the column axis."""
    a, b = math.radians(chart.latitude), math.radians(chart.longitude)
    south = torch.tensor([math.sin(a) * math.cos(b), math.sin(a) * math.sin(b), -math.cos(a)], dtype=torch.float64)
    east = torch.tensor([-math.sin(b), math.cos(b), 0.0], dtype=torch.float64)
    c, s = math.cos(math.radians(chart.turn)), math.sin(math.radians(chart.turn))
    return torch.stack([unit(chart.latitude, chart.longitude), c * south + s * east, -s * south + c * east], 1)


@pytest.mark.parametrize("poles", [False, True])
@pytest.mark.parametrize("projection", TANGENT)
def test_an_invariant_function_looks_the_same_from_every_chart(projection, poles):
    x, _, _ = grid(poles)
    p = pixel_grid((17, 17), dtype=torch.float64).norm(dim=-1).reshape(17, 17) * math.radians(3)
    expected = torch.tensor(
        [[math.cos(3 * ARC[projection](d)) for d in row] for row in p.tolist()], dtype=torch.float64
    )
    for place in PLACES:
        field = torch.cos(3 * torch.acos((x @ unit(*place)).clamp(-1, 1)))[None, None]
        chart = SphereChart(*place, 8, 4, pixel=3.0, turn=33.0, projection=projection, poles=poles)
        assert float((chart.input_patch(field)[0, 0] - expected).abs().max()) < 2e-3
        assert float((chart.output_patch(field)[0, 0] - expected[4:-4, 4:-4]).abs().max()) < 2e-3


@pytest.mark.parametrize("projection", TANGENT)
def test_turning_the_sphere_and_the_chart_changes_nothing(projection):
    x, _, _ = grid()
    for seed, place in enumerate(PLACES):
        rotation = Rotation.random(random_state=seed)
        chart = SphereChart(*place, 8, 4, pixel=3.0, turn=40.0, projection=projection)
        moved = turned_from(rotation, chart)
        back = torch.from_numpy(rotation.as_matrix())
        here = chart.input_patch(bumps(x)[None, None])
        there = moved.input_patch(bumps(x @ back)[None, None])  # the function at R^-1 x
        assert float((here - there).abs().max()) < 2e-3
        assert float((here - moved.input_patch(bumps(x)[None, None])).abs().max()) > 0.05


@pytest.mark.parametrize("poles", [False, True])
@pytest.mark.parametrize("projection", [*TANGENT, "equirectangular"])
def test_vectors_of_a_known_flow(projection, poles):
    """A solid turn of the sphere, v = w x r, and what the tangent frame of the chart makes of it."""
    x, east, north = grid(poles)
    axis = torch.tensor([0.3, -0.7, 0.5], dtype=torch.float64)
    flow = torch.linalg.cross(axis.expand_as(x), x)
    field = torch.stack([bumps(x), (flow * east).sum(-1), (flow * north).sum(-1)])[None]
    for place in PLACES:
        options = {"pixel": 2.0, "turn": 25.0, "projection": projection, "poles": poles}
        chart = SphereChart(*place, 8, 4, vectors=((1, 2),), **options)
        patch = chart.input_patch(field)[0]
        torch.testing.assert_close(patch[0], SphereChart(*place, 8, 4, **options).input_patch(field)[0, 0])
        # Lengths are those on the sphere: compare with the scalar fields v.v and, at the centre, with the frame.
        speed = SphereChart(*place, 8, 4, **options).input_patch(flow.square().sum(-1)[None, None])[0, 0]
        assert float((patch[1:].square().sum(0) - speed).abs().max()) < 2e-3
        frame = chart_frame(chart)
        v = torch.linalg.cross(axis, frame[:, 0])
        assert float((patch[1:, 8, 8] - frame[:, 1:].mT @ v).abs().max()) < 1e-4


@pytest.mark.parametrize("projection", TANGENT)
def test_a_turn_about_the_centre_is_a_whirl_in_the_chart(projection):
    """Vectors that go around the centre must be at right angles to p everywhere in the patch."""
    x, east, north = grid()
    p = pixel_grid((17, 17), dtype=torch.float64).reshape(17, 17, 2).movedim(-1, 0)
    for place in PLACES:
        flow = torch.linalg.cross(unit(*place).expand_as(x), x)
        field = torch.stack([(flow * east).sum(-1), (flow * north).sum(-1)])[None]
        chart = SphereChart(*place, 8, 4, pixel=3.0, turn=70.0, projection=projection, vectors=((0, 1),))
        v = chart.input_patch(field)[0]
        assert float((v * p).sum(0).abs().max()) < 0.02
        # Seen from outside with rows to the south and columns to the east, it turns from rows to columns.
        assert float((p[0] * v[1] - p[1] * v[0]).min()) >= -1e-6 and float(v.abs().max()) > 0.2


def test_the_equirectangular_chart_is_the_grid():
    field = torch.randn(2, 1, *SHAPE, generator=stream(0), dtype=torch.float64)
    # The centre of pixel (30, 2); the window runs across the date line.
    chart = SphereChart(90 - 30.5 * 2, 2.5 * 2, 5, 3, pixel=2.0, projection="equirectangular")
    rolled = field.roll(20, -1)
    torch.testing.assert_close(chart.input_patch(field), PlaneChart((30, 22), 5, 3).input_patch(rolled))
    assert chart.locate(SHAPE) == pytest.approx((30, 2))


def test_classes_are_read_at_the_nearest_pixel():
    classes = torch.randint(11, (3, 1, *SHAPE), generator=stream(0))
    for place in PLACES:
        patch = SphereChart(*place, 6, 3, pixel=2.5).output_patch(classes)
        assert patch.dtype == torch.int64 and set(patch.unique().tolist()) <= set(range(11))
    bent = PlaneChart((20.5, 20.0), 4, 2)
    assert bent.output_patch(classes).dtype == torch.int64


def test_dtype_and_interface():
    chart = SphereChart(10, 20, 6, 3)
    assert isinstance(chart, Chart) and chart.center == (10, 20) and ad.SphereChart is SphereChart
    for dtype in (torch.float32, torch.float64):
        assert chart.input_patch(torch.zeros(2, 3, *SHAPE, dtype=dtype)).dtype == dtype


def test_an_atlas_spreads_its_charts_evenly():
    points = torch.stack([unit(*place) for place in fibonacci_points(40)])
    apart = torch.acos((points @ points.mT).fill_diagonal_(-1).clamp(-1, 1)).amin(1)
    assert float(apart.max() / apart.min()) < 1.6
    assert float(points.mean(0).norm()) < 0.05
    atlas = Atlas.sphere(40)
    assert len(atlas) == 40 and atlas.radii == (14, 10)
    # Output discs cover the sphere.
    x, _, _ = grid()
    nearest = torch.acos((x @ points.mT).amax(-1).clamp(-1, 1)).max()
    assert math.degrees(float(nearest)) < 10 * atlas.charts[0].pixel
    for charts in (1, 2, 3, 5):
        for projection in (*TANGENT, "equirectangular"):
            assert Atlas.sphere(charts, projection=projection).input_patches(torch.zeros(2, 1, *SHAPE)).isfinite().all()


@pytest.mark.parametrize("poles", [False, True])
def test_turning_a_field_moves_its_function(poles):
    x, _, _ = grid(poles)
    for seed in range(3):
        r = torch.from_numpy(Rotation.random(random_state=seed).as_matrix())
        moved = rotate_sphere(bumps(x)[None, None], r, poles=poles)[0, 0]
        assert float((moved - bumps(x @ r)).abs().max()) < 2e-3
    with pytest.raises(InputError, match="`rotation` must have shape"):
        rotate_sphere(bumps(x)[None, None], torch.eye(2))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SphereChart(91, 0, 4, 2), "`latitude` must lie between"),
        (lambda: SphereChart(0, 0, 4, 6), "`out_radius` must be at least 1"),
        (lambda: SphereChart(0, 0, 4, 2, projection="mercator"), "`projection` must be one of"),
        (lambda: SphereChart(0, 0, 20, 10, pixel=4.0, projection="orthographic"), "`pixel` must lie between"),
        (lambda: SphereChart(0, 0, 4, 2).check((60, 121)), "even number of columns"),
        (lambda: SphereChart(0, 0, 4, 2, vectors=((0, 3),)).input_patch(torch.zeros(1, 2, *SHAPE)), "`vectors` must"),
        (lambda: Atlas.sphere(0), "`charts` must be positive"),
    ],
)
def test_what_cannot_be(make, message):
    with pytest.raises(InputError, match=message):
        make()
