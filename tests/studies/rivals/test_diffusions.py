"""Symmetries of stochastic equations: the determining equations hold for the truth, laws and fields are found."""

from functools import partial

import pytest
import torch

from atlasd.geometry.monomials import Monomials
from atlasd.studies.rivals import compare_diffusions as task
from atlasd.studies.rivals.diffusion_law import Determining, Law, Library, Paths, fit_law
from atlasd.studies.rivals.measures import angle_of_fields
from atlasd.studies.rivals.null_space import fixed_threshold


def exact_law(system: task.Diffusion) -> Law:
    """Drift and diffusion of an equation, written in standard units by hand."""
    mean, spread = system.paths.units
    half, n = system.paths.length / 2, len(mean)
    slopes = {task.BROWNIAN: [[0.0]], task.GROWING: [[1.0]], task.SLOWED: [[0.0, 1.0], [0.0, -1.0]]}[system.name]
    theta = torch.zeros(n + 2, n + n * (n + 1) // 2, dtype=torch.float64)
    slope = torch.tensor(slopes, dtype=torch.float64)
    theta[0, :n] = half * (slope @ mean) / spread
    theta[2:, :n] = half * (slope * spread / spread[:, None]).mT
    theta[0, -1] = half * (2.0 if n == 2 else 1.0) / spread[-1] ** 2
    return Law(Monomials(n + 1, 1), theta, torch.zeros(theta.numel(), theta.numel()).double())


@pytest.mark.parametrize("name", task.SYSTEMS)
def test_the_known_generators_solve_the_equations(name):
    system = task.Diffusion(name, task.simulate(name, 400, 0), True)
    spectrum = Determining(exact_law(system), system.places, system.library).spectrum()
    assert spectrum.values[2] < 1e-4 and spectrum.values[3] > 0.005
    assert angle_of_fields(system.fields(spectrum.directions[:3]), system.truth) < 0.05


@pytest.mark.parametrize("name", task.SYSTEMS)
def test_laws_are_learned_from_paths(name):
    system = task.Diffusion(name, task.simulate(name, 4000, 1), True)
    law, exact = fit_law(system.paths, 3, choose=True), exact_law(system)
    learned, true = law.monomials(system.places) @ law.coefficients, exact.monomials(system.places) @ exact.coefficients
    assert float((learned - true).square().mean().sqrt()) < 0.1 * float(true.square().mean().sqrt())


def test_derivatives_of_the_library():
    library, generator = Library(2, 3), torch.Generator().manual_seed(0)
    points = torch.randn(5, 3, generator=generator, dtype=torch.float64)
    for axis in range(3):
        step = torch.zeros(3, dtype=torch.float64)
        step[axis] = 1e-5
        slope = (library.fields(points + step) - library.fields(points - step)) / 2e-5
        torch.testing.assert_close(slope, library.slopes(points)[:, :, axis], atol=1e-7, rtol=1e-6)


def test_residuals_are_linear_in_the_law():
    system = task.Diffusion(task.GROWING, task.simulate(task.GROWING, 400, 0), True)
    asked = Determining(fit_law(system.paths, 2), system.places[:50], system.library)
    direction = asked.spectrum().directions[3:4]
    rows, slopes = asked.linear(direction)
    moved = Law(asked.law.monomials, asked.law.coefficients + 0.1, asked.law.covariance)
    other = sum(part.flatten() for part in asked.terms(moved.coefficients[None], direction))
    torch.testing.assert_close(rows + 0.1 * slopes.sum(1), other)


def test_ours_finds_three_and_nothing_in_the_control():
    found, control = (
        task.Diffusion(task.GROWING, task.simulate(task.GROWING, 20_000, 3, wave=w), w == 0) for w in (0.0, 1.0)
    )
    assert task.count_symmetries(found, 0.2, 0) == 3
    assert angle_of_fields(found.fields(task.proposed(found, found.paths).directions[:3]), found.truth) < 2
    assert task.count_symmetries(control, 0.2, 0) == 0


def test_noise_widens_intervals():
    ends = []
    for count in (400, 6400):
        system = task.Diffusion(task.BROWNIAN, task.simulate(task.BROWNIAN, count, 0), True)
        judge = Determining(fit_law(system.paths, 3), system.places, system.library)
        exact = Determining(exact_law(system), system.places, system.library).spectrum().directions[:3]
        ends.append(float(task.strengths(judge, exact)[:, 1].mean()))
    assert ends[1] < 0.5 * ends[0]


def test_a_threshold_claims_what_it_is_told():
    system = task.Diffusion(task.BROWNIAN, task.simulate(task.BROWNIAN, 2000, 0), True)
    config = task.CompareDiffusionsConfig()
    assert len(task.fields(fixed_threshold, [system], config).basis) == 3
    assert len(task.fields(partial(fixed_threshold, limit=2.0), [system], config).basis) > 3


def test_halves_share_their_units():
    paths = Paths(torch.randn(6, 4, 1, generator=torch.Generator().manual_seed(0)).double(), 0.01)
    assert torch.equal(paths.half(1).units[1], paths.units[1]) and len(paths.half(1).states) == 3
