"""Vectors on a cone: what a fitted map does beside it is not asked, and what it does along it is found."""

from dataclasses import replace

import pytest
import torch

from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.spectral import SpectralSearch, _kept
from atlasd.discovery.support import find_cone, keeps_cone, onto_cone, stabiliser
from atlasd.discovery.verdict import Gates, decide, element_evidence, vector_evidence
from atlasd.experiments.dimuons import beam_algebra, seen_algebra
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream

LIGHT = torch.diag(torch.tensor([-0.5, 0.5, 0.5, 0.5])).double()


def light_like(count, seed=0):
    """Pairs of massless momenta of many sizes, `(count, 2, 4)`."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.randn(count, 2, 3, generator=generator, dtype=torch.float64)
    p = p * torch.exp(torch.randn(count, 1, 1, generator=generator, dtype=torch.float64))
    return torch.cat([p.norm(dim=-1, keepdim=True), p], -1)


def transverse(x):
    """log(pt1 + pt2), as a network might go on beside the cone: with a large slope across it."""
    beside = (x @ LIGHT * x).sum(-1) / x[..., 0].square().clamp_min(1e-9)
    return (x[..., 1:3].norm(dim=-1).sum(-1)).log() + (30 * x[..., 1] * beside / x[..., 0].clamp_min(1e-9)).sum(-1)


@pytest.fixture(scope="module")
def pairs(exact):
    return exact.problem_of(transverse, light_like(3000))


def test_the_cone_is_found(pairs):
    cone = find_cone(pairs)
    assert cone is not None
    assert abs(float((cone * LIGHT).sum()) / float(LIGHT.norm())) > 1 - 1e-9


@pytest.mark.parametrize(("mass", "near"), [(0.003, True), (3.0, False)])
def test_small_masses_hide_a_cone_at_hand_and_not_afar(exact, mass, near):
    x = light_like(3000)
    x[:100] = x[:100] * 1e-3  # slow, so that their masses are large beside their energies
    x[..., 0] = (x[..., 1:].square().sum(-1) + mass**2).sqrt()
    problem = exact.problem_of(transverse, x)
    cone = find_cone(problem, afar=True)
    assert find_cone(problem) is None and (cone is not None) == near
    assert cone is None or abs(float((cone * LIGHT).sum()) / float(LIGHT.norm())) > 1 - 1e-6


def test_generators_near_those_of_the_cone_are_moved_onto_them():
    exact = stabiliser(LIGHT).reshape(-1, 4, 4)
    noise = torch.randn(exact.shape, generator=stream(0, "noise"), dtype=torch.float64)
    moved = onto_cone(LIGHT, exact + 0.01 * noise, near=0.1)
    assert LieAlgebra(moved).distance(LieAlgebra(exact)) < 1e-9
    off = exact + 0.3 * noise  # too far off to be the same ones
    assert torch.equal(onto_cone(LIGHT, off, near=0.1), off)


def test_a_search_moves_what_it_found_onto_the_cone_of_fitted_data(exact):
    x = light_like(3000)
    x[..., 0] = (x[..., 1:].square().sum(-1) + 0.01**2).sqrt()
    truth = stabiliser(LIGHT).reshape(-1, 4, 4)
    found = truth + 0.01 * torch.randn(truth.shape, generator=stream(0, "noise"), dtype=torch.float64)
    given = exact.problem_of(transverse, x)
    fitted = replace(given, train=torch.arange(100))
    assert LieAlgebra(_kept(fitted, found)).distance(LieAlgebra(truth)) < 1e-4
    # Controls: a given function is known everywhere, heavy particles are near no cone, and others do not keep it.
    assert torch.equal(_kept(given, found), found)
    heavy = x.clone()
    heavy[..., 0] = (x[..., 1:].square().sum(-1) + 3.0**2).sqrt()
    assert torch.equal(_kept(replace(exact.problem_of(transverse, heavy), train=torch.arange(100)), found), found)
    beam = beam_algebra().basis  # E stretched is among them
    torch.testing.assert_close(LieAlgebra(_kept(fitted, beam)).distance(LieAlgebra(beam)), 0.0, atol=1e-9, rtol=0)


def test_no_cone_where_there_is_none(exact):
    x = light_like(600)
    massive = x.clone()
    massive[..., 0] = (x[..., 0].square() + 0.3 * x[..., 0].square().mean()).sqrt()
    assert find_cone(exact.problem_of(transverse, massive)) is None
    # A map of the sum is asked about sums, and these have masses.
    assert find_cone(exact.problem_of(lambda x: x.sum(-2).square().sum(-1), x)) is None
    flat = x.clone()
    flat[..., 3] = 0
    flat[..., 0] = flat[..., 1] + flat[..., 2]  # a plane lies on many cones
    assert find_cone(exact.problem_of(lambda x: x.square().sum(-1).sqrt().sum(-1), flat)) is None
    assert find_cone(exact.problem_of(lambda x: x.norm(dim=-1), exact.normal(600, 2))) is None


def test_motions_that_keep_the_cone():
    inside = stabiliser(LIGHT).reshape(-1, 4, 4)
    assert bool(keeps_cone(LIGHT, inside, finite=False).all())
    assert bool(keeps_cone(LIGHT, torch.matrix_exp(inside), finite=True).all())
    stretch = torch.diag(torch.tensor([0.0, 1.0, 0.0, 0.0])).double()[None]
    assert not bool(keeps_cone(LIGHT, stretch, finite=False)) and bool(keeps_cone(None, stretch, finite=False))
    assert not bool(keeps_cone(LIGHT, torch.matrix_exp(stretch), finite=True))


def test_what_is_true_along_the_cone_is_found(pairs):
    """The turn about the beam and the boost along it, though the slope across the cone hides them otherwise."""
    on_cone = replace(pairs, cone=find_cone(pairs))
    found = SpectralSearch().find(on_cone, seed=0, progress=Silent())
    assert len(found.basis) == 2 and LieAlgebra(found.basis).distance(seen_algebra()) < 1e-3
    assert found.spectrum[1] < 1e-6 and found.spectrum[2] > 0.3
    assert any("lie on a cone, and 9 directions lead off it" in note for note in found.notes)
    # Control: asked as if the map were known everywhere, the answer is not the one that the data hold.
    other = LieAlgebra(SpectralSearch().find(pairs, seed=0, progress=Silent()).basis)
    assert other.distance(seen_algebra()) > 0.1


def test_what_leads_off_the_cone_is_not_testable(pairs):
    on_cone = replace(pairs, cone=find_cone(pairs))
    basis = beam_algebra().basis[[0, 1]]  # the turn, and E stretched
    turn, stretch = vector_evidence(on_cone, basis, (0.3, 0.6), 0.05, seed=stream(0, "draws"))
    gates = Gates(1.0, 1.0)
    assert decide(turn, gates, 0.05, 2).decision == "symmetry"
    assert decide(stretch, gates, 0.05, 2).decision == "not testable"
    one = torch.ones(1, dtype=torch.float64)
    mirror, scaled = torch.diag(torch.tensor([1.0, -1.0, 1.0, 1.0])), torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.5]))
    good, off = element_evidence(on_cone, torch.stack([mirror, scaled]).double(), one, seed=stream(0, "draws"))
    assert decide(good, gates, 0.05, 2).decision == "symmetry"
    assert decide(off, gates, 0.05, 2).decision == "not testable"
