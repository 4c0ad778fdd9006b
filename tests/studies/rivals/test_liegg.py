"""LieGG: exact systems, rows in pieces, images, and heat with and without its source."""

import math

import pytest
import torch

import atlasd as ad
from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.prepare import prepare
from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.heat.data import heat_fields, heat_rate
from atlasd.studies.rivals.liegg import LieGG, field_rows, slopes, spectrum_of, vector_rows

SHEAR = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])


def points(samples, n, seed=0):
    return torch.randn(samples, n, generator=stream(seed, "points"), dtype=torch.float64)


def problem(x, function, **options):
    return prepare(x, function=function, seed=0, progress=Silent(), **options)[0]


def degrees(found, truth):
    return math.degrees(math.asin(found.distance(truth)))


@pytest.mark.parametrize("n", [2, 3])
def test_the_norm_is_invariant_under_turns(n):
    found = ad.discover(points(600, n), function=lambda p: p.norm(dim=-1), search=LieGG(), progress=False)
    assert found.group.dimension == n * (n - 1) // 2 and degrees(found.algebra, so(n)) < 1e-6
    assert found.verdict.symmetric and len(found.spectrum) == n * n


def test_shears_are_not_their_transpose():
    # (x, y) -> y is left alone by (x, y) -> (x + t y, y).
    asked = problem(points(400, 2), lambda p: p[:, 1] ** 3 + p[:, 1])
    found = LieGG(generators=2).find(asked, seed=0, progress=Silent())
    algebra = LieAlgebra(asked.units.to_raw(found.basis))
    assert algebra.contains(SHEAR[0]) and not algebra.contains(SHEAR[0].mT)


def test_a_generic_function_has_none():
    def generic(p):
        return torch.sin(2 * p[:, 0] + 0.3) + torch.cos(p[:, 1] - 0.5 * p[:, 0]) + 0.3 * p[:, 1] ** 3

    found = LieGG().find(problem(points(600, 2), generic), seed=0, progress=Silent())
    assert len(found.basis) == 0 and "no singular value is near zero" in found.notes


def test_outputs_are_not_summed_away():
    # x^2 - y^2 and 2 x y: each has symmetries of its own, and their sum has; together they have none.
    def both(p):
        return torch.stack([p[:, 0] ** 2 - p[:, 1] ** 2, 2 * p[:, 0] * p[:, 1]], dim=-1)

    x = points(300, 2)
    rows = vector_rows(both, x)
    assert rows.shape == (600, 4)
    assert float(spectrum_of([rows], 2).values[0]) > 0.1
    summed = vector_rows(lambda p: both(p).sum(-1), x)
    assert float(spectrum_of([summed], 2).values[0]) < 1e-9


def test_sets_of_vectors_move_together():
    x = torch.randn(300, 3, 2, generator=stream(0, "sets"), dtype=torch.float64)
    rows = vector_rows(lambda p: (p[:, 0] * p[:, 1]).sum(-1) + p[:, 2].norm(dim=-1), x)
    found = spectrum_of([rows], 2)
    assert float(found.values[0]) < 1e-12 < 0.1 < float(found.values[1])
    assert degrees(LieAlgebra(found.directions[:1]), so(2)) < 1e-6


def test_rows_may_come_in_pieces():
    parts = [torch.randn(40, 9, generator=stream(s, "rows"), dtype=torch.float64) for s in range(5)]
    streamed = spectrum_of(iter(parts), 3)
    torch.testing.assert_close(streamed.values, torch.linalg.svdvals(torch.cat(parts)).flip(0) / 200**0.5)
    asked = problem(points(300, 3), lambda p: p.norm(dim=-1))
    one, other = (LieGG(batch=batch).find(asked, seed=0, progress=Silent()) for batch in (7, 500))
    assert LieAlgebra(one.basis).distance(LieAlgebra(other.basis)) < 1e-6


def test_heat_has_no_global_symmetry_beside_its_source():
    atlas = ad.Atlas.at([(64, 64)], in_radius=63, out_radius=59)
    x = heat_fields(20, initial="isotropic", generator=stream(0, "heat")).double()
    plain, held = (
        LieGG().spectrum(problem(x, lambda u, s=source: heat_rate(u, source=s), atlas=atlas), Silent())
        for source in (False, True)
    )
    assert float(plain.values[0]) < 1e-5 and degrees(LieAlgebra(plain.directions[:1]), so(2)) < 0.1
    assert float(held.values[0]) > 1000 * float(plain.values[0]) and float(plain.values[1]) > 0.1


def test_rows_are_the_equation_written_out():
    weight = torch.randn(36, 36, generator=stream(0, "weights"), dtype=torch.float64)
    field = torch.randn(1, 1, 6, 6, generator=stream(0, "field"), dtype=torch.float64)
    rows, y = field_rows(lambda z: (z.flatten(1) @ weight.mT).reshape(-1, 1, 6, 6), field, order=2)
    p = pixel_grid((6, 6), dtype=torch.float64)
    i = 2 * 6 + 3  # an inner pixel
    for k in range(2):
        for j in range(2):
            left = p[i, j] * slopes(y, k - 2, 2).flatten()[i]
            right = (p[:, j] * slopes(field, k - 2, 2).flatten() * weight[i]).sum()
            inner = (2 - 1) * 4 + (3 - 1)
            torch.testing.assert_close(rows[inner, 2 * k + j], left - right)


@pytest.mark.parametrize("order, power", [(2, 2), (4, 4), (6, 6), (8, 8)])
def test_slopes_are_exact_on_polynomials(order, power):
    line = torch.linspace(-1, 1, 21, dtype=torch.float64)
    got = slopes((line**power).repeat(3, 1), -1, order)[:, 4:-4] / 0.1
    torch.testing.assert_close(got, (power * line ** (power - 1)).repeat(3, 1)[:, 4:-4])


def test_wrong_settings():
    with pytest.raises(InputError, match="`threshold` must lie between 0 and 1, got 2"):
        LieGG(threshold=2)
    with pytest.raises(InputError, match="`order` must be one of 2, 4, 6, 8, got 3"):
        slopes(torch.zeros(5), 0, 3)
    action = ad.VectorAction(rho_out=lambda g: g)
    with pytest.raises(InputError, match="LieGG knows invariant outputs"):
        ad.discover(points(60, 2), function=lambda p: p * p[:, :1], action=action, search=LieGG(), progress=False)
