"""Lie algebras as spans: exact answers, noise, and invalid input."""

import numpy as np
import pytest
import torch

from atlasd.algebra import known
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.structure import spans, structure_constants
from atlasd.errors import InputError
from atlasd.runtime.random import stream

SO2_TWICE = LieAlgebra(
    torch.stack([torch.block_diag(*known.so(2).basis, torch.zeros(2, 2)), torch.zeros(4, 4).double()])
).sum(LieAlgebra(torch.block_diag(torch.zeros(2, 2), *known.so(2).basis)[None]))
LORENTZ_SCALED = LieAlgebra(torch.cat([known.so(1, 3).basis, torch.eye(4)[None]]))

# name: algebra, derived series, centre, Killing signature
STRUCTURE = {
    "so(3)": (known.so(3), [3], 0, (0, 3, 0)),
    "so(4)": (known.so(4), [6], 0, (0, 6, 0)),
    "so(1,3)": (known.so(1, 3), [6], 0, (3, 3, 0)),
    "so(1,3)+R": (LORENTZ_SCALED, [7, 6], 1, (3, 3, 1)),
    "sl(4)": (known.sl(4), [15], 0, (9, 6, 0)),
    "gl(2)": (known.gl(2), [4, 3], 1, (2, 1, 1)),
    "sp(4)": (known.sp(4), [10], 0, (6, 4, 0)),
    "u(2)": (known.u(2), [4, 3], 1, (0, 3, 1)),
    "borel(4)": (known.borel(4), [10, 6, 3, 0], 1, (3, 0, 7)),
    "heisenberg": (known.heisenberg(), [3, 1, 0], 1, (0, 0, 3)),
    "galilei(3)": (known.galilei(3), [10, 9], 0, (0, 3, 7)),
    "euclidean(3)": (known.euclidean(3), [6], 0, (0, 3, 3)),
    "so(2)+so(2)": (SO2_TWICE, [2, 0], 2, (0, 0, 2)),
    "trivial": (known.trivial(3), [0], 0, (0, 0, 0)),
}


def conjugation(n, seed, condition=2.0):
    generator = torch.Generator().manual_seed(seed)
    q, r = (torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64)).Q for _ in range(2))
    return q @ torch.diag(torch.linspace(1, condition, n, dtype=torch.float64)) @ r


def with_noise(algebra, noise, seed):
    generator = torch.Generator().manual_seed(seed)
    basis = algebra.basis / torch.linalg.matrix_norm(algebra.basis)[:, None, None]
    error = torch.randn(basis.shape, generator=generator, dtype=torch.float64)
    return LieAlgebra(basis + noise * error / torch.linalg.matrix_norm(error)[:, None, None])


def structure(algebra):
    return (
        [part.dimension for part in algebra.derived_series()],
        algebra.centre().dimension,
        algebra.killing_signature(),
    )


@pytest.mark.parametrize("name", STRUCTURE)
def test_structure_is_right_exactly_conjugated_and_with_noise(name):
    algebra, *expected = STRUCTURE[name]
    assert structure(algebra) == tuple(expected)
    moved = algebra.conjugate(conjugation(algebra.size, seed=1))
    assert moved.closure_error() < 1e-12
    assert structure(moved) == tuple(expected)
    cleaned = with_noise(moved, 0.03, seed=2).nearest_algebra()
    assert cleaned.closure_error() < 1e-8
    assert structure(cleaned) == tuple(expected)


@pytest.mark.parametrize("name", ["so(1,3)", "so(1,3)+R", "sp(4)", "galilei(3)", "borel(4)"])
def test_nearest_algebra_moves_towards_the_truth_and_not_far(name):
    truth = STRUCTURE[name][0].conjugate(conjugation(STRUCTURE[name][0].size, seed=3))
    noisy = with_noise(truth, 0.03, seed=4)
    cleaned = noisy.nearest_algebra()
    assert cleaned.distance(truth) < noisy.distance(truth)
    assert cleaned.distance(noisy) < 1.3 * noisy.distance(truth)


def test_nearest_algebra_leaves_an_algebra_and_survives_random_spans():
    assert known.sl(3).nearest_algebra().distance(known.sl(3)) < 1e-12
    torch.manual_seed(0)
    reached = LieAlgebra(torch.randn(4, 3, 3)).nearest_algebra()
    assert reached.dimension == 4
    assert reached.closure_error() < 1


def test_every_answer_depends_on_the_span_alone():
    algebra = known.so(1, 3).conjugate(conjugation(4, seed=5))
    torch.manual_seed(1)
    mixed = LieAlgebra(torch.einsum("ab,bij->aij", torch.randn(6, 6).double(), algebra.basis))
    assert algebra.distance(mixed) < 1e-10
    assert algebra.closure_error() == pytest.approx(mixed.closure_error(), abs=1e-10)
    assert algebra.killing_signature() == mixed.killing_signature()
    frame = mixed.frame().flatten(1)
    assert torch.allclose(frame @ frame.mT, torch.eye(6).double(), atol=1e-12)


def test_structure_constants_rebuild_the_brackets():
    algebra = known.sl(3).conjugate(conjugation(3, seed=6))
    frame = algebra.frame()
    constants = structure_constants(frame)
    brackets = frame[:, None] @ frame - frame @ frame[:, None]
    assert torch.allclose(brackets, torch.einsum("ijl,lab->ijab", constants, frame), atol=1e-12)


def test_small_and_right_angles_are_accurate():
    for angle in (1e-12, 1e-7, 0.3, torch.pi / 2 - 1e-9):
        a, b = torch.zeros(2, 3, 3).double(), torch.zeros(2, 3, 3).double()
        a[0, 0, 0] = b[0, 0, 0] = a[1, 0, 1] = 1.0
        b[1, 0, 1], b[1, 2, 2] = np.cos(angle), np.sin(angle)
        found = LieAlgebra(a).angles(LieAlgebra(b))
        assert float(found[1]) == pytest.approx(angle, rel=1e-3, abs=1e-15)
        assert float(found[0]) < 1e-15


def test_distance_is_one_for_different_ranks_and_zero_for_trivial():
    assert known.so(3).distance(known.sl(3)) == 1.0
    assert known.trivial(2).distance(known.trivial(2)) == 0.0
    assert known.so(3).angles(known.sl(3)).max() < 1e-7


def test_sum_derived_and_contains():
    both = known.so(3).sum(known.scaling(3))
    assert both.dimension == 4
    assert known.borel(3).derived_series()[1].distance(known.heisenberg()) < 1e-10
    assert both.contains(torch.eye(3)) and not known.so(3).contains(torch.eye(3))


def test_adjoint_moves_the_form_that_is_preserved():
    g = conjugation(3, seed=7)
    form = torch.linalg.inv(g).mT @ torch.linalg.inv(g)
    moved = known.so(3).adjoint(g).basis
    assert (moved.mT @ form + form @ moved).abs().max() < 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_any_float_is_stored_in_double(dtype):
    algebra = LieAlgebra(known.so(3).basis.to(dtype))
    assert algebra.basis.dtype == torch.float64
    assert algebra.exp(torch.zeros(5, 3, dtype=dtype)).shape == (5, 3, 3)
    assert LieAlgebra(known.so(3).basis.numpy()).dimension == 3


def test_rank_counts_each_generator_at_unit_length():
    basis = torch.stack([known.so(2).basis[0], 1e-8 * torch.eye(2).double(), torch.zeros(2, 2).double()])
    assert LieAlgebra(basis).dimension == 2
    assert LieAlgebra(torch.cat([known.so(2).basis, 2 * known.so(2).basis])).dimension == 1


@pytest.mark.parametrize(
    ("basis", "message"),
    [
        (torch.zeros(2, 2), r"`basis` must have shape \(k, n, n\), got \(2, 2\)"),
        (torch.zeros(1, 2, 3), r"`basis` must have shape"),
        (torch.full((1, 2, 2), float("nan")), r"`basis` must be finite, got NaN"),
        ("so(2)", r"`basis` must be an array of numbers, got str"),
    ],
)
def test_invalid_bases_are_refused(basis, message):
    with pytest.raises(InputError, match=message):
        LieAlgebra(basis)


def test_other_invalid_input_is_refused():
    with pytest.raises(InputError, match=r"`coefficients` must have shape \(\*, 3\)"):
        known.so(3).exp(torch.zeros(2))
    with pytest.raises(InputError, match=r"`other` must hold 3 x 3 matrices, got 2 x 2"):
        known.so(3).distance(known.so(2))
    with pytest.raises(InputError, match=r"`g` must have shape \(3, 3\)"):
        known.so(3).adjoint(torch.eye(2))
    with pytest.raises(InputError, match=r"`matrix` must have shape \(3, 3\)"):
        known.so(3).contains(torch.eye(2))


def test_brackets_tell_an_algebra_from_its_centre():
    """Every candidate holds a share of the scaling; six of them close nowhere, and their brackets do."""
    generator = stream(0, "brackets")
    drawn = torch.randn(7, 8, generator=generator, dtype=torch.float64)
    exact, both = known.so(1, 3), LORENTZ_SCALED.basis.double()
    candidates = torch.einsum("ab,bij->aij", torch.linalg.qr(drawn[:, :7]).Q, both)
    best, *others = spans(candidates + 0.1 * drawn[:, 7, None, None] * both[6], 6, 7)
    assert LieAlgebra(best).closure_error() > 0.1
    assert any(LieAlgebra(span).distance(exact) < 1e-6 for span in others)
