"""The zoo: how finds are scored, what is planned, and the command."""

import json
import math

import pytest
import torch

from atlasd.algebra.known_algebras import scaling, sl, so, trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.cli import main
from atlasd.datasets.zoo import zoo_systems
from atlasd.errors import InputError
from atlasd.experiments.digits import digits_reason
from atlasd.experiments.zoo import QUICK, Row, Task, Zoo, describe_zoo, plan_zoo, run_task, run_zoo, score, zoo_table


def tilted(degrees):
    """so(2) turned by some degrees towards the scaling."""
    angle = math.radians(degrees)
    turn, scale = so(2).frame()[0], scaling(2).frame()[0]
    return LieAlgebra((math.cos(angle) * turn + math.sin(angle) * scale)[None])


@pytest.mark.parametrize(
    "found, truth, outcome",
    [
        (so(2), so(2), "detected"),
        (tilted(5), so(2), "detected"),
        (tilted(15), so(2), "false discovery"),
        (scaling(2), so(2), "false discovery"),
        (so(2).sum(scaling(2)), so(2), "false discovery"),
        (sl(2), so(2), "false discovery"),
        (so(2), sl(2), "wrong dimension"),
        (scaling(2), sl(2), "false discovery"),
        (trivial(2), so(2), "missed"),
        (so(2), trivial(2), "false discovery"),
        (trivial(2), trivial(2), "none"),
    ],
)
def test_score(found, truth, outcome):
    assert score(found, truth).outcome == outcome


def test_score_gives_the_angle():
    assert score(tilted(5), so(2)).angle == pytest.approx(5, abs=1e-6)
    assert score(trivial(2), so(2)).angle is None


def row(outcome, *, positive=True, truth=1, found=1):
    return Row(
        system="s", kind="vector", mode="oracle", seed=0, positive=positive, truth=truth, found=found, name="n",
        verdict="v", outcome=outcome, angle=None, skill=1.0, error=None, seconds=0.5,
    )  # fmt: skip


def test_totals():
    rows = (
        row("detected"),
        row("missed", found=0),
        row("wrong dimension", truth=3, found=1),
        row("false discovery", found=2),
        row("false discovery", positive=False, truth=0),
        row("none", positive=False, truth=0, found=0),
        row("skipped", positive=False, truth=0, found=0),
    )
    content = Zoo(rows, 1.0).to_dict()
    assert set(content) == {
        "systems", "false_discoveries", "detected", "positives", "wrong_dimension", "seconds",
    }  # fmt: skip
    assert len(content["systems"]) == 7
    assert (content["false_discoveries"], content["detected"], content["positives"]) == (2, 1, 4)
    assert content["wrong_dimension"] == 2
    assert "1 of 4 positives" in describe_zoo(Zoo(rows, 1.0))
    assert len(zoo_table(rows).splitlines()) == 8


def test_plan_holds_every_system_as_marked():
    tasks = plan_zoo(seeds=2)
    for system in zoo_systems():
        modes = sorted({t.mode for t in tasks if t.system == system.name})
        assert modes == [m for m, fits in (("fitted", system.fitted), ("oracle", system.oracle)) if fits]
    assert {t.seed for t in tasks} == {0, 1}
    assert {t.seed for t in plan_zoo(seeds=2, first=3)} == {3, 4}
    assert {t.mode for t in plan_zoo(seeds=1, mode="oracle")} == {"oracle"}
    assert {"heat_untrained", "so3_untrained", "upright_digits"} <= {t.system for t in tasks}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"only": ["heet"]}, "unknown system 'heet', did you mean 'heat"),
        ({"seeds": 0}, "`seeds` must be at least 1"),
        ({"first": -1}, "`first` must be at least 0"),
        ({"mode": "both ways"}, "`mode` must be"),
    ],
)
def test_plans_that_cannot_be(settings, message):
    with pytest.raises(InputError, match=message):
        plan_zoo(**settings)


def test_workers_must_be_positive():
    with pytest.raises(InputError, match="`workers` must be at least 1"):
        run_zoo([], workers=0)


def test_an_untrained_predictor_tells_nothing():
    for name in ("so3_untrained", "heat_untrained"):
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
    assert (content["false_discoveries"], content["detected"], content["positives"]) == (0, 3, 3)
    assert json.loads((tmp_path / "zoo" / "zoo.json").read_text()) == content
    assert "3 of 3 positives" in (tmp_path / "zoo" / "zoo.txt").read_text()
    assert torch.get_num_threads() == before


def test_the_command_refuses_other_directories(tmp_path, capsys):
    (tmp_path / "precious").write_text("")
    assert main(["zoo", "--quick", "--out", str(tmp_path)]) == 2
    assert "must be empty" in capsys.readouterr().err
