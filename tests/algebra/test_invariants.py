"""Invariant forms: metrics with and without scaling, noise, antisymmetric forms, higher tensors."""

import pytest
import torch

from atlasd.algebra import known
from atlasd.algebra.invariants import Metric, invariant_forms, metric, metric_cosine
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError

MINKOWSKI = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0], dtype=torch.float64))


def with_noise(algebra, noise, seed):
    torch.manual_seed(seed)
    error = torch.randn_like(algebra.basis)
    scale = torch.linalg.matrix_norm(algebra.basis) / torch.linalg.matrix_norm(error)
    return LieAlgebra(algebra.basis + noise * scale[:, None, None] * error)


@pytest.mark.parametrize("scaling", [False, True])
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_the_lorentz_metric_survives_scaling_and_noise(scaling, noise):
    basis = torch.cat([known.so(1, 3).basis, torch.eye(4).double()[None]]) if scaling else known.so(1, 3).basis
    found = metric(with_noise(LieAlgebra(basis), noise, seed=0))
    assert found.signature == (1, 3, 0)
    assert found.form[0, 0] < 0
    assert float(found.form.norm()) == pytest.approx(1)
    assert metric_cosine(found.form, MINKOWSKI) > (0.999 if noise else 1 - 1e-12)
    assert found.value < 0.05 and found.gap > 0.5


@pytest.mark.parametrize(
    ("algebra", "symmetric", "antisymmetric"),
    [
        (known.so(3), 1, 0),
        (known.so(2), 1, 1),
        (known.sp(4), 0, 1),
        (known.u(2), 1, 1),
        (known.su(2), 1, 3),
        (known.sl(3), 0, 0),
        (known.sl(2), 0, 1),
        (known.trivial(3), 6, 3),
        (known.scaling(1), 1, 0),
        (LieAlgebra(torch.cat([known.so(1, 3).basis, torch.eye(4)[None]])), 1, 0),
    ],
)
def test_numbers_of_invariant_forms(algebra, symmetric, antisymmetric):
    assert int((invariant_forms(algebra)[1] < 0.1).sum()) == symmetric
    forms, changes = invariant_forms(algebra, symmetric=False)
    assert int((changes < 0.1).sum()) == antisymmetric
    for form in forms[:antisymmetric]:
        assert torch.allclose(form, -form.mT)
        change = algebra.basis.mT @ form + form @ algebra.basis
        trace = 2 * algebra.basis.diagonal(dim1=1, dim2=2).mean(-1)
        assert torch.allclose(change, trace[:, None, None] * form, atol=1e-7)


def test_a_moved_algebra_preserves_the_moved_metric():
    torch.manual_seed(0)
    g = torch.eye(4).double() + 0.2 * torch.randn(4, 4).double()
    inverse = torch.linalg.inv(g)
    found = metric(known.so(1, 3).adjoint(g))
    assert metric_cosine(found.form, inverse.mT @ MINKOWSKI @ inverse) > 1 - 1e-12


def test_invalid_input_is_refused():
    with pytest.raises(InputError, match=r"`reference` must have shape \(4, 4\), got \(3, 3\)"):
        metric_cosine(MINKOWSKI, torch.eye(3))


def test_rounding_drops_noise_and_keeps_what_is_there():
    minkowski = torch.diag(torch.tensor([-1.0, 1.0, 1.0, 1.0], dtype=torch.float64))
    noise = 0.02 * torch.rand(4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noisy = Metric((minkowski + noise + noise.mT) / 7, 0.0, 1.0, (1, 3, 0))
    assert torch.equal(noisy.rounded(0.1), minkowski)
    assert not torch.equal(noisy.rounded(0.0), minkowski)
    other = torch.diag(torch.tensor([-2.0, 1.0, 1.0, 1.0], dtype=torch.float64))  # light that is slower
    kept = Metric(other / other.norm(), 0.0, 1.0, (1, 3, 0)).rounded(0.05)
    torch.testing.assert_close(kept / kept[1, 1], other)
    tilted = minkowski.clone()
    tilted[0, 1] = tilted[1, 0] = 0.3
    assert float(Metric(tilted, 0.0, 1.0, (1, 3, 0)).rounded(0.05)[0, 1]) > 0.2
