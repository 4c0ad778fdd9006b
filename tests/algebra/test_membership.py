"""Membership in the connected group, against a table of known answers with noise and conjugation."""

import numpy as np
import pytest
import torch

from atlasd.algebra import known
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import TOLERANCE, Membership, gap
from atlasd.errors import InputError


def diag(*entries):
    return torch.diag(torch.tensor(entries, dtype=torch.float64))


def turn(angle, n=2, i=0, j=1):
    g = torch.eye(n, dtype=torch.float64)
    g[i, i] = g[j, j] = np.cos(angle)
    g[i, j], g[j, i] = -np.sin(angle), np.sin(angle)
    return g


def boost(rapidity):
    g = torch.eye(4, dtype=torch.float64)
    g[0, 0] = g[1, 1] = np.cosh(rapidity)
    g[0, 1] = g[1, 0] = np.sinh(rapidity)
    return g


def span(*matrices):
    return LieAlgebra(torch.stack([torch.as_tensor(m, dtype=torch.float64) for m in matrices]))


def plus_scaling(algebra):
    return LieAlgebra(torch.cat([algebra.basis, torch.eye(algebra.size, dtype=torch.float64)[None]]))


DIAGONAL = span(diag(1, 0), diag(0, 1))
TORUS = span(known.so(4).basis[0], known.so(4).basis[5])
WOUND = span(known.so(4).basis[0] + 3 * known.so(4).basis[5])
AXIS = span(known.so(3).basis[0])
SHEAR = known.shear(2)
PARITY, REVERSAL = diag(1, -1, -1, -1), diag(-1, 1, 1, 1)

# name, algebra, matrix, whether it lies in the identity component
TABLE = [
    ("GL+(2) diag(-1,-2)", known.gl(2), diag(-1, -2), True),
    ("GL+(2) reflection", known.gl(2), diag(1, -1), False),
    ("GL+(3) half turn scaled", known.gl(3), diag(-1, -3, 2), True),
    ("GL+(3) -1", known.gl(3), diag(-1, -1, -1), False),
    ("SL(2) -1", known.sl(2), diag(-1, -1), True),
    ("SL(2) diag(-2,-1/2)", known.sl(2), diag(-2, -0.5), True),
    ("SL(2) diag(-1,-2)", known.sl(2), diag(-1, -2), False),
    ("SL(2) reflection", known.sl(2), diag(1, -1), False),
    ("SL(3) shear", known.sl(3), torch.eye(3, dtype=torch.float64) + known.shear(3).basis[0], True),
    ("SO(2) -1", known.so(2), diag(-1, -1), True),
    ("SO(2) turn", known.so(2), turn(2.0), True),
    ("SO(2) reflection", known.so(2), diag(1, -1), False),
    ("SO(2) scaling", known.so(2), diag(2, 2), False),
    ("SO(2) squeeze", known.so(2), diag(2, 0.5), False),
    ("SO(3) half turn", known.so(3), diag(-1, -1, 1), True),
    ("SO(3) -1", known.so(3), diag(-1, -1, -1), False),
    ("SO(3) reflection", known.so(3), diag(1, 1, -1), False),
    ("SO(4) -1", known.so(4), diag(-1, -1, -1, -1), True),
    ("SO(4) reflection", known.so(4), diag(-1, 1, 1, 1), False),
    ("SO(5) -1", known.so(5), diag(-1, -1, -1, -1, -1), False),
    ("SO+(1,3) identity", known.so(1, 3), torch.eye(4, dtype=torch.float64), True),
    ("SO+(1,3) boosted half turn", known.so(1, 3), boost(1.0) @ turn(np.pi, 4, 2, 3), True),
    ("SO+(1,3) parity", known.so(1, 3), PARITY, False),
    ("SO+(1,3) boosted parity", known.so(1, 3), boost(1.0) @ PARITY, False),
    ("SO+(1,3) time reversal", known.so(1, 3), REVERSAL, False),
    ("SO+(1,3) PT", known.so(1, 3), PARITY @ REVERSAL, False),
    ("SO+(1,3) scaling", known.so(1, 3), diag(2, 2, 2, 2), False),
    ("SO+(1,3)xR+ scaled turn", plus_scaling(known.so(1, 3)), 2 * turn(np.pi, 4, 2, 3), True),
    ("SO+(1,3)xR+ parity", plus_scaling(known.so(1, 3)), 0.5 * PARITY, False),
    ("SO+(1,3)xR+ -1", plus_scaling(known.so(1, 3)), diag(-1, -1, -1, -1), False),
    ("SO+(2,2) -1", known.so(2, 2), diag(-1, -1, -1, -1), True),
    ("SO+(2,2) mixed", known.so(2, 2), diag(-1, 1, -1, 1), False),
    ("SO+(1,1) -1", known.so(1, 1), diag(-1, -1), False),
    ("SO(2)xR+ scaled turn", plus_scaling(known.so(2)), 3 * turn(3.0), True),
    ("SO(2)xR+ reflection", plus_scaling(known.so(2)), diag(1, -1), False),
    ("R+ n=1 -1", known.scaling(1), diag(-1), False),
    ("R+ n=1 3", known.scaling(1), diag(3), True),
    ("R+ scaling", known.scaling(2), diag(3, 3), True),
    ("R+ half turn", known.scaling(2), diag(-1, -1), False),
    ("R+ diag(-1,1)", known.scaling(2), diag(-1, 1), False),
    ("R+^2 diag(2,1/3)", DIAGONAL, diag(2, 1 / 3), True),
    ("R+^2 diag(-1,1)", DIAGONAL, diag(-1, 1), False),
    ("R+^2 -1", DIAGONAL, diag(-1, -1), False),
    ("axis half turn", AXIS, diag(-1, -1, 1), True),
    ("axis other half turn", AXIS, diag(1, -1, -1), False),
    ("torus -1", TORUS, diag(-1, -1, -1, -1), True),
    ("torus mixed turns", TORUS, turn(2, 4, 0, 1) @ turn(-3, 4, 2, 3), True),
    ("torus across", TORUS, turn(np.pi, 4, 1, 2), False),
    ("wound circle", WOUND, turn(2.5, 4, 0, 1) @ turn(7.5, 4, 2, 3), True),
    ("wound circle, half", WOUND, diag(-1, -1, 1, 1), False),
    ("shear", SHEAR, [[1, 2], [0, 1]], True),
    ("long shear", SHEAR, [[1, 5], [0, 1]], True),
    ("shear transposed", SHEAR, [[1, 0], [2, 1]], False),
    ("shear -1", SHEAR, diag(-1, -1), False),
    ("Borel upper", known.borel(2), [[2, 1], [0, 0.5]], True),
    ("Borel diag(-1,1)", known.borel(2), diag(-1, 1), False),
    ("Borel -1", known.borel(2), diag(-1, -1), False),
    ("Heisenberg", known.heisenberg(), [[1, 2, -1], [0, 1, 1], [0, 0, 1]], True),
    ("Heisenberg diag", known.heisenberg(), diag(-1, -1, 1), False),
    ("Euclid half turn and shift", known.euclidean(2), [[-1, 0, 1], [0, -1, 2], [0, 0, 1]], True),
    ("Euclid reflection", known.euclidean(2), diag(-1, 1, 1), False),
    ("Sp(4) -1", known.sp(4), diag(-1, -1, -1, -1), True),
    ("Sp(4) diag", known.sp(4), diag(-2, 1, -0.5, 1), True),
    ("Sp(4) anti", known.sp(4), diag(1, 1, -1, -1), False),
    ("U(2) -1", known.u(2), diag(-1, -1, -1, -1), True),
    ("U(2) conjugation", known.u(2), diag(1, 1, -1, -1), False),
    ("SU(2) -1", known.su(2), diag(-1, -1, -1, -1), True),
    ("SU(2) outside", known.su(2), diag(-1, -1, 1, 1), False),
    ("trivial identity", known.trivial(2), diag(1, 1), True),
    ("trivial turn", known.trivial(2), turn(2 * np.pi / 12), False),
]
# Two per cent of noise make a slow rotation of the shear, which no longer comes within 10 % of a long one.
LARGEST_NOISE = {"long shear": 0.01}
IDS = [row[0] for row in TABLE]


def conjugator(n, seed):
    """A matrix of condition at most 2."""
    rng = np.random.default_rng(seed)
    u, _, v = np.linalg.svd(rng.standard_normal((n, n)))
    return torch.from_numpy(u @ np.diag(np.linspace(1, 2, n)) @ v)


def disturb(matrix, noise, seed):
    """Adds noise whose Frobenius norm is a share of that of each matrix."""
    generator = torch.Generator().manual_seed(seed)
    extra = torch.randn(matrix.shape, generator=generator, dtype=torch.float64)
    norm = torch.linalg.matrix_norm
    return matrix + noise * extra * (norm(matrix) / norm(extra))[..., None, None] if len(matrix) else matrix


@pytest.mark.parametrize("noise", [0.0, 0.01, 0.02])
@pytest.mark.parametrize(("name", "algebra", "matrix", "member"), TABLE, ids=IDS)
def test_table(name, algebra, matrix, member, noise):
    matrix = torch.as_tensor(matrix, dtype=torch.float64)
    noise = min(noise, LARGEST_NOISE.get(name, noise))
    for seed in range(4):
        s = conjugator(algebra.size, seed) if seed else torch.eye(algebra.size, dtype=torch.float64)
        g = disturb(s @ matrix @ torch.linalg.inv(s), noise, seed)
        basis = disturb(algebra.adjoint(s).basis, noise, seed + 100)
        assert bool(Membership(LieAlgebra(basis)).residuals(g) <= TOLERANCE) is member, (seed, noise)


ALGEBRAS = {
    "so(3)": known.so(3),
    "so(1,3)": known.so(1, 3),
    "sl(3)": known.sl(3),
    "sp(4)": known.sp(4),
    "u(2)": known.u(2),
    "su(2)": known.su(2),
    "borel(3)": known.borel(3),
    "torus": TORUS,
    "wound": WOUND,
    "affine(2)": known.affine(2),
    "galilei(2)": known.galilei(2),
}


@pytest.mark.parametrize("name", ALGEBRAS)
@pytest.mark.parametrize("closed_forms", [True, False])
def test_products_are_members(name, closed_forms):
    """Products of exponentials are members, found by the closed forms and by the search alone."""
    algebra = ALGEBRAS[name]
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(3, 40, algebra.dimension, generator=generator, dtype=torch.float64)
    steps = steps * 0.7 / max(1, algebra.dimension / 4) ** 0.5
    g = algebra.exp(steps[0]) @ algebra.exp(steps[1]) @ algebra.exp(steps[2])
    membership = Membership(algebra)
    if not closed_forms:
        membership._special, membership._form = False, None
    assert (membership.residuals(g) < 0.25).double().mean() == 1


def test_residuals_are_batched():
    steps = torch.stack([turn(1.0), turn(2.0) @ diag(1, -1)])
    assert (Membership(known.so(2)).residuals(steps) < TOLERANCE).tolist() == [True, False]
    assert Membership(known.so(2)).residuals(steps[:, None].expand(2, 3, 2, 2)).shape == (2, 3)


def test_not_a_matrix():
    with pytest.raises(InputError, match="size of the algebra"):
        Membership(known.so(2)).residuals(torch.eye(3))
    singular = torch.zeros(2, 2)
    assert (Membership(known.gl(2)).residuals(torch.stack([singular, singular / 0])) > TOLERANCE).all()


def test_large_singular_matrices_are_far_and_no_error():
    far, near = gap(np.stack([np.full((2, 2), 1e9), np.eye(2)]))
    assert near < 1e-6 and far > 1
