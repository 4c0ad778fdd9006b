"""LieGAN: small games with known answers, what it cannot find, and its version for the sphere."""

import math

import pytest
import torch

import atlasd as ad
from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.data.samples import Samples
from atlasd.discovery.problem import Problem
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction, VectorAction
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.rivals.liegan import FieldDiscriminator, LieGAN, VectorDiscriminator
from atlasd.studies.rivals.liegan_sphere import find_on_sphere, rotate_sphere

QUICK = LieGAN(steps=200, batch=128, width=32, generator_rate=1e-2, discriminator_rate=5e-3)


def problem(x, y, action=None):
    """Data alone: LieGAN asks no predictor."""

    def outputs(x):
        raise AssertionError("LieGAN must not ask the predictor")

    samples = Samples.check(x, y).plain()
    return Problem(
        functions=(outputs,),
        fold=torch.zeros(len(x), dtype=torch.long),
        action=action or VectorAction(),
        samples=samples,
        known=False,
        classes=samples.classes,
    )


def points(samples=2000, seed=0):
    return torch.randn(samples, 2, generator=stream(seed, "points"))


def degrees(found, truth):
    return math.degrees(math.asin(LieAlgebra(found.basis).distance(truth)))


def test_turns_of_a_round_cloud():
    x = points()
    found = QUICK.find(problem(x, x.norm(dim=-1, keepdim=True)), seed=0, progress=Silent())
    assert degrees(found, so(2)) < 12 and float(found.basis.norm()) > 0.3
    assert set(found.curves) == {"discriminator", "generator", "weakest generator"}


def test_it_answers_even_where_there_is_nothing():
    # No turn, scaling or shear leaves this cloud and its labels as they are.
    x = points() * torch.tensor([1.0, 0.3]) + torch.tensor([2.0, 0.5])
    found = QUICK.find(problem(x, torch.sin(3 * x[:, :1]) + x[:, 1:] ** 3), seed=0, progress=Silent())
    assert len(found.basis) == 1  # small, but claimed


def test_same_seed_same_answer():
    x = points(400)
    settings = LieGAN(steps=10, batch=32, width=16)
    one, two, other = (
        settings.find(problem(x, x.norm(dim=-1, keepdim=True)), seed=s, progress=Silent()).basis for s in (3, 3, 4)
    )
    assert torch.equal(one, two) and not torch.equal(one, other)


@pytest.mark.parametrize("kind, integers", [("normal", False), ("integers", True)])
def test_coefficients(kind, integers):
    w = LieGAN(generators=3, coefficients=kind, spread=2.0).draw(4000, stream(0, "w"))
    assert w.shape == (4000, 3) and abs(float(w.mean())) < 0.1
    assert bool((w == w.round()).all()) == integers
    if integers:
        assert w.unique().tolist() == [-2, -1, 0, 1, 2]


@pytest.mark.slow
def test_a_discrete_subgroup():
    k = torch.randint(7, (2000,), generator=stream(0, "seventh")) * 2 * math.pi / 7
    x = torch.stack([k.cos(), k.sin()], -1) + 0.1 * points()
    settings = LieGAN(
        steps=400, batch=128, width=32, coefficients="integers", spread=1, growth=0.1, start=1.0,
        generator_rate=1e-2, discriminator_rate=5e-3,
    )  # fmt: skip
    angles = []
    for seed in range(4):  # the game does not always leave the identity
        basis = settings.find(problem(x, torch.ones(2000, 1)), seed=seed, progress=Silent()).basis
        if len(basis):
            angles.append(float(torch.linalg.eigvals(basis[0]).imag.abs().max()) / (2 * math.pi / 7))
    assert min(abs(a - 1) for a in angles) < 0.1


def test_every_element_has_positive_determinant():
    game = LieGAN(generators=2, spread=3.0)
    w = game.draw(500, stream(0, "w")).double()
    basis = torch.randn(2, 3, 3, generator=stream(0, "basis"), dtype=torch.float64)
    assert bool((torch.linalg.det(torch.matrix_exp(torch.einsum("bk,kij->bij", w, basis))) > 0).all())


def test_fields_and_classes():
    x = torch.randn(40, 1, 20, 20, generator=stream(0, "fields"))
    settings = LieGAN(steps=3, batch=8, width=8, pixels=10)
    for y in (x.square(), (x[:, 0] > 0).long()):
        found = settings.find(problem(x, y, GridAction()), seed=0, progress=Silent())
        assert found.basis.shape == (1, 2, 2) and bool(torch.isfinite(found.basis).all())


def test_through_discover():
    found = ad.discover(
        points(300), function=lambda p: p.norm(dim=-1), search=LieGAN(steps=20, batch=64), progress=False
    )
    assert found.config["search"]["kind"] == "LieGAN" and "generator" in found.curves


def test_discriminators_give_one_number_for_each_pair():
    generator = stream(0, "weights")
    assert VectorDiscriminator(8, 2, width=4, generator=generator)(torch.zeros(5, 2, 4), torch.zeros(5, 2)).shape == (
        5,
    )
    field = FieldDiscriminator(1, 2, width=8, generator=generator)
    assert field(torch.zeros(5, 1, 21, 21), torch.zeros(5, 2, 13, 13)).shape == (5,)
    # Corners are not looked at.
    corner = torch.zeros(1, 1, 21, 21)
    corner[..., :3, :3] = 9.0
    assert torch.equal(field(corner, torch.zeros(1, 2, 21, 21)), field(0 * corner, torch.zeros(1, 2, 21, 21)))


def test_published_settings():
    used = LieGAN(generators=7).published()
    assert (used.discriminator_rate, used.generator_rate, used.similarity) == (2e-4, 1e-3, 1e-2)
    assert used.generators == 7


def test_wrong_settings():
    wrong = {"generators": (0, "at least 1, got 0"), "steps": (0, "positive, got 0")}
    wrong["coefficients"] = ("cauchy", "'normal' or 'integers', got 'cauchy'")
    for name, (value, message) in wrong.items():
        with pytest.raises(InputError, match=f"`{name}` must be {message}"):
            LieGAN(**{name: value})


def test_the_sphere_turns_as_a_whole():
    latitude = (90 - (torch.arange(30) + 0.5) * 6).deg2rad()
    longitude = ((torch.arange(60) + 0.5) * 6).deg2rad()
    theta, phi = torch.meshgrid(latitude, longitude, indexing="ij")
    v = torch.stack([theta.cos() * phi.cos(), theta.cos() * phi.sin(), theta.sin()])
    g = torch.matrix_exp(torch.einsum("k,kij->ij", torch.tensor([0.4, -0.7, 0.3]), so(3).basis.float()))
    # The field v itself moves as E(g^-1 v) = g^-1 v.
    moved = rotate_sphere(g, v[None])[0]
    expected = torch.einsum("ji,jhw->ihw", g, v)
    assert float((moved - expected)[:, 2:-2].abs().max()) < 0.02
    back = rotate_sphere(g.mT, rotate_sphere(g, v[None]))[0]
    assert float((back - v)[:, 4:-4].abs().max()) < 0.04


def test_generators_on_the_sphere_are_rotations():
    x = torch.rand(30, 1, 12, 24, generator=stream(0, "sphere"))
    y = (x[:, 0] > 0.5).long()
    settings = LieGAN(steps=4, batch=8, width=8)
    found = [find_on_sphere(x, y, classes=2, search=settings, seed=s).basis for s in (0, 1)]
    for basis in found:
        assert basis.shape == (1, 3, 3)
        torch.testing.assert_close(basis, -basis.mT)
    assert not torch.equal(*found)
    with pytest.raises(InputError, match=r"`x` must have shape \(N, C, H, W\)"):
        find_on_sphere(x[:, 0], y)
