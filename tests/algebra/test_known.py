"""The catalogue of known algebras: closed, of the right dimension, preserving what they should."""

import pytest
import torch

from atlasd.algebra import known
from atlasd.errors import InputError

DIMENSIONS = {
    "so(3)": (known.so(3), 3),
    "so(1,3)": (known.so(1, 3), 6),
    "so(2,3)": (known.so(2, 3), 10),
    "sl(3)": (known.sl(3), 8),
    "gl(3)": (known.gl(3), 9),
    "sp(4)": (known.sp(4), 10),
    "sp(6)": (known.sp(6), 21),
    "u(2)": (known.u(2), 4),
    "su(3)": (known.su(3), 8),
    "scaling": (known.scaling(3), 1),
    "shear": (known.shear(3), 1),
    "borel(4)": (known.borel(4), 10),
    "heisenberg": (known.heisenberg(), 3),
    "galilei(3)": (known.galilei(3), 10),
    "affine(3)": (known.affine(3), 12),
    "euclidean(3)": (known.euclidean(3), 6),
    "trivial": (known.trivial(3), 0),
}


@pytest.mark.parametrize("name", DIMENSIONS)
def test_known_algebras_are_closed_and_independent(name):
    algebra, dimension = DIMENSIONS[name]
    assert algebra.dimension == len(algebra.basis) == dimension
    assert algebra.closure_error() < 1e-12


@pytest.mark.parametrize("signature", [(3,), (1, 1), (1, 3), (2, 2), (0, 4)])
def test_so_preserves_its_metric(signature):
    p = signature[0] if len(signature) == 2 else 0
    form = torch.diag(torch.tensor([-1.0] * p + [1.0] * (sum(signature) - p), dtype=torch.float64))
    basis = known.so(*signature).basis
    assert (basis.mT @ form + form @ basis).abs().max() == 0


def test_sp_preserves_the_symplectic_form_and_u_the_complex_structure():
    eye, zero = torch.eye(2).double(), torch.zeros(2, 2).double()
    form = torch.cat([torch.cat([zero, eye], 1), torch.cat([-eye, zero], 1)])
    basis = known.sp(4).basis
    assert (basis.mT @ form + form @ basis).abs().max() == 0
    basis = known.u(2).basis
    assert (basis @ form - form @ basis).abs().max() == 0
    assert (basis + basis.mT).abs().max() == 0


def test_coincidences():
    assert known.sp(2).distance(known.sl(2)) < 1e-12
    assert known.u(1).distance(known.so(2)) < 1e-12
    assert known.galilei(1).distance(known.heisenberg()) < 1e-12
    assert known.euclidean(1).distance(known.shear(2)) < 1e-12


def test_the_shear_moves_the_first_coordinate():
    moved = known.shear(2).exp(torch.tensor([2.0])) @ torch.tensor([0.0, 1.0]).double()
    assert moved.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("call", [lambda: known.so(), lambda: known.so(1, 2, 3), lambda: known.so(-1, 2)])
def test_bad_signatures_are_refused(call):
    with pytest.raises(InputError, match=r"`signature` must be one or two sizes"):
        call()


def test_bad_sizes_are_refused():
    with pytest.raises(InputError, match=r"`size` must be even, got 3"):
        known.sp(3)
    with pytest.raises(InputError, match=r"`n` must be an integer of at least 1, got 0"):
        known.gl(0)
