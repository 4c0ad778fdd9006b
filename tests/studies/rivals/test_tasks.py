"""Tasks of others: their truths hold, every method answers in the right form, and controls have no symmetry."""

import math
from dataclasses import fields

import pytest
import torch

from atlasd.runtime.random import stream
from atlasd.studies.rivals import compare_flows, compare_sector, compare_two_body
from atlasd.studies.rivals.augmentation import AugmentationLearning
from atlasd.studies.rivals.compare import OURS, Answer, Task, find_contest, perform
from atlasd.studies.rivals.compare_flows import Flow, flow_task, without_flow
from atlasd.studies.rivals.compare_two_body import augmented_error, joint_rotation, network_error, two_body_orbits
from atlasd.studies.rivals.field_library import homogeneous_to_fields
from atlasd.studies.rivals.measures import angle_of_fields
from atlasd.studies.rivals.tasks import elementary

TASKS = {
    "affine": {"samples": 200},
    "cubic": {"samples": 200},
    "sector": {"samples": 300},
    "flows": {"samples": 100},
    "two-body": {"samples": 60, "network_steps": 2},
    "diffusions": {"samples": 320},
}
FEW = {"gradient_batches": 2, "liegan_steps": 2, "augmentation_steps": 2}


@pytest.mark.parametrize(
    "name", [*(n for n in TASKS if n != "diffusions"), pytest.param("diffusions", marks=pytest.mark.slow)]
)
def test_every_rival_answers_in_the_same_form(name):
    contest = find_contest(name)
    few = {key: value for key, value in FEW.items() if key in {f.name for f in fields(contest.config)}}
    config = contest.config(**TASKS[name], **few)
    rivals = [m for m in contest.methods if not m.startswith(OURS)]
    assert {"fields, threshold", "fields, rank test"} <= set(rivals) and set(contest.reported) <= set(rivals)
    for method in rivals:
        row = perform(Task(name, method, config, 0))
        assert row["dimension"] >= 0 and 0 <= row["error_deg"] <= 90 and row["components"] >= 1


@pytest.mark.parametrize("name", ["affine", pytest.param("cubic", marks=pytest.mark.slow)])
def test_ours_finds_the_field_and_nothing_in_the_control(name):
    config = find_contest(name).config(samples=400)
    assert perform(Task(name, OURS, config, 0))["error_deg"] < 1e-3
    assert perform(Task(name, OURS, config, 0, control=True))["dimension"] == 0


def test_ours_claims_nothing_false_of_two_flows():
    config = compare_flows.CompareFlowsConfig(samples=400, noise=0.01)
    flows = [Flow(*flow_task(name, 400, 0.01, 7), name=name) for name in ("hopf", "van der pol")]
    answer = compare_flows.ours(flows, config, 0)
    assert [len(p) for p in answer.parts] == [1, 0] and answer.dimension == 1
    assert answer.figures() == {"detected": 1.0, "false": 0}


def test_the_flow_itself_is_divided_out():
    x, y = flow_task("rotation", 200, 0.0, 3)
    turn = torch.tensor([[[0.0, 0.0, -1.0], [0.0, 1.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]).double()
    rest = without_flow(Flow(x, y, name="rotation"), turn)
    assert (
        len(rest) == 1 and angle_of_fields(*(torch.einsum("kim,bm->kbi", f[..., 1:], x) for f in (rest, turn[1:]))) < 5
    )
    hopf = Flow(*flow_task("hopf", 200, 0.0, 3), name="hopf")
    assert torch.equal(without_flow(hopf, turn), turn)


def test_sector_has_seven_rotations_and_a_scaling():
    x, y = compare_sector.sector_task(200, seed=0)
    for g in compare_sector.seventh_rotations():
        moved = compare_sector.sector_value(x @ g.mT)
        assert float((moved - y).abs().median()) < 1e-9
    torch.testing.assert_close(compare_sector.sector_value(x * torch.tensor([3.0, 3.0, 1.0]).double()), y)
    turns = compare_sector.seventh_rotations()
    mirror = torch.diag(torch.tensor([1.0, -1.0, 1.0])).double()[None]
    assert compare_sector.sort_elements(torch.cat([torch.eye(3).double()[None], 2 * turns[:2], mirror])) != (2, 1)
    scaled = turns[:2].clone()
    scaled[:, :2] *= 2
    assert compare_sector.sort_elements(torch.cat([torch.eye(3).double()[None], scaled, mirror])) == (2, 1)


def test_sector_as_a_function():
    config = compare_sector.CompareSectorConfig(samples=2000)
    answer = compare_sector.ours_exact(compare_sector.data(config, 0, False), config, 0)
    assert answer.figures() == {"sevenths": 6, "other_elements": 0} and answer.dimension == 1


def test_orbits_rotate_together_and_do_not_under_a_force():
    plain, pulled = (two_body_orbits(20, seed=0, force=f) for f in ((0.0, 0.0), (0.06, 0.03)))
    states = plain.states
    torch.testing.assert_close(states[..., :2], -states[..., 2:4])
    energy = states[..., 4:6].square().sum(-1) / 2 - 1 / (4 * states[..., :2].norm(dim=-1))
    assert float((energy[:, -1] - energy[:, 0]).abs().max()) < 1e-3 and not torch.equal(states, pulled.states)
    now, after = plain.steps
    assert now.shape == after.shape == (60, 8)


def test_the_truth_augments():
    train, test = two_body_orbits(30, seed=0), two_body_orbits(100, seed=1)
    options = {"steps": 300, "seed": 0}
    plain = augmented_error(train, test, joint_rotation()[:0], **options)
    assert augmented_error(train, test, joint_rotation(), **options) < plain
    assert network_error(train, test, joint_rotation(), **options) < plain / 2


@pytest.mark.slow
def test_ours_finds_the_rotation_of_two_bodies_and_none_under_a_force():
    """Both bodies are always opposite to each other: their states lie in four of eight dimensions."""
    config = compare_two_body.CompareTwoBodyConfig(samples=200, network_steps=0)
    measure = find_contest("two-body").measure
    side = compare_two_body.data(config, 0, False)
    assert measure(compare_two_body.ours(side, config, 0).parts, side) < 3
    assert compare_two_body.ours(compare_two_body.data(config, 0, True), config, 0).dimension == 0


def test_two_body_fields_are_exact_in_four_dimensions():
    config = compare_two_body.CompareTwoBodyConfig(samples=200, network_steps=0)
    side = compare_two_body.data(config, 0, False)
    measure = find_contest("two-body").measure
    assert measure((joint_rotation(),), side) < 1e-6 and measure((joint_rotation()[:0],), side) == 90


def test_widths_grow_along_symmetries_only():
    x = torch.randn(500, 2, generator=stream(0, "points"))
    given, names = elementary(2)
    found, widths = AugmentationLearning(steps=400).find(x, x.norm(dim=-1), given, seed=0)
    assert names[int(widths.argmax())] == "rotation 12" and torch.equal(found[0], given[0])
    wavy = x.norm(dim=-1) + torch.sin(2 * x[:, 0] + x[:, 1])
    assert float(AugmentationLearning(steps=400).find(x, wavy, given, seed=0)[1][0]) < float(widths[0]) / 2


def test_parts_are_counted_together():
    one, two = torch.eye(2)[None], torch.ones(2, 3, 4)
    assert Answer(one, more=(two,)).dimension == 2
    assert math.isclose(angle_of_fields(one, 2 * one), 0.0, abs_tol=1e-6)
    assert homogeneous_to_fields(torch.zeros(1, 3, 3)).shape == (1, 2, 3)
