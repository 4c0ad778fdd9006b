"""The zoo: how finds are scored, what is planned, and the command."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.known import cyclic, dihedral, scaling, sl, so, trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.cli import main
from atlasd.errors import InputError
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import digits_reason
from atlasd.studies.zoo.run import (
    QUICK,
    Row,
    Task,
    Zoo,
    describe_zoo,
    foreign_systems,
    plan_zoo,
    run_task,
    run_zoo,
    zoo_systems,
    zoo_table,
)
from atlasd.studies.zoo.scoring import score_discovery
from atlasd.studies.zoo.system import signs


def tilted(degrees):
    """so(2) tilted by some degrees towards the scaling."""
    angle = math.radians(degrees)
    turn, scale = so(2).frame()[0], scaling(2).frame()[0]
    return LieAlgebra((math.cos(angle) * turn + math.sin(angle) * scale)[None])


def answer(group, reason="", decisions=()):
    """A discovery as far as its score looks at it."""
    rejected = tuple(SimpleNamespace(decision=d) for d in decisions)
    return SimpleNamespace(group=group, verdict=SimpleNamespace(reason=reason, rejected=rejected))


SYSTEMS = {system.name: system for system in (*zoo_systems(), *foreign_systems(0))}
MIRROR = signs("++", "+-")
QUARTERS = torch.stack([torch.matrix_exp(k * math.pi / 2 * so(2).basis[0]) for k in range(4)])


@pytest.mark.parametrize(
    "system, group, outcome",
    [
        ("o2", Group(so(2), MIRROR), "detected"),
        ("o2", Group(tilted(5), MIRROR), "detected"),
        ("heat", Group(tilted(12), MIRROR), "false discovery"),
        ("o2", Group(tilted(40), MIRROR), "false discovery"),
        ("o2", Group(so(2)), "wrong components"),
        ("o2", Group(trivial(2), QUARTERS), "wrong dimension"),
        ("o2", Group(scaling(2)), "false discovery"),
        ("o2", Group(so(2).sum(scaling(2))), "false discovery"),
        ("o2", Group(so(2), torch.stack([torch.eye(2), 2 * torch.eye(2)])), "false discovery"),
        ("so2", Group(so(2), MIRROR), "false discovery"),
        ("sl2", Group(so(2)), "wrong dimension"),
        ("threefold", Group(trivial(2), QUARTERS[:1]), "missed"),
        ("threefold", dihedral(3), "detected"),
        ("threefold", Group(so(2)), "false discovery"),
        ("fourfold", cyclic(4), "wrong components"),
        ("o2_broken", Group(so(2)), "false discovery"),
        ("o2_broken", Group(trivial(2)), "none"),
        ("constant_vector", Group(so(3)), "false discovery"),
        ("noise2", Group(so(2)), "false discovery"),
        ("noise2", Group(trivial(2), MIRROR), "false discovery"),
        ("heat", Group(so(2), MIRROR), "detected"),
        ("heat", Group(so(2)), "wrong components"),
        ("heat", Group(sl(2)), "false discovery"),
        ("identity", Group(so(2)), "false discovery"),
        ("one_column", Group(trivial(3), signs("+++", "--+")), "false discovery"),
    ],
)
def test_score(system, group, outcome):
    assert score_discovery(SYSTEMS[system], answer(group), 0).outcome == outcome


def test_a_repeated_component_is_false():
    """Half-turns belong to the rotations: four components of an O(2) are two."""
    four = Group(so(2), torch.cat([MIRROR, -MIRROR]))
    given = score_discovery(SYSTEMS["o2"], answer(four), 0)
    assert (given.outcome, given.generators, given.elements) == ("false discovery", 0, 2)


def test_generators_and_elements_are_counted_apart():
    given = score_discovery(SYSTEMS["so2"], answer(Group(sl(2), MIRROR)), 0)
    assert (given.generators, given.elements) == (2, 1)


@pytest.mark.parametrize(
    "reason, decisions, outcome",
    [
        ("No symmetry.", (), "missed"),
        ("No symmetry.", ("broken",), "missed"),
        ("Cannot tell: too few samples.", (), "cannot tell"),
        ("", ("broken", "not testable"), "cannot tell"),
    ],
)
def test_nothing_claimed(reason, decisions, outcome):
    found = answer(Group(trivial(2)), reason, decisions)
    assert score_discovery(SYSTEMS["o2"], found, 0).outcome == outcome


def test_score_gives_the_angle():
    assert score_discovery(SYSTEMS["heat"], answer(Group(tilted(5))), 0).angle == pytest.approx(5, abs=1e-6)
    assert score_discovery(SYSTEMS["heat"], answer(Group(trivial(2))), 0).angle is None


def row(outcome, *, positive=True, truth=1, found=1, generators=0, elements=0):
    return Row(
        system="s", kind="vector", mode="oracle", seed=0, positive=positive, truth=truth, found=found, components=2,
        found_components=2, name="n", verdict="v", outcome=outcome, false_generators=generators,
        false_elements=elements, note="", angle=None, skill=1.0, upper=None, seconds=0.5,
    )  # fmt: skip


def test_totals():
    rows = (
        row("detected"),
        row("missed", found=0),
        row("wrong dimension", truth=3, found=1),
        row("wrong components"),
        row("false discovery", found=2, generators=1),
        row("false discovery", positive=False, truth=0, generators=1, elements=3),
        row("none", positive=False, truth=0, found=0),
        row("skipped", positive=False, truth=0, found=0),
    )
    content = Zoo(rows, 1.0).to_dict()
    assert set(content) == {
        "systems", "false_discoveries", "false_generators", "false_elements", "detected", "positives",
        "wrong_dimension", "wrong_components", "seconds",
    }  # fmt: skip
    assert len(content["systems"]) == 8
    assert (content["false_discoveries"], content["detected"], content["positives"]) == (2, 1, 5)
    assert (content["false_generators"], content["false_elements"]) == (2, 3)
    assert (content["wrong_dimension"], content["wrong_components"]) == (2, 1)
    assert "1 of 5 positives" in describe_zoo(Zoo(rows, 1.0))
    assert len(zoo_table(rows).splitlines()) == 9


def test_plan_holds_every_system_as_marked():
    tasks = plan_zoo(seeds=2)
    for system in SYSTEMS.values():
        modes = sorted({t.mode for t in tasks if t.system == system.name})
        assert modes == [m for m, fits in (("fitted", system.fitted), ("oracle", system.oracle)) if fits]
    assert {t.seed for t in tasks} == {0, 1}
    assert {t.seed for t in plan_zoo(seeds=2, first=3)} == {3, 4}
    assert {t.mode for t in plan_zoo(seeds=1, mode="oracle")} == {"oracle"}
    assert {t.noise for t in plan_zoo(seeds=1, noise=0.1) if t.mode == "fitted"} == {0.1}
    assert {"heat_untrained", "so3_untrained", "upright_digits"} <= {t.system for t in tasks}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"only": ["heet"]}, "unknown system 'heet', did you mean 'heat"),
        ({"seeds": 0}, "`seeds` must be from 1 to 1000"),
        ({"first": -1}, "`first` must be at least 0"),
        ({"mode": "both ways"}, "`mode` must be"),
        ({"noise": -0.1}, "`noise` must be at least 0"),
        ({"tolerance": 1.5}, "`tolerance` must lie between 0 and 1"),
    ],
)
def test_plans_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        plan_zoo(**settings)


def test_workers_must_be_positive():
    with pytest.raises(InputError, match="`workers` must be at least 1"):
        run_zoo([], workers=0)


def test_noise_in_labels():
    system = SYSTEMS["o2"]
    (x, clean), (same, noisy) = (system.data(4000, stream(0, "noise"), noise=noise) for noise in (0.0, 0.5))
    assert torch.equal(x, same)
    assert float((noisy - clean).std()) == pytest.approx(0.5 * float(clean.std()), rel=0.05)


@pytest.mark.parametrize("name", ["so3_untrained", pytest.param("heat_untrained", marks=pytest.mark.slow)])
def test_an_untrained_predictor_tells_nothing(name):
    done = run_task(Task(name, "fitted", 0))
    assert done.outcome == "none" and done.verdict.startswith("Cannot tell")


def test_digits_are_skipped_where_there_are_none(monkeypatch, tmp_path):
    monkeypatch.delenv("ATLASD_DATA", raising=False)
    assert "ATLASD_DATA" in digits_reason()
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path))
    assert run_task(Task("upright_digits", "fitted", 0)).outcome == "skipped"


def test_quick_command(tmp_path, capsys):
    before = torch.get_num_threads()
    assert main(["zoo", "--quick", "--json", "--workers", "1", "--out", str(tmp_path / "zoo"), "--quiet"]) == 0
    shown = capsys.readouterr()
    content = json.loads(shown.out)
    assert [r["system"] for r in content["systems"]] == list(QUICK)
    assert (content["false_discoveries"], content["detected"], content["positives"]) == (0, 4, 4)
    assert json.loads((tmp_path / "zoo" / "zoo.json").read_text()) == content
    assert "4 of 4 positives" in (tmp_path / "zoo" / "zoo.txt").read_text()
    assert torch.get_num_threads() == before


def test_the_command_refuses_other_directories(tmp_path, capsys):
    (tmp_path / "precious").write_text("")
    assert main(["zoo", "--quick", "--out", str(tmp_path)]) == 2
    assert "must be empty" in capsys.readouterr().err
