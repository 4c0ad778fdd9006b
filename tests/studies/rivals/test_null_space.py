"""The vector-field method and its rules: exact answers, noise, and controls."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.monomials import Monomials
from atlasd.studies.rivals.compare_flows import SYSTEMS, defects, flow_task, true_generators
from atlasd.studies.rivals.compare_shaw import affine_field, affine_task, cubic_field, cubic_task, fields_at
from atlasd.studies.rivals.field_library import Polynomial, VectorFields, homogeneous_to_fields
from atlasd.studies.rivals.measures import angle_of_fields
from atlasd.studies.rivals.null_space import Spectrum, fixed_threshold, rank_test, solve_spectrum

RULES = [fixed_threshold, rank_test]
rules = pytest.mark.parametrize("rule", RULES, ids=["threshold", "rank"])


@rules
def test_a_rotated_ellipse_is_found_exactly(rule):
    x, y = affine_task(300, seed=1)
    found = VectorFields(library=1, rule=rule).find(x, y)
    assert angle_of_fields(fields_at(x, found), affine_field(x)) < 1e-6


@rules
def test_a_field_of_degree_two_is_found_exactly(rule):
    x, y = cubic_task(300, seed=1)
    found = VectorFields(library=2, rule=rule).find(x, y)
    fields = torch.einsum("kim,bm->kbi", found, Monomials(2, 2)(x))
    assert angle_of_fields(fields, cubic_field(x)) < 1e-6


@rules
@pytest.mark.parametrize("name", ["hopf", "symmetric top", "ball"])
def test_flows_with_little_noise(rule, name):
    x, y = flow_task(name, 400, 0.01, seed=3)
    found = VectorFields(library=1, equivariant=True, degree=4, rule=rule).find(x, y)
    truth = homogeneous_to_fields(true_generators(name))
    fields = [fields_at(x, f) for f in (found, truth)]
    assert angle_of_fields(*fields) < 2


@rules
@pytest.mark.parametrize("name", ["van der pol", "lorenz"])
def test_flows_without_a_symmetry(rule, name):
    x, y = flow_task(name, 400, 0.01, seed=1)
    assert not len(VectorFields(library=1, equivariant=True, degree=4, rule=rule).find(x, y))


@rules
def test_a_generic_polynomial_has_no_affine_symmetry(rule):
    x = 2 * torch.rand(400, 2, generator=torch.Generator().manual_seed(0)).double() - 1
    y = x[:, 0] ** 3 + x[:, 0] * x[:, 1] + x[:, 1] ** 2
    assert not len(VectorFields(library=1, rule=rule).find(x, y))


def test_rules_count():
    spectrum = Spectrum(torch.tensor([0.0, 0.04, 0.3]), torch.eye(3))
    assert fixed_threshold(spectrum, lambda k: 0.0) == 2
    assert rank_test(spectrum, {1: 0.5, 2: 0.01, 3: 0.5}.__getitem__) == 1
    assert rank_test(spectrum, lambda k: 1.0) == 3


def test_directions_that_vanish_are_left_out():
    found = solve_spectrum(torch.eye(2).double(), torch.tensor([[1.0, 0.0]]).double())
    assert found.values.tolist() == [1.0] and found.directions.abs().tolist() == [[1.0, 0.0]]


def test_the_degree_is_chosen_on_held_out_data():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).double()
    y = (x[:, :1] ** 3 - x[:, 1:]) + 0.01 * torch.randn(400, 1, generator=torch.Generator().manual_seed(1))
    learned = Polynomial.fit(x, y, 6)
    assert learned.degree == 3 and 0.008 < float(learned.noise) < 0.012
    slope = torch.einsum("bmi,mo->bi", learned.slopes(x), learned.coefficients)
    torch.testing.assert_close(slope, torch.stack([3 * x[:, 0] ** 2, -torch.ones(400)], dim=-1), atol=0.05, rtol=0.05)
    with pytest.raises(InputError, match="at least 12 samples"):
        Polynomial.fit(x[:5], y[:5], 2)


@pytest.mark.parametrize(
    "name, count", [("hopf", 1), ("rotation", 1), ("symmetric top", 2), ("ball", 3), ("duffing", 0)]
)
def test_true_generators_commute_with_the_flow(name, count):
    truth = true_generators(name)
    assert len(truth) == count and (not count or float(defects(name, truth).max()) < 1e-9)
    assert SYSTEMS[name][1] + 1 == truth.shape[-1]
