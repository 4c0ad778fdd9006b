"""Targets that move with the inputs: which questions fit, which is taken, and what is said about it."""

import pytest
import torch

import atlasd as ad
from atlasd.data.arrays import Mixing
from atlasd.discovery.targets import _holds, say_rest
from atlasd.errors import InputError
from atlasd.geometry.stacked import Stacked, intertwiners
from atlasd.runtime.progress import Silent


def points(count=600, size=2, seed=0):
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def found(function, x=None, **options):
    return ad.discover(points() if x is None else x, function=function, progress=False, **options)


def test_vectors_that_turn_with_the_inputs_are_found_without_being_told():
    answer = found(lambda x: x * x.norm(dim=-1, keepdim=True))
    assert answer.group.name == "O(2)"
    assert "components of a vector" in answer.verdict.reason and "2 invariant numbers: none" in answer.verdict.reason
    assert answer.config["targets"].startswith("components of a vector")


def test_invariants_stay_invariants():
    answer = found(lambda x: torch.stack([x.norm(dim=-1), x.square().sum(-1).cos()], dim=-1))
    assert answer.group.name == "O(2)" and answer.config["targets"] == "2 invariant numbers"


def test_gradients_of_a_lorentz_scalar_are_covectors():
    metric = torch.tensor([1.0, -1.0])
    answer = found(lambda x: torch.cos((metric * x * x).sum(-1, keepdim=True) / 2) * metric * x, rho_out=("covector",))
    assert answer.algebra.distance(ad.known.so(1, 1)) < 1e-3
    other = found(lambda x: torch.cos((metric * x * x).sum(-1, keepdim=True) / 2) * metric * x, rho_out="vector")
    assert other.algebra.dimension == 0


def test_what_commutes_with_everything_proves_nothing():
    """A state a moment later is nearly the state itself: only the rest can break anything."""
    mixed = torch.tensor([[1.0, 2.0], [-0.5, 1.5]])
    answer = found(lambda x: x + 0.05 * torch.sin(x @ mixed + 0.5), rho_out="vector", cosets=False)
    assert not answer.verdict.symmetric
    answer = found(lambda x: 3 * x, rho_out="vector")
    assert answer.headline == "Not testable"


def test_several_vectors_at_once():
    answer = found(lambda x: torch.cat([x * x.norm(dim=-1, keepdim=True), x.square().sum(-1, keepdim=True) * x], -1))
    assert answer.group.name == "O(2)" and "2 vectors" in answer.config["targets"]


@pytest.mark.parametrize("name", ["vectors", 3, ()])
def test_wrong_names_are_refused(name):
    with pytest.raises(InputError, match="`rho_out` must be auto, vector"):
        found(lambda x: x, rho_out=name)


def test_a_vector_must_have_its_components():
    with pytest.raises(InputError, match="`rho_out` must be trivial unless the number of outputs is a multiple of 2"):
        found(lambda x: x.norm(dim=-1), rho_out="vector")


def test_targets_are_described_once():
    with pytest.raises(InputError, match="`rho_out` must be left out where `action` has one"):
        found(lambda x: x, action=ad.VectorAction(rho_out=lambda g: g), rho_out="trivial")


def test_an_action_decides_for_itself():
    answer = found(lambda x: x * x.norm(dim=-1, keepdim=True), action=ad.VectorAction())
    assert not answer.verdict.symmetric and "rho_out='vector'" in answer.verdict.reason


def test_a_function_of_matrices_is_taken_as_it_is():
    answer = found(lambda x: x * x.norm(dim=-1, keepdim=True), rho_out=lambda g: g)
    assert answer.group.name == "O(2)"


def test_fields_of_vectors_without_names(waves):
    """The gradient of a smoothed field: components along rows and columns."""
    x = waves(40, (19, 19), length=8.0)

    def gradient(z):
        smooth = torch.nn.functional.avg_pool2d(z, 3, 1, 1)
        return torch.cat([smooth.roll(-1, -2) - smooth.roll(1, -2), smooth.roll(-1, -1) - smooth.roll(1, -1)], dim=1)

    answer = found(gradient, x, atlas=ad.Atlas.at([(9, 9)], 9, 4))
    assert answer.group.name == "O(2)" and "in the order of the axes" in answer.config["targets"]


def test_representations_multiply():
    g, h = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for rho in (Stacked(2), Stacked(1, dual=True), Stacked(2, reverse=True, upward=True)):
        assert torch.allclose(rho(g) @ rho(h), rho(g @ h))


def test_maps_that_commute_with_all_matrices():
    assert len(intertwiners(Stacked(2), Stacked(3), 2, (6, 4))) == 6
    assert len(intertwiners(Stacked(1), Stacked(1, dual=True), 2, (2, 2))) == 0
    assert len(intertwiners(None, None, 2, (2, 3))) == 6


def test_a_budget_of_time_is_kept_and_what_is_left_out_is_said():
    answer = found(lambda x: x * x.norm(dim=-1, keepdim=True), budget=1e-3)
    assert answer.algebra.distance(ad.known.so(2)) < 1e-3 and len(answer.cosets) == 1
    assert "the discrete part was not looked for" in answer.verdict.reason
    assert "set aside, the budget of time was used up" in answer.verdict.reason


def test_targets_take_the_convention_of_the_inputs():
    columns_first, axes = Stacked(1, reverse=True), Stacked(1)
    for pairs, part in ((((0, 1),), columns_first), (((1, 0),), axes), (((2, 1),), axes)):
        assert _holds(Mixing(3, pairs), part, 2)
    assert not _holds(Mixing(3, ((0, 1),)), axes, 2) and not _holds(Mixing(3, ((0, 1),), False), columns_first, 2)


def test_a_generator_of_a_fitted_map_is_refined_at_finite_size():
    x = points(300, seed=4)
    found = ad.discover(x, x * x.norm(dim=-1, keepdim=True), rho_out="vector", cosets=None, progress=False)
    rotation = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
    assert found.algebra.dimension == 1
    assert found.algebra.distance(ad.LieAlgebra(rotation)) < 0.01
    assert found.verdict.directions[0].lower < 0.02  # the truth is 0
    assert "the targets were taken as components of a vector" in found.verdict.reason


def test_the_time_left_is_told_by_what_a_question_took():
    said = []

    class Listening(Silent):
        def say(self, text):
            said.append(text)

    say_rest(10.0, 2, True, Listening())
    say_rest(2.0, 0, True, Listening())  # hardly worth saying
    say_rest(10.0, 0, False, Listening())
    assert said == [f"about {n} s left, by the search before" for n in (22, 20)]
