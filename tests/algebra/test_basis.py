"""Standard form: the paper's theorem on disjoint bases, canonical output, and noise."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atlasd.algebra import known
from atlasd.algebra.basis import cosine_similarity, standard_form, standard_similarity
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import InputError

LORENTZ_SCALED = torch.cat([known.so(1, 3).basis, torch.eye(4).double()[None]])
CLEAN = {
    "so(1,3)+R": LORENTZ_SCALED,
    "so(4)": known.so(4).basis,
    "gl(2)": known.gl(2).basis,
    "u(2)": known.u(2).basis,
    "sp(4)": known.sp(4).basis,
    "borel(3)": known.borel(3).basis,
    "galilei(2)": known.galilei(2).basis,
    "sl(3)": known.sl(3).basis,
}


def mix(basis, seed, noise=0.0):
    generator = torch.Generator().manual_seed(seed)
    basis = basis / torch.linalg.matrix_norm(basis)[:, None, None]
    error = torch.randn(basis.shape, generator=generator, dtype=torch.float64)
    basis = basis + noise * error / torch.linalg.matrix_norm(error)[:, None, None]
    k = len(basis)
    q, r = (torch.linalg.qr(torch.randn(k, k, generator=generator, dtype=torch.float64)).Q for _ in range(2))
    weights = torch.diag(torch.linspace(0.5, 2.0, k, dtype=torch.float64))
    return torch.einsum("ab,bij->aij", q @ weights @ r, basis)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 5))
def test_only_disjoint_bases_reach_zero(seed, k):
    generator = torch.Generator().manual_seed(seed)
    owner = torch.randint(0, k, (16,), generator=generator)
    owner[:k] = torch.arange(k)
    values = 0.5 + torch.rand(16, generator=generator, dtype=torch.float64)
    disjoint = torch.zeros(k, 16, dtype=torch.float64)
    disjoint[owner, torch.arange(16)] = values
    basis = disjoint.reshape(k, 4, 4)
    assert float(standard_similarity(basis)) == 0.0
    scaled = basis[torch.randperm(k, generator=generator)] * torch.tensor([-3.0] * k)[:, None, None]
    assert float(standard_similarity(scaled)) == 0.0
    assert float(standard_similarity(mix(basis, seed))) > 1e-6
    found = standard_form(mix(basis, seed))
    assert float(standard_similarity(found)) < 1e-9


@pytest.mark.parametrize("name", CLEAN)
@pytest.mark.parametrize("noise", [0.0, 0.03])
def test_standard_form_keeps_the_span_and_finds_the_sparse_basis(name, noise):
    basis = CLEAN[name]
    mixed = mix(basis, seed=1, noise=noise)
    found = standard_form(mixed)
    assert LieAlgebra(found).distance(LieAlgebra(mixed)) < 1e-10
    assert float((found.abs() - found.abs().round()).abs().max()) < (0.08 if noise else 1e-9)
    assert (found.flatten(1).abs().amax(1) == 1).all()
    if not noise:
        assert float(standard_similarity(found)) <= float(standard_similarity(basis)) + 1e-9
    assert torch.allclose(found, standard_form(mix(mixed, seed=2)), atol=1e-8)


def test_lorentz_with_scaling_reads_as_rotations_boosts_and_identity():
    expected = torch.cat([known.so(1, 3).basis, torch.eye(4).double()[None]])
    assert torch.allclose(standard_form(mix(LORENTZ_SCALED, seed=3)), expected, atol=1e-9)
    assert torch.allclose(standard_form(mix(LORENTZ_SCALED, seed=3, noise=0.03)), expected, atol=0.08)


def test_canonical_signs():
    assert standard_form(torch.tensor([[[0.0, 2.0], [-2.0, 0.0]]])).tolist() == [[[0.0, -1.0], [1.0, 0.0]]]
    assert standard_form(-3 * torch.eye(2)[None]).tolist() == [[[1.0, 0.0], [0.0, 1.0]]]
    assert standard_form(-torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])).tolist() == [[[0.0, 1.0], [1.0, 0.0]]]
    assert standard_form(-torch.tensor([[[0.0, 1.0], [0.0, 0.0]]])).tolist() == [[[0.0, 1.0], [0.0, 0.0]]]
    assert standard_form(torch.zeros(0, 3, 3)).shape == (0, 3, 3)


def test_similarities_are_differentiable_and_agree_with_the_formula():
    torch.manual_seed(0)
    basis = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    rows = basis.detach().flatten(1)
    pairs = [(0, 1), (0, 2), (1, 2)]
    size = rows.norm(dim=1)
    standard = sum(float(rows[i].abs() @ rows[j].abs() / size[i] / size[j]) for i, j in pairs)
    cosine = sum(float((rows[i] @ rows[j]).abs() / size[i] / size[j]) for i, j in pairs)
    assert standard_similarity(basis).item() == pytest.approx(standard)
    assert cosine_similarity(basis).item() == pytest.approx(cosine)
    assert torch.autograd.gradcheck(standard_similarity, basis)
    assert standard_similarity(torch.randn(5, 3, 2, 2)).shape == (5,)


def test_invalid_input_is_refused():
    with pytest.raises(InputError, match=r"`basis` must have shape \(k, n, n\)"):
        standard_form(torch.zeros(2, 2))
    with pytest.raises(InputError, match=r"`basis` must have shape \(\*, k, n, n\)"):
        standard_similarity(torch.zeros(2, 2))
