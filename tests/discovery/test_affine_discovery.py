"""Translations are found beside linear maps, in the units of the data's spread."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.runtime.random import stream

QUICK = {"progress": False, "action": ad.AffineAction()}


def points(*shape, seed=0, shift=0.0):
    return torch.randn(*shape, generator=stream(seed, "points")) + torch.as_tensor(shift)


def bowl(x):
    """Ellipses about (1, 1)."""
    return (x[..., 0] - 1) ** 2 + 4 * (x[..., 1] - 1) ** 2


def distance(x):
    """A function of the distance between two points."""
    return torch.exp(-(x[:, 0] - x[:, 1]).square().sum(-1) / 6)


@pytest.mark.parametrize("count", [200, 2000])
def test_rotation_about_another_point(count):
    x = points(count, 2) * torch.tensor([2.0, 1.0]) + 1
    found = ad.discover(x, bowl(x), cosets=False, **QUICK)
    assert found.group.name == "SO(2)" and "centre is (1, 1)" in found.verdict.reason
    truth = torch.tensor([[0.0, -4.0, 4.0], [1.0, 0.0, -1.0], [0.0, 0.0, 0.0]]).double()
    field, wanted = (x.double() @ a[:2, :2].mT + a[:2, 2] for a in (found.algebra.basis[0], truth))
    assert float((field * wanted).sum() / field.norm() / wanted.norm()) ** 2 > 0.999999
    assert bool((found.algebra.basis[:, -1] == 0).all())


@pytest.mark.parametrize("n", [2, 3])
def test_two_points(n):
    x = points(300, 2, n, shift=3.0)
    assert ad.discover(x, function=distance, **QUICK).group.name == f"E({n})"


@pytest.mark.parametrize(("broken", "name"), [(0.0, "SE(2)"), (0.3, "T(1)")])
def test_two_points_fitted(broken, name):
    # A step of a quarter turn leads to where samples are few, and a smaller one does not.
    x = points(1000, 2, 2, shift=3.0).double()
    y = distance(x)
    y = y + broken * y.std() * torch.sin(2 * x[:, 0].sum(-1))  # constant along x - y
    assert ad.discover(x, y, cosets=False, **QUICK).group.name == name


def test_a_place_that_matters_breaks_translations():
    x = points(300, 2, 2, shift=3.0)
    broken = lambda z: distance(z) + 0.3 * torch.tanh(z[:, 0, 0] + 0.7 * z[:, 0, 1] - 5)  # noqa: E731
    found = ad.discover(x, function=broken, tolerance=0.05, cosets=False, **QUICK)
    assert "E(2)" not in found.group.name and found.group.dimension < 3


def test_an_unused_coordinate_may_be_translated():
    x = points(300, 2)
    found = ad.discover(x, function=lambda z: z[:, 0] ** 3 + z[:, 0], cosets=False, **QUICK)
    assert found.group.name == "T(1)"
    assert abs(float(found.algebra.basis[0, 1, 2])) == pytest.approx(1.0)


def test_no_affine_symmetry():
    x = points(400, 2)
    found = ad.discover(x, function=lambda z: z[:, 0] ** 3 - z[:, 1] ** 2 + z[:, 0] * z[:, 1] ** 2, **QUICK)
    assert found.group.dimension == 0


def test_a_square_about_a_point():
    x = points(400, 2, shift=torch.tensor([3.0, -2.0]))
    found = ad.discover(x, function=lambda z: (z[:, 0] - 3.2).abs() + (z[:, 1] + 2.1).abs(), **QUICK)
    assert found.group.name == "D4"
    centre = torch.tensor([3.2, -2.1, 1.0]).double()
    torch.testing.assert_close(found.cosets @ centre, centre.expand(8, -1), atol=1e-3, rtol=1e-3)


def test_the_same_in_other_units():
    x = points(300, 2, 2)
    scale, shift = torch.tensor([1e-2, 1e2]), torch.tensor([5.0, -400.0])
    found = ad.discover(x * scale + shift, function=lambda z: distance((z - shift) / scale), **QUICK)
    assert found.group.name == "E(2)"


def test_results_are_kept(tmp_path):
    x = points(200, 2, shift=50.0)
    found = ad.discover(x, function=lambda z: bowl(z - 50), cosets=False, **QUICK)
    found.save(tmp_path)
    loaded = ad.load(tmp_path)
    assert loaded.group.name == found.group.name == "SO(2)" and loaded.group.affine
    assert found.report(tmp_path / "report.html").exists()


def test_bad_input():
    with pytest.raises(InputError, match="SpectralSearch with translations"):
        ad.discover(points(100, 2), function=bowl, search=ad.GradientSearch(), **QUICK)
    with pytest.raises(InputError, match="`action` must be a GridAction"):
        ad.discover(points(30, 1, 8, 8), function=lambda z: z, **QUICK)
