"""The laws of an action, over every action."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import atlasd as ad
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.random import stream


@dataclass(frozen=True, kw_only=True)
class Case:
    """An action with data that it moves; `error` is what interpolation may cost."""

    name: str
    action: Any
    n: int
    x_shape: tuple[int, ...]
    y_shape: tuple[int, ...]
    error: float

    @property
    def is_field(self):
        return isinstance(self.action, GridAction)

    def data(self, waves, dtype, samples=3):
        """Inputs and outputs."""
        if self.is_field:
            shapes = (self.x_shape, self.y_shape)
            return tuple(waves(samples, s[1:], channels=s[0], seed=i, dtype=dtype) for i, s in enumerate(shapes))
        generator = stream(0, self.name)
        return tuple(
            torch.randn(samples, *s, generator=generator, dtype=torch.float64).to(dtype)
            for s in (self.x_shape, self.y_shape)
        )

    def inner(self, z, radius=7.0):
        """What does not come from outside: of fields, a ball around the centre."""
        if not self.is_field:
            return z
        shape = tuple(z.shape[-self.n :])
        return z.flatten(-self.n)[..., pixel_grid(shape).norm(dim=-1) <= radius]

    def element(self, seed, dtype=torch.float64, size=0.3):
        a = torch.randn(self.n, self.n, generator=stream(seed, "element"), dtype=torch.float64)
        return torch.matrix_exp(size * a / torch.linalg.matrix_norm(a, ord=2)).to(dtype)


def dual(g):
    """The representation on covectors, which tells rho(g) from rho of the inverse or of the transpose."""
    return torch.linalg.inv(g).mT


def grid(name, error, shape=(25, 25), channels=(1, 1), **options):
    action = GridAction(dimensions=len(shape), **options)
    x_shape, y_shape = (channels[0], *shape), (channels[1], *shape)
    return Case(name=name, action=action, n=len(shape), x_shape=x_shape, y_shape=y_shape, error=error)


GRIDS = [
    grid("spline", 0.001),
    grid("even", 0.001, shape=(24, 26)),
    grid("bilinear", 0.1, interpolation="bilinear"),
    grid("zeros", 0.004, fill="zeros"),
    grid("channels", 0.001, channels=(3, 2)),
    grid("rho", 0.001, channels=(2, 2), rho_in=lambda g: g, rho_out=dual),
    grid("space", 0.001, shape=(21, 20, 21)),
    grid("space rho", 0.1, shape=(21, 21, 21), channels=(3, 3), rho_in=dual, rho_out=lambda g: g,
         interpolation="bilinear", fill="zeros"),
]  # fmt: skip
VECTORS = [
    Case(name="vector", action=VectorAction(), n=3, x_shape=(3,), y_shape=(2,), error=1e-12),
    Case(name="tokens", action=VectorAction(), n=4, x_shape=(5, 4), y_shape=(1,), error=1e-12),
    Case(name="vector rho", action=VectorAction(rho_out=dual), n=2, x_shape=(2,), y_shape=(2,), error=1e-12),
    Case(name="tokens rho", action=VectorAction(rho_out=lambda g: g), n=2, x_shape=(3, 2), y_shape=(2,), error=1e-12),
]
every = pytest.mark.parametrize("case", [*GRIDS, *VECTORS], ids=lambda case: case.name)
every_grid = pytest.mark.parametrize("case", GRIDS, ids=lambda case: case.name)
both_kinds = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def sides(case, waves, dtype=torch.float64):
    """Both halves of an action: (move, generate, data)."""
    x, y = case.data(waves, dtype)
    action = case.action
    return [(action.on_input, action.input_generator, x), (action.on_output, action.output_generator, y)]


@every
def test_is_an_action(case):
    assert isinstance(case.action, Action)


@every
@both_kinds
def test_identity(case, dtype, waves):
    for move, _, z in sides(case, waves, dtype):
        moved = move(torch.eye(case.n, dtype=dtype), z)
        assert moved.dtype == dtype
        torch.testing.assert_close(moved, z)


@every
@both_kinds
def test_composition(case, dtype, waves):
    g, h = case.element(1, dtype), case.element(2, dtype)
    rounding = 1e-5 if dtype == torch.float32 else 0.0
    for move, _, z in sides(case, waves, dtype):
        twice, once = case.inner(move(g, move(h, z))), case.inner(move(g @ h, z))
        assert (twice - once).square().mean().sqrt() <= (case.error + rounding) * z.square().mean().sqrt()
        # The other order is another element: the test would see a right action.
        if not case.is_field and not torch.equal(once, z):
            assert not torch.allclose(once, move(h @ g, z), atol=1e-3)


@every_grid
def test_other_order_is_seen_on_fields(case, waves):
    g, h = case.element(1, size=0.6), case.element(2, size=0.6)
    move, _, x = sides(case, waves)[0]
    right = case.inner(move(g, move(h, x)) - move(g @ h, x)).square().mean()
    wrong = case.inner(move(g, move(h, x)) - move(h @ g, x)).square().mean()
    assert wrong > 5 * right


@every
@both_kinds
def test_finite_action_agrees_with_its_generator(case, dtype, waves):
    a = torch.randn(case.n, case.n, generator=stream(3, "generator"), dtype=torch.float64).to(dtype)
    t = 2e-3
    for move, generate, z in sides(case, waves, dtype):
        difference = (move(torch.matrix_exp(t * a), z) - move(torch.matrix_exp(-t * a), z)) / (2 * t)
        expected = generate(a, z)
        assert expected.dtype == dtype and expected.shape == z.shape
        miss = case.inner(difference - expected).square().mean().sqrt()
        # Two motions of size t = 2e-3 apart: float32 leaves three digits. Linear pieces have slopes of their own.
        rough = case.is_field and case.action.interpolation == "bilinear"
        limit = 0.05 if rough else 2e-3 if dtype == torch.float32 or not case.is_field else 1e-4
        assert miss <= limit * max(case.inner(expected).square().mean().sqrt(), 1e-12)


@pytest.mark.parametrize("case", [c for c in GRIDS if c.action.interpolation == "spline"], ids=lambda c: c.name)
def test_derivative_by_autograd_agrees_with_the_generator(case, waves):
    a = torch.randn(case.n, case.n, generator=stream(3, "generator"), dtype=torch.float64)
    move, generate, x = sides(case, waves)[0]
    zero, one = torch.zeros((), dtype=torch.float64), torch.ones((), dtype=torch.float64)
    _, slope = torch.func.jvp(lambda t: move(torch.matrix_exp(t * a), x), (zero,), (one,))
    expected = generate(a, x)
    torch.testing.assert_close(case.inner(slope), case.inner(expected))


@every
@both_kinds
def test_both_kinds_of_floats_agree(case, dtype, waves):
    g = case.element(4)
    for (move, _, fine), (_, _, z) in zip(sides(case, waves), sides(case, waves, dtype), strict=True):
        torch.testing.assert_close(move(g.to(dtype), z).double(), move(g, fine), atol=2e-4, rtol=1e-4)


@every
def test_batched_equals_looped(case, waves):
    g = torch.stack([case.element(seed) for seed in range(3)])
    for move, _, z in sides(case, waves):
        looped = torch.stack([move(one, part[None])[0] for one, part in zip(g, z, strict=True)])
        torch.testing.assert_close(move(g, z), looped)


@every
def test_one_element_for_each_chart(case, waves):
    g = torch.stack([case.element(seed) for seed in range(2)])
    for move, _, z in sides(case, waves):
        charts = torch.stack([z, z.flip(0)], dim=1)  # (B, K, *)
        looped = torch.stack([move(one, charts[:, k]) for k, one in enumerate(g)], dim=1)
        torch.testing.assert_close(move(g.expand(3, 2, case.n, case.n), charts), looped)
        torch.testing.assert_close(move(g[None], charts), looped)


@every_grid
def test_many_elements_move_all_fields(case, waves):
    """Elements `(M, n, n)` on fields `(B, K, C, *S)`, at the points of a window, with coefficients kept."""
    g = torch.stack([case.element(seed) for seed in range(4)])
    action, n = case.action, case.n
    window = pixel_grid((9,) * n)  # in the middle of odd sizes; between pixels of even ones
    both = [(action.on_input, action.input_at), (action.on_output, action.output_at)]
    for (move, at), z in zip(both, case.data(waves, torch.float64), strict=True):
        charts = torch.stack([z, z.flip(0)], dim=1)  # (B, K, C, *S)
        each = g[:, None, None]
        kept = action.spline(charts)
        found = at(each, kept, window)
        assert found.shape == (4, *charts.shape[:3], 9**n)
        torch.testing.assert_close(found, torch.stack([at(one, charts, window) for one in g]))
        torch.testing.assert_close(move(each, charts), torch.stack([move(one, charts) for one in g]))
        if all(s % 2 for s in z.shape[-n:]):
            middle = move(each, charts)
            for axis in range(-n, 0):
                middle = middle.narrow(axis, (z.shape[axis] - 9) // 2, 9)
            torch.testing.assert_close(found, middle.flatten(-n))


@every
def test_gradient_with_respect_to_g_flows(case, waves):
    for move, _, z in sides(case, waves):
        g = case.element(5).requires_grad_()
        moved = move(g, z)
        torch.testing.assert_close(moved.detach(), move(g.detach(), z))
        if not moved.requires_grad:  # invariant outputs do not depend on g
            assert torch.equal(moved, z)
            continue
        weight = torch.randn(moved.shape, generator=stream(0, "weight"), dtype=torch.float64)
        (slope,) = torch.autograd.grad((moved * weight).sum(), g)
        step = 1e-5
        for i, j in itertools.product(range(case.n), repeat=2):
            nudge = torch.zeros_like(slope)
            nudge[i, j] = step
            with torch.no_grad():
                numeric = ((move(g + nudge, z) - move(g - nudge, z)) * weight).sum() / (2 * step)
            assert abs(slope[i, j] - numeric) <= 1e-2 * slope.abs().max()


TURN = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)


@both_kinds
@pytest.mark.parametrize("fill", ["border", "zeros"])
@pytest.mark.parametrize("interpolation", ["bilinear", "spline"])
@pytest.mark.parametrize("size", [7, 8, 29])
def test_quarter_turns_are_exact(size, interpolation, fill, dtype):
    action = GridAction(interpolation=interpolation, fill=fill)
    x = torch.randn(2, 3, size, size, generator=stream(0, "turns")).to(dtype)
    for k in range(4):
        # From cosines and sines, with their rounding, as a search would arrive at it.
        g = torch.matrix_exp(k * torch.pi / 2 * TURN).to(dtype)
        assert torch.equal(action.on_input(g, x), torch.rot90(x, k, dims=(-2, -1)))
        assert torch.equal(action.on_output(g.expand(2, 2, 2), x), torch.rot90(x, k, dims=(-2, -1)))


@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("axes", [(0, 1), (0, 2), (1, 2)])
def test_quarter_turns_in_space_are_exact(axes, size):
    x = torch.randn(1, 2, size, size, size, generator=stream(0, "turns"))
    a = torch.zeros(3, 3, dtype=torch.float64)
    a[axes[1], axes[0]], a[axes[0], axes[1]] = 1.0, -1.0
    g = torch.matrix_exp(torch.pi / 2 * a)
    expected = torch.rot90(x, 1, dims=(axes[0] - 3, axes[1] - 3))
    assert torch.equal(GridAction(dimensions=3).on_input(g, x), expected)


def test_mirror_and_turn_of_a_vector_field():
    x = torch.randn(1, 2, 6, 6, generator=stream(0, "turns"), dtype=torch.float64)
    moved = GridAction(rho_in=lambda g: g).on_input(TURN, x)
    turned = torch.rot90(x, 1, dims=(-2, -1))
    torch.testing.assert_close(moved, torch.stack([-turned[:, 1], turned[:, 0]], dim=1), atol=1e-12, rtol=0)
    mirror = torch.tensor([[1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    assert torch.equal(GridAction().on_input(mirror, x), x.flip(-1))


def test_what_lies_outside():
    x = torch.ones(1, 1, 9, 9)
    smaller = 0.5 * torch.eye(2)
    assert torch.equal(GridAction(fill="border").on_input(smaller, x), x)
    empty = GridAction(fill="zeros").on_input(smaller, x)
    assert empty[0, 0, 0, 0] == 0 and empty[0, 0, 4, 4] == 1


def angle(found, expected):
    """Degrees between two spans."""
    return torch.rad2deg(torch.tensor(ad.LieAlgebra(expected).distance(found)).asin()).item()


def test_shear_of_fields_is_not_its_transpose(waves):
    # c . grad commutes with g where g c = c: all A with A c = 0, which is not closed under transpose.
    def slope_along_rows(x):
        return (x.roll(-1, -2) - x.roll(1, -2)) / 2

    x = waves(40, (33, 33), length=16.0)
    atlas = ad.Atlas.at([(16, 16)], in_radius=12, out_radius=9)
    search = ad.SpectralSearch(samples=16)
    found = ad.discover(x, function=slope_along_rows, atlas=atlas, search=search, progress=False)
    expected = torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    assert found.algebra.dimension == 2
    assert angle(found.algebra, expected) < 2.0
    assert angle(found.algebra, expected.mT) > 45.0
    assert found.group.components == 2  # the mirror of the other axis


def test_shear_of_vectors_is_not_its_transpose():
    # Second components of p and q, and det(p, q), are left alone by x -> x + s y and by nothing else.
    def function(z):
        p, q = z.unbind(1)
        return torch.stack([p[:, 1], q[:, 1], p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]], dim=-1)

    x = torch.randn(400, 2, 2, generator=stream(0, "shear"))
    found = ad.discover(x, function=function, progress=False)
    expected = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]], dtype=torch.float64)
    assert angle(found.algebra, expected) < 0.1
    assert found.verdict.symmetric and found.group.components == 1


def test_shear_of_vector_outputs_is_not_its_transpose():
    # Commutes with the shear, and with the scaling that takes x1 to a x1 and x0 to a^3 x0.
    def function(z):
        return torch.stack([z[:, 0] + z[:, 1] ** 3, z[:, 1]], dim=-1)

    x = torch.randn(400, 2, generator=stream(1, "shear"))
    action = VectorAction(rho_out=lambda g: g)
    found = ad.discover(x, function=function, action=action, progress=False)
    expected = torch.tensor([[[0.0, 1.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 1.0]]], dtype=torch.float64)
    assert angle(found.algebra, expected) < 0.1
    assert angle(found.algebra, expected.mT) > 45.0
