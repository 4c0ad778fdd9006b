"""`discover` end to end on small problems: what is there is found, what is not is not claimed."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError

SHEARED = ((1.0, 0.5), (0.0, 1.0))
QUICK = ad.SpectralSearch(samples=16)
SMALL = ad.MLPPredictor(hidden=(32, 32))


@pytest.fixture(scope="module")
def fields(waves):
    return waves(120, (33, 48), length=7.0)


@pytest.fixture(scope="module")
def atlas():
    return ad.Atlas.at([(16, 13), (16, 23), (16, 34)], in_radius=12, out_radius=9)


def heat(x, steps=4):
    """Explicit steps of heat flow with a five-point Laplacian."""
    for _ in range(steps):
        x = torch.nn.functional.pad(x, (1, 1, 1, 1), mode="replicate")
        inner = x[..., 1:-1, 1:-1]
        around = x[..., 2:, 1:-1] + x[..., :-2, 1:-1] + x[..., 1:-1, 2:] + x[..., 1:-1, :-2]
        x = inner + 0.2 * (around - 4 * inner)
    return x


def test_heat_flow_has_o2(fields, atlas, exact):
    found = ad.discover(fields, heat(fields), atlas=atlas, progress=False)
    assert found.verdict.symmetric and found.group.name == "O(2)"
    assert exact.degrees(found.algebra, ad.known.so(2)) < 1.0
    assert found.group.components == 2 and torch.equal(found.cosets[0], torch.eye(2).double())
    assert [d.decision for d in found.verdict.directions] == ["symmetry"]
    assert not any(chart.outlier for chart in found.charts) and found.predictor.skill > 0.8
    assert found.chart_generators is not None and found.chart_generators.shape == (3, 1, 2, 2)
    assert "O(2)" in str(found)


def test_generic_stencil_has_nothing(fields, atlas, exact):
    found = ad.discover(fields, exact.generic(fields), atlas=atlas, search=QUICK, cosets=False, progress=False)
    assert not found.verdict.symmetric and found.group.dimension == 0
    assert "symmetry" not in {d.decision for d in found.verdict.directions}
    assert found.verdict.reason.startswith(("No symmetry", "Cannot tell"))


def test_shuffled_targets_allow_no_claim(fields, atlas):
    order = torch.randperm(120, generator=torch.Generator().manual_seed(0))
    recipe = ad.StencilPredictor(width=5)
    found = ad.discover(fields, heat(fields)[order], atlas=atlas, predictor=recipe, progress=False)
    assert not found.verdict.symmetric and found.group.name == "trivial"
    assert found.verdict.reason.startswith("Cannot tell")


@pytest.mark.parametrize("output", ["identity", "constant", "pointwise"])
@pytest.mark.parametrize("door", ["targets", "function"])
def test_what_commutes_with_everything_is_never_a_symmetry(fields, atlas, output, door):
    function = {"identity": lambda x: x, "constant": lambda x: 0 * x + 2, "pointwise": lambda x: x**3 - x}[output]
    options = {"atlas": atlas, "progress": False}
    if door == "function":
        found = ad.discover(fields, function=function, **options)
    else:
        found = ad.discover(fields, function(fields), predictor=ad.StencilPredictor(width=5), **options)
    assert not found.verdict.symmetric and found.group.name == "trivial"
    assert found.verdict.reason.startswith(("Not testable", "Cannot tell"))


def test_constant_of_vectors_is_never_a_symmetry(exact):
    found = ad.discover(exact.normal(200, 2), function=lambda x: 0 * x[:, 0] + 1, progress=False)
    assert not found.verdict.symmetric and found.verdict.reason.startswith("Not testable")


def test_a_sheared_chart_stands_apart(waves, exact):
    x = waves(120, (41, 60), length=7.0)
    bent = ad.Atlas.at([(20, 12), (20, 30), (20, 47)], in_radius=12, out_radius=9, distortions={1: SHEARED})
    found = ad.discover(x, heat(x), atlas=bent, search=QUICK, cosets=False, progress=False)
    assert [chart.outlier for chart in found.charts] == [False, True, False]
    assert exact.degrees(found.algebra, ad.known.so(2)) < 2.0
    assert found.charts[1].reason and found.charts[1].error > 5 * found.charts[0].error
    assert "3 charts, outliers: 1" in str(found)


@pytest.mark.parametrize("shear", [SHEARED, ((1.0, 0.0), (-0.6, 1.0))])
def test_charts_are_counted_where_the_sheared_one_is_known_best(waves, exact, shear):
    x = waves(120, (41, 60), length=7.0)
    y = heat(x)
    noise = 0.02 * exact.normal(*y.shape)
    noise[..., 18:43] = 0  # its chart alone is free of noise, and weighs more than both others
    bent = ad.Atlas.at([(20, 12), (20, 30), (20, 47)], in_radius=12, out_radius=9, distortions={1: shear})
    options = {"search": QUICK, "predictor": ad.StencilPredictor(), "cosets": False, "progress": False}
    found = ad.discover(x, y + noise, atlas=bent, **options)
    weights = [(c.skill / (1 - c.skill)) ** 2 for c in found.charts]
    assert weights[1] > weights[0] + weights[2]
    assert [chart.outlier for chart in found.charts] == [False, True, False]
    assert exact.degrees(found.algebra, ad.known.so(2)) < 2.0


def test_charts_that_are_sheared_in_three_ways_share_no_generator(waves):
    x = waves(120, (61, 110), length=7.0)
    shears = {0: ((1.0, 0.8), (0.0, 1.0)), 1: ((1.0, 0.0), (0.8, 1.0)), 2: ((1.4, 0.0), (0.0, 0.7))}
    bent = ad.Atlas.at([(30, 24), (30, 54), (30, 84)], in_radius=12, out_radius=9, distortions=shears)
    found = ad.discover(x, heat(x), atlas=bent, search=QUICK, cosets=False, progress=False)
    assert found.group.dimension == 0 and not found.verdict.symmetric


@pytest.mark.slow
def test_a_ball_in_space_has_so3(waves, exact):
    x = waves(40, (15, 15, 15), length=6.0)
    p = torch.arange(-1.0, 2.0)
    kernel = torch.exp(-(p[:, None, None] ** 2 + p[None, :, None] ** 2 + p[None, None, :] ** 2))
    wide = torch.nn.functional.pad(x, (1,) * 6, mode="replicate")
    y = torch.nn.functional.conv3d(wide, (kernel / kernel.sum())[None, None]) - 0.5 * x
    atlas = ad.Atlas.at([(7, 7, 7)], in_radius=7, out_radius=5)
    found = ad.discover(
        x, y, atlas=atlas, predictor=ad.StencilPredictor(width=3), search=QUICK, cosets=False, progress=False
    )
    assert found.group.name == "SO(3)" and exact.degrees(found.algebra, ad.known.so(3)) < 2.0


@pytest.mark.parametrize("kind", ["values", "classes"])
def test_learned_from_vectors(exact, kind):
    x = exact.normal(1500, 2)
    y = x.norm(dim=-1) if kind == "values" else (x.norm(dim=-1) > 1.1).long()
    found = ad.discover(x, y, progress=False)
    assert found.group.name == "O(2)" and exact.degrees(found.algebra, ad.known.so(2)) < 3.0
    assert found.predictor.skill > 0.8 and found.verdict.symmetric


@pytest.mark.parametrize("kind", ["values", "classes"])
def test_shuffled_targets_of_vectors_allow_no_claim(exact, kind):
    x, other = exact.normal(600, 2), exact.normal(600, 2, seed=1)
    y = other.norm(dim=-1) if kind == "values" else (other.norm(dim=-1) > 1.1).long()
    found = ad.discover(x, y, predictor=SMALL, progress=False)
    assert found.group.name == "trivial" and not found.verdict.symmetric and found.headline == "Cannot tell"


def test_one_class_is_not_testable(exact):
    found = ad.discover(exact.normal(300, 2), torch.zeros(300).long(), predictor=SMALL, progress=False)
    assert not found.verdict.symmetric and found.headline == "Not testable"


@pytest.mark.parametrize(
    ("shape", "function", "name"),
    [
        ((2,), lambda x: x.norm(dim=-1), "O(2)"),
        ((3,), lambda x: x.square().sum(-1), "O(3)"),
        ((2, 2), lambda x: x[:, 0, 0] * x[:, 1, 1] - x[:, 0, 1] * x[:, 1, 0], "SL(2)"),
        ((2,), lambda x: x.abs().sum(-1), "D4"),
    ],
)
def test_exact_groups_of_functions(exact, shape, function, name):
    found = ad.discover(exact.normal(600, *shape), function=function, progress=False)
    assert found.group.name == name and found.verdict.symmetric


def test_a_function_without_symmetry(exact):
    def cubic(x):
        u, v = x.unbind(-1)
        return u**3 - 0.7 * u * u * v + 1.3 * u * v * v + 0.4 * v**3 + 0.8 * u * u + 0.6 * u - 0.9 * v

    found = ad.discover(exact.normal(600, 2), function=cubic, progress=False)
    assert found.group.name == "trivial" and not found.verdict.symmetric
    assert found.verdict.reason.startswith("No symmetry")


def test_directions_that_cannot_be_tested_are_reported(exact):
    x = exact.normal(300, 3)
    x[:, 2] = 0.0
    found = ad.discover(x, function=lambda z: z[:, :2].square().sum(-1), cosets=False, progress=False)
    assert "5 direction(s) could not be tested" in found.verdict.reason
    assert found.algebra.dimension == 1


def test_same_seed_same_answer(exact):
    x = exact.normal(300, 2)
    a, b = (ad.discover(x, function=lambda z: z.norm(dim=-1), seed=5, progress=False) for _ in range(2))
    assert torch.equal(a.algebra.basis, b.algebra.basis) and torch.equal(a.cosets, b.cosets)
    assert a.verdict == b.verdict and a.spectrum == b.spectrum


def test_given_number_of_generators(exact):
    x = exact.normal(300, 2)
    algebra = ad.discover_generators(x, function=lambda z: z.norm(dim=-1), search=ad.SpectralSearch(generators=1))
    assert exact.degrees(algebra, ad.known.so(2)) < 0.1


def test_double_precision_gives_the_same(exact):
    x = exact.normal(300, 2, dtype=torch.float64)
    found = ad.discover(x, function=lambda z: z.norm(dim=-1), progress=False)
    assert found.group.name == "O(2)"


def test_lower_doors(exact):
    x = exact.normal(300, 2)
    norm = {"function": lambda z: z.norm(dim=-1)}
    algebra = ad.discover_generators(x, **norm)
    assert exact.degrees(algebra, ad.known.so(2)) < 0.1
    candidates = ad.discover_cosets(x, algebra=algebra, **norm)
    assert len(candidates.matrices) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "`y` or `function` must be given, and not both"),
        ({"y": torch.zeros(40), "function": torch.sum}, "`y` or `function` must be given, and not both"),
        ({"y": torch.zeros(40), "action": ad.GridAction()}, "`action` must be a VectorAction"),
        ({"y": torch.zeros(40), "action": ad.VectorAction(rho_out=lambda g: g)}, r"`rho_out` must give .* \(1, 1\)"),
    ],
)
def test_bad_arguments(exact, options, message):
    with pytest.raises(InputError, match=message):
        ad.discover(exact.normal(40, 2), progress=False, **options)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (ad.VectorAction(), "`action` must be a GridAction"),
        (ad.GridAction(dimensions=3), "`action` must have dimensions=2, got 3"),
        (ad.GridAction(rho_in=lambda g: g), r"`rho_in` must give matrices of shape \(1, 1\), got \(2, 2\)"),
    ],
)
def test_an_action_that_does_not_fit_fields(fields, atlas, action, message):
    with pytest.raises(InputError, match=message):
        ad.discover(fields, fields, atlas=atlas, action=action, progress=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"generators": -1}, "`generators` must not be negative"),
    ],
)
def test_bad_search(options, message):
    with pytest.raises(InputError, match=message):
        ad.SpectralSearch(**options)


def test_rotations_that_nothing_feels_are_not_claimed_one_by_one(exact):
    x = exact.normal(300, 3)
    found = ad.discover(x, x[:, 2], progress=False)
    assert len(found.cosets) == 1 and not found.verdict.symmetric
    assert "direction(s) could not be tested" in found.verdict.reason


@pytest.mark.parametrize("tolerance", [0.0, 1.5, True, "0.2"])
def test_bad_tolerance(tolerance):
    with pytest.raises(InputError, match="`tolerance` must lie between 0 and 1"):
        ad.discover(torch.randn(50, 2), torch.randn(50), progress=False, tolerance=tolerance)


@pytest.mark.parametrize("what", [{"cosets": "all"}, {"search": "spectral"}, {"predictor": ad.StencilPredictor}])
def test_settings_of_another_kind_are_refused(what):
    (name,) = what
    with pytest.raises(InputError, match=f"`{name}` must be an object like"):
        ad.discover(torch.randn(50, 2), torch.randn(50), progress=False, **what)
