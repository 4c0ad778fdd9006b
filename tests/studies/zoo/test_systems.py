"""The zoo: each positive has exactly its algebra, each negative none, to first order and without noise."""

import math

import pytest
import torch
from torch.func import jacrev, jvp, vmap

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction
from atlasd.geometry.actions import derivative as generator_of
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import (
    REACH,
    derivative,
    draw_waves,
    field_systems,
    gaussian,
    plane_waves,
    shift,
)
from atlasd.studies.zoo.negatives import negative_systems
from atlasd.studies.zoo.run import foreign_systems, zoo_systems
from atlasd.studies.zoo.scoring import check_claims, exact_strength, standard_root
from atlasd.studies.zoo.system import System
from atlasd.studies.zoo.vector_systems import vector_systems

ZOO = zoo_systems()
FOREIGN = foreign_systems(0)
# These commute with every motion, or feel none: no residual can tell anything about them.
MUTE = ("identity", "pointwise", "constant_vector", "constant_field")
SIZE = 41  # what a map makes of the border is felt ten pixels inside, by the splines


def over(systems):
    return pytest.mark.parametrize("system", list(systems), ids=lambda system: system.name)


def asked(kind, positive):
    return [s for s in ZOO if s.kind == kind and s.positive == positive and s.oracle and s.name not in MUTE]


def vector_residuals(system, samples):
    """Residuals `(rows, n * n)`, their Gram and the Gram expected by chance."""
    x = system.sample(samples, stream(0, "test", system.name)).double()
    slopes = vmap(jacrev(lambda z: system.function(z[None])[0].reshape(-1)))(x)
    tokens, slopes = (x, slopes) if x.ndim == 3 else (x[:, None], slopes[:, :, None])
    n = system.size
    felt = torch.einsum("sopa,spb->soab", slopes, tokens).flatten(2)
    due = torch.zeros_like(felt)
    if system.action is not None:
        units = torch.eye(n * n, dtype=torch.float64).reshape(-1, n, n)
        due = torch.einsum("mof,sf->som", generator_of(system.action.rho_out, units), system.function(x))
    slope_moments = torch.einsum("sopa,soqc->paqc", slopes, slopes) / samples
    token_moments = torch.einsum("spb,sqd->pbqd", tokens, tokens) / samples
    chance = torch.einsum("paqc,pbqd->abcd", slope_moments, token_moments).reshape(n * n, n * n)
    rows, due = (felt - due).flatten(0, 1), due.flatten(0, 1)
    return rows, rows.mT @ rows / samples, chance + due.mT @ due / samples


def powers(x):
    """Features of a pointwise map: `(N, C, H, W)` to `(N, F, H, W)`."""
    return torch.cat([torch.ones_like(x[:, :1]), x, x**2, x**3, x[:, :1] * x[:, -1:]], dim=1)


def beyond_pointwise(system, x, mask):
    """The map less its best pointwise part, which commutes with every motion."""
    if system.action is not None:
        return system.function
    target, features = (z[..., mask].movedim(1, -1).flatten(0, 1) for z in (system.function(x), powers(x)))
    # One channel gives the same feature twice: the solver must bear that.
    weights = torch.linalg.lstsq(features, target, driver="gelsd").solution
    return lambda x: system.function(x) - torch.einsum("nfhw,fc->nchw", powers(x), weights)


def field_residuals(system, samples=12, radius=9.0):
    """As `vector_residuals`; inputs are moved exactly, by moving the waves they are made of."""
    sizes = system.sample(100, stream(0, "size")).std((0, 2, 3)).tolist()
    wave, phase, height = (z.double() for z in draw_waves(samples, stream(0, "test"), sizes=sizes))
    action = system.action or GridAction()

    def moved(g):
        x = plane_waves(wave @ torch.linalg.inv(g), phase, height, SIZE)
        return x if action.rho_in is None else torch.einsum("ij,njhw->nihw", action.rho_in(g), x)

    one = torch.eye(2, dtype=torch.float64)
    mask = (pixel_grid((SIZE, SIZE)).norm(dim=-1) <= radius).reshape(SIZE, SIZE)
    psi = beyond_pointwise(system, moved(one), mask)
    y = psi(moved(one))
    felt, due = [], []
    for a in torch.eye(4, dtype=torch.float64).reshape(4, 2, 2):
        felt.append(jvp(lambda g: psi(moved(g)), (one,), (a,))[1][..., mask].flatten())
        due.append(action.output_generator(a, y)[..., mask].flatten())
    felt, due = torch.stack(felt, dim=-1), torch.stack(due, dim=-1)
    rows = felt - due
    return rows, rows.mT @ rows, felt.mT @ felt + due.mT @ due


def null_space(rows, size, tolerance):
    """The algebra of small singular values, and the smallest of the others, relative to the largest."""
    _, values, right = torch.linalg.svd(rows, full_matrices=False)
    values = values / values[0]
    null = int((values < tolerance).sum())
    return LieAlgebra(right[len(values) - null :].reshape(-1, size, size)), values[len(values) - null - 1]


def chance_spectrum(gram, chance):
    """Generalised eigenvalues, ascending: 0 is a symmetry, 1 is chance."""
    values, vectors = torch.linalg.eigh(chance)
    assert values[0] > 1e-4 * values[-1]  # every direction is testable
    root = vectors / values.sqrt()
    return torch.linalg.eigvalsh(root.mT @ gram @ root)


@over(asked("vector", True))
def test_vector_truth(system):
    rows, gram, chance = vector_residuals(system, 500)
    found, following = null_space(rows, system.size, 1e-6)
    assert following > 1e-3
    assert found.distance(system.truth) < 1e-4
    assert system.truth.closure_error() < 1e-6
    assert chance_spectrum(gram, chance)[system.truth.dimension] > 0.15


@over(asked("field", True))
def test_field_truth(system):
    rows, gram, chance = field_residuals(system)
    found, following = null_space(rows, 2, 1e-2)
    assert following > 0.1
    assert found.distance(system.truth) < 2e-3
    assert system.truth.closure_error() < 1e-6
    assert chance_spectrum(gram, chance)[system.truth.dimension] > 0.15


@over(asked("vector", False))
def test_vector_negative(system):
    _, gram, chance = vector_residuals(system, 1000)
    assert chance_spectrum(gram, chance)[0] > 0.13


@over(asked("field", False))
def test_field_negative(system):
    _, gram, chance = field_residuals(system)
    assert chance_spectrum(gram, chance)[0] > 0.13


@over(s for s in (*ZOO, *FOREIGN) if s.function is not None and s.name not in MUTE)
def test_the_whole_group_is_a_symmetry_of_the_exact_map(system):
    """Every component, and every generator at a finite size; the definition of strength is that of the scores."""
    elements = system.components
    if system.positive:
        elements = torch.cat([elements, LieAlgebra(system.truth.frame()).exp(0.3 * torch.eye(system.truth.dimension))])
    strengths = exact_strength(system, elements, 500 if system.kind == "vector" else 8, stream(0, "strength"))
    # Photographs have edges, which splines cannot follow to the end.
    assert strengths.max() < (0.05 if system.name.startswith("photographs") else 2e-3)


@over((*ZOO, *FOREIGN))
def test_components_form_a_group(system):
    assert torch.equal(system.components[0], torch.eye(system.size, dtype=torch.float64))
    root = torch.eye(2, dtype=torch.float64)
    if system.kind == "vector":  # thin ellipses are round in standard units
        root = standard_root(system.sample(1000, stream(0, "units")))
    inverse = torch.linalg.inv(root)
    group = Group(system.truth.adjoint(inverse), inverse @ system.components @ root)
    assert (group.cayley >= 0).all()
    assert all(len(row.unique()) == group.components for row in group.cayley)


@over(s for s in FOREIGN if s.name.endswith("_control") and s.strength)
def test_controls_are_broken(system):
    """Directions of the group that the control has lost, at finite size in standard units."""
    lost = next(s for s in FOREIGN if s.name == system.name.removesuffix("_control"))
    assert check_claims(system, Group(lost.truth), 0).generators.min() > 0.25


@over(s for s in ZOO if s.name in MUTE)
def test_mute_systems_have_nothing_beyond_a_pointwise_map(system):
    assert not system.positive
    x = system.sample(20, stream(0, "mute")).double()
    if system.kind == "vector":
        assert system.function(x).std() == 0
    else:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool)
        assert beyond_pointwise(system, x, mask)(x).abs().max() < 1e-10


@over(s for s in field_systems() if s.action is None)
def test_finite_moves_leave_no_trace_of_the_grid(system):
    """At the centre, outputs of exactly moved fields are the outputs of the fields themselves."""
    sizes = system.sample(100, stream(0, "size")).std((0, 2, 3)).tolist()
    wave, phase, height = (z.double() for z in draw_waves(40, stream(1, "test"), sizes=sizes))
    # The smallest patch that holds the stencil; smaller steps where waves get shorter.
    step = 0.1 if system.name in ("advection", "directional_derivative", "hessian_determinant") else 1.0
    coefficients = step * torch.randn(5, system.truth.dimension, generator=stream(2), dtype=torch.float64)
    centre = (..., REACH, REACH)

    def outputs(g):
        return system.function(plane_waves(wave @ torch.linalg.inv(g), phase, height, 2 * REACH + 1))[centre]

    still = outputs(torch.eye(2, dtype=torch.float64))
    for g in LieAlgebra(system.truth.frame()).exp(coefficients):
        assert (outputs(g) - still).abs().max() < 1e-3 * still.std()


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 4])
def test_stencils_have_the_exact_symbol(angle):
    for size in (0.1, 0.35):
        k = size * math.cos(angle)
        offsets = torch.arange(-REACH, REACH + 1, dtype=torch.float64)
        wave = torch.exp(1j * k * offsets)
        cases = (
            (derivative(1), 1j * k),
            (derivative(2), -(k**2)),
            (shift(-1.4), complex(math.cos(1.4 * k), -math.sin(1.4 * k))),
            (gaussian(2.0), math.exp(-(k**2))),
        )
        for taps, exact in cases:
            found = (taps * wave).sum().item()
            assert abs(found - exact) < 1e-5


@over(s for s in ZOO if s.kind == "field" and s.oracle)
def test_outputs_of_a_chart_depend_on_nothing_outside(system):
    x = system.sample(2, stream(0, "charts"))
    system.atlas.check(x.shape[-2:])
    chart = system.atlas.charts[0]
    row, column = (int(c) for c in chart.center)
    inside = torch.zeros(x.shape[-2:], dtype=torch.bool)
    inside[row - 14 : row + 15, column - 14 : column + 15] = True
    other = torch.where(inside, x, torch.randn(x.shape, generator=stream(0, "outside")))
    a, b = (chart.output_patch(system.function(z)) for z in (x, other))
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@over(ZOO)
def test_data(system):
    (x, y), (again, same) = (system.data(7, stream(5, system.name)) for _ in range(2))
    assert torch.equal(x, again) and torch.equal(y, same)
    assert x.dtype == y.dtype == torch.float32 and len(x) == len(y) == 7
    assert x.isfinite().all() and y.isfinite().all()
    assert not torch.equal(x, system.sample(7, stream(6, system.name)))
    if system.kind == "vector":
        assert x.ndim in (2, 3) and x.shape[-1] == system.size and y.ndim in (1, 2)
    else:
        assert x.ndim == y.ndim == 4 and x.shape[-2:] == y.shape[-2:] and system.size == 2
    if system.function is not None:
        assert system.function(x.double()).dtype == torch.float64
        probe = x.clone().requires_grad_()
        (slopes,) = torch.autograd.grad(system.function(probe).sum(), probe)
        assert slopes.isfinite().all()


def test_the_zoo_as_a_whole():
    positives = [s for s in ZOO if s.positive]
    assert len(ZOO) >= 44 and 2 * len(positives) <= len(ZOO)
    assert len({s.name for s in ZOO}) == len(ZOO)
    assert all(s.oracle or s.fitted for s in ZOO)
    assert all(s.strength == 0 for s in positives)
    assert len({s.truth.dimension for s in positives}) >= 5


def test_negatives_are_the_same_in_every_process():
    positives = (*vector_systems(), *field_systems())
    for a, b in zip(negative_systems(positives), negative_systems(positives), strict=True):
        if a.function is not None:
            x = a.sample(3, stream(0, a.name))
            assert torch.equal(a.function(x), b.function(x))


def test_invalid_systems():
    def make(**changes):
        fields = {
            "name": "x",
            "truth": ZOO[0].truth,
            "sample": ZOO[0].sample,
            "function": None,
        }
        return System(**fields | changes)

    with pytest.raises(InputError, match="`function` must be given"):
        make()
    with pytest.raises(InputError, match="`function` must be given"):
        make(labels=lambda x, generator: x)
