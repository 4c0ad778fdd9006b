"""Algebras and groups in skewed frames: the same answers as in good ones, up to a condition of 1,000."""

import numpy as np
import pytest
import torch

import atlasd as ad
from atlasd.algebra import known
from atlasd.algebra.group import Group
from atlasd.algebra.invariants import balance, well_conditioned
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import Membership


def diag(*entries):
    return torch.diag(torch.tensor(entries, dtype=torch.float64))


def plus_scaling(algebra):
    return LieAlgebra(torch.cat([algebra.basis, torch.eye(algebra.size, dtype=torch.float64)[None]]))


TORUS = LieAlgebra(known.so(4).basis[[0, 5]])
LORENTZ = [diag(1, -1, -1, -1), diag(-1, 1, 1, 1), diag(-1, -1, -1, -1)]

# algebra, its name, elements of the identity component beside products of exponentials, elements outside
TABLE = {
    "so(2)": (known.so(2), "so(2)", [diag(-1, -1)], [diag(1, -1), diag(2, 2), diag(2, 0.5)]),
    "so(3)": (known.so(3), "so(3)", [diag(-1, -1, 1), diag(1, -1, -1)], [diag(-1, -1, -1), diag(1, 1, -1)]),
    "so(4)": (known.so(4), "so(4)", [diag(-1, -1, -1, -1), diag(-1, -1, 1, 1)], [diag(-1, 1, 1, 1), diag(2, 2, 2, 2)]),
    "so(1,3)": (known.so(1, 3), "so(1,3)", [diag(1, -1, -1, 1)], [*LORENTZ, diag(2, 2, 2, 2)]),
    "so(2,1)": (known.so(2, 1), "so(1,2)", [], [diag(-1, -1, -1), diag(2, 2, 2)]),
    "so(1,1)": (known.so(1, 1), "so(1,1)", [], [diag(-1, -1)]),
    "sl(2)": (known.sl(2), "sl(2)", [diag(-1, -1), diag(-2, -0.5)], [diag(1, -1), diag(2, 2)]),
    "sl(3)": (known.sl(3), "sl(3)", [diag(-1, -1, 1)], [diag(1, 1, -1), diag(2, 2, 2)]),
    "sp(4)": (known.sp(4), "sp(4)", [diag(-1, -1, -1, -1), diag(-2, 1, -0.5, 1)], [diag(1, 1, -1, -1)]),
    "gl(2)": (known.gl(2), "gl(2)", [diag(-1, -2)], [diag(1, -1)]),
    "gl(3)": (known.gl(3), "gl(3)", [diag(-1, -3, 2)], [diag(-1, -1, -1)]),
    "so(2)+so(2)": (TORUS, "so(2)+so(2)", [diag(-1, -1, 1, 1)], [diag(1, -1, 1, 1), diag(1, -1, -1, 1)]),
    "so(3)+R": (plus_scaling(known.so(3)), "so(3)+R", [diag(-2, -2, 2)], [diag(1, 1, -1), diag(2, 0.5, 1)]),
    "u(2)": (known.u(2), "u(2)", [diag(-1, -1, -1, -1)], [diag(1, 1, -1, -1)]),
}
every = pytest.mark.parametrize("case", TABLE)


def skew(n, condition, seed):
    """A random matrix of the given condition."""
    rng = np.random.default_rng(seed)
    u, _, v = np.linalg.svd(rng.standard_normal((n, n)))
    logs = np.log(condition) * np.concatenate([[0, 1], rng.uniform(size=n - 2)])
    return torch.from_numpy(u @ np.diag(np.exp(logs)) @ v)


def noisy(algebra, noise, seed):
    """Every generator with noise of a share of its norm."""
    generator = torch.Generator().manual_seed(seed)
    extra = torch.randn(algebra.basis.shape, generator=generator, dtype=torch.float64) / algebra.size
    return LieAlgebra(algebra.basis + noise * extra * algebra.basis.flatten(1).norm(dim=1)[:, None, None])


def products(algebra, count, seed):
    """Products of three exponentials."""
    generator = torch.Generator().manual_seed(seed)
    steps = torch.randn(3, count, algebra.dimension, generator=generator, dtype=torch.float64)
    first, second, third = algebra.exp(0.7 * steps / max(1, algebra.dimension / 4) ** 0.5)
    return first @ second @ third


@every
@pytest.mark.parametrize("noise", [0.0, 1e-3])
@pytest.mark.parametrize("condition", [1, 5, 30, 200, 1000])
def test_membership_of_conjugates(case, condition, noise):
    algebra, _, inside, outside = TABLE[case]
    for seed in range(3):
        s = skew(algebra.size, condition, seed)
        back = torch.linalg.inv(s)
        conjugate = noisy(algebra, noise, seed).adjoint(s)
        assert conjugate.dimension == algebra.dimension
        members = torch.cat([products(algebra, 6, seed), *(g[None] for g in inside)])
        membership = Membership(conjugate)
        assert (membership.residuals(s @ members @ back) <= 0.25).all()
        assert (membership.residuals(s @ torch.stack(outside) @ back) > 0.25).all()


@every
@pytest.mark.parametrize("condition", [30, 1000])
def test_names_of_conjugates(case, condition):
    algebra, name, _, _ = TABLE[case]
    s = skew(algebra.size, condition, 1)
    found = ad.identify(noisy(algebra, 1e-3, 0).adjoint(s))
    assert found.name == name
    # In the frame that was asked about.
    exact = ad.identify(algebra.adjoint(s))
    assert exact.algebra.distance(algebra.adjoint(s)) < 1e-3


@pytest.mark.parametrize(
    ("case", "candidates", "name", "count"),
    [
        ("so(2)", [diag(1, -1), diag(-1, -1)], "O(2)", 2),
        ("so(3)", [diag(-1, -1, -1), diag(-1, -1, 1), diag(1, -1, -1)], "O(3)", 2),
        ("so(4)", [diag(1, 1, 1, -1), diag(-1, -1, 1, 1)], "O(4)", 2),
        ("so(1,3)", LORENTZ[:2], "O(1,3)", 4),
        ("so(1,3)", LORENTZ[:1], "O+(1,3)", 2),
        ("sp(4)", [diag(1, 1, -1, -1)], "sp(4), 2 components", 2),
        ("so(2)+so(2)", [diag(1, -1, 1, -1)], "so(2)+so(2), 2 components", 2),
        ("so(3)+R", [diag(-2, -2, -2)], "O(3)xR+", 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("condition", [100, 1000])
def test_components_of_conjugates(case, candidates, name, count, condition):
    algebra = TABLE[case][0]
    s = skew(algebra.size, condition, 2)
    given = torch.stack(candidates)
    given = torch.cat([given, given @ products(algebra, len(given), 1)])
    group = Group.close(algebra.adjoint(s), s @ given @ torch.linalg.inv(s))
    assert (group.components, group.name) == (count, name)


def test_half_turns_of_a_long_ellipsoid():
    s = diag(1, 10, 100)
    group = Group.close(known.so(3).adjoint(s), torch.stack([diag(1, -1, -1), diag(-1, -1, 1), -torch.eye(3).double()]))
    assert (group.name, group.components) == ("O(3)", 2)


@pytest.mark.parametrize("algebra", [known.shear(2), known.heisenberg(), known.euclidean(2), known.borel(3)], ids=str)
def test_no_frame_where_none_is_better(algebra):
    assert torch.equal(well_conditioned(algebra), torch.eye(algebra.size, dtype=torch.float64))


def test_well_conditioned_algebras_stay_as_they_are():
    for algebra, *_ in TABLE.values():
        assert torch.equal(well_conditioned(algebra), torch.eye(algebra.size, dtype=torch.float64))
    assert torch.equal(well_conditioned(known.trivial(2)), torch.eye(2, dtype=torch.float64))


def test_balanced_frame_is_that_of_the_form():
    s = skew(4, 1000, 0)
    change = torch.from_numpy(balance(known.so(4).adjoint(s).frame().numpy()))
    form = change @ s
    form = form.mT @ form
    torch.testing.assert_close(form / form[0, 0], torch.eye(4, dtype=torch.float64), atol=2e-3, rtol=0)
