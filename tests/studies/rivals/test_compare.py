"""Comparisons: the form of the table, the rule for claims, processes of their own, and bad input."""

import itertools
import json
import mmap
from dataclasses import dataclass, replace

import pytest
import torch

from atlasd.algebra.known import so, trivial
from atlasd.algebra.lie import LieAlgebra
from atlasd.cli import main
from atlasd.discovery.discover import TOLERANCE
from atlasd.discovery.gradient import GradientSearch
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.config import Config, option
from atlasd.studies.rivals import compare
from atlasd.studies.rivals.asking import Plan, Side, ask
from atlasd.studies.rivals.compare import OURS, Answer, Contest, find_contest, perform, run_contest
from atlasd.studies.rivals.compare_paper import CompareHeatConfig, heat_data, oblique
from atlasd.studies.rivals.liegan import LieGAN
from atlasd.studies.rivals.measures import metric_likeness, span_angle_to

FIXED = {"name", "dimension", "components", "false_claims", "seconds", "peak_mb"}
TURN = so(2).basis


@dataclass(frozen=True, kw_only=True)
class ToyConfig(Config):
    samples: int = option(400, "points", least=1)


def toy_data(config, seed, control):
    x = torch.randn(config.samples, 2, generator=stream(seed, "toy"))
    return x, control


def exact(data, config, seed):
    return Answer(TURN[:0] if data[1] else TURN)


def careless(data, config, seed):
    """Claims a shear and a mirror whatever it sees, and needs memory."""
    with mmap.mmap(-1, 40_000_000) as pages:  # not from what the allocator keeps of earlier tests
        pages.write(bytes(len(pages)))
    return Answer(torch.tensor([[[0.0, 1.0], [0.0, 0.0]]]), components=2, judged=lambda: TURN[:0])


TOY = Contest(
    name="toy",
    config=ToyConfig,
    measure=span_angle_to(so(2)),
    data=toy_data,
    methods={OURS: exact, "careless": careless},
    control="nothing",
    reported={"careless": "not published"},
    remark="two methods",
)


@pytest.fixture
def here(monkeypatch, tmp_path):
    """The toy under a known name, without processes: they would not know it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "find_contest", lambda name: TOY if name == "toy" else find_contest(name))
    monkeypatch.setattr(compare, "_alone", perform)
    return tmp_path


def test_rows_have_the_fixed_form(here):
    table = run_contest(TOY, ToyConfig(), 0, Silent())
    content = json.loads(json.dumps(table.to_dict(), allow_nan=False))
    assert content["experiment"] == "toy" and [row["name"] for row in content["methods"]] == [OURS, "careless"]
    for row in content["methods"]:
        assert row.keys() >= FIXED | {"error_deg"}
    assert content["control"] == "nothing" and content["reported"] and content["seed"] == 0


def test_one_rule_counts_claims(here):
    ours, other = run_contest(TOY, ToyConfig(), 0, Silent()).methods
    assert (ours["false_claims"], ours["false_confirmed"]) == (0, 0)
    # One generator and one component beyond the first; our verdict leaves none.
    assert (other["false_claims"], other["false_confirmed"]) == (2, 0)


def test_the_table_has_errors_and_memory(here):
    ours, other = run_contest(TOY, ToyConfig(), 0, Silent()).methods
    assert ours["error_deg"] < 1e-4 and abs(other["error_deg"] - 45) < 1e-3
    assert other["working_mb"] > ours["working_mb"] + 25


def test_a_second_table_has_each_as_published(here, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Both(compare.CompareConfig):
        samples: int = option(400, "points", least=1)

    half = lambda data, config, seed: Answer(2 * TURN, judged=lambda: TURN[:0])  # noqa: E731
    both = replace(TOY, config=Both, published={"careless": half})
    monkeypatch.setattr(compare, "find_contest", lambda name: both)
    table = run_contest(both, Both(), 0, Silent())
    assert [row["name"] for row in table.methods] == [OURS, "careless"]
    (row,) = table.published
    assert row["error_deg"] < 1e-4 and row["confirmed"] == 0 and row["after_verdict"] is None
    assert table.to_dict()["published"]
    assert not run_contest(both, Both(tables="same"), 0, Silent()).published
    assert [r["name"] for r in run_contest(both, Both(tables="own"), 0, Silent()).methods] == [OURS]


@pytest.mark.parametrize("name", ["heat", "dimuons", "top-tagging", "sphere-mnist"])
def test_every_comparison_has_both_tables_and_the_one_tolerance(name):
    contest = find_contest(name)
    config = contest.config()
    assert {"AtlasD", "LieGAN"} <= set(contest.published) and config.tables == "both"
    assert config.tolerance == TOLERANCE


@pytest.mark.parametrize("measure, truth", [(span_angle_to, so(2)), (metric_likeness, so(1, 3))])
def test_errors(measure, truth):
    error = measure(truth)
    right, none = error((truth.basis,)), error((trivial(truth.size).basis,))
    if measure is span_angle_to:
        assert right < 1e-4 and none == 90 and error((so(3).basis,)) == 90
    else:
        assert right > 1 - 1e-9 and none == 0
    assert error.error(right) < 1e-4 < error.error(none)


SEARCHES = {"search": GradientSearch.published(epochs=None, steps=5), "liegan": LieGAN(steps=5, batch=32)}


def test_rivals_are_asked_without_gates():
    x = torch.randn(200, 2, generator=stream(0, "points"))
    plan = Plan(side=Side(x, None, lambda p: p.norm(dim=-1)), **SEARCHES)
    answer = ask("LieGG", plan, tolerance=0.2, seed=0)
    assert LieAlgebra(answer.basis).distance(so(2)) < 1e-3 and len(answer.judged()) == 1


@pytest.mark.parametrize("name", ["LieGAN", "AtlasD"])
def test_rivals_are_asked_about_data(name):
    x = torch.randn(200, 2, generator=stream(0, "points"))
    quick = {"predictor": MLPPredictor(schedule=Schedule(epochs=1))}
    answer = ask(name, Plan(side=Side(x, x.norm(dim=-1)), shared=quick, **SEARCHES), tolerance=0.2, seed=0)
    assert answer.basis.shape[1:] == (2, 2) and len(answer.basis) <= 1
    assert not len(answer.judged())  # one epoch has no skill


def test_heat_data_and_its_control():
    config = CompareHeatConfig(samples=40, steps=2)
    plain, control = (heat_data(config, 0, c) for c in (False, True))
    assert torch.equal(plain.x, control.x) and not torch.equal(plain.y, control.y)
    torch.testing.assert_close(control.function(control.x[:2]), control.y[:2])
    x = torch.rand(1, 1, 30, 30, generator=stream(0, "field"))
    inner = (..., slice(6, -6), slice(6, -6))
    for motion in (lambda z: z.flip(-1), lambda z: z.flip(-2), lambda z: z.mT, lambda z: z.rot90(1, (-2, -1))):
        assert float((oblique(motion(x)) - motion(oblique(x)))[inner].abs().max()) > 0.1 * float(oblique(x).std())


def test_the_control_is_far_from_every_symmetry_of_the_grid_on_its_own_fields():
    """As a square, where the tolerance is 0.04: a control that a mirror nearly leaves alone is none."""
    side = heat_data(CompareHeatConfig(samples=40, steps=20), 0, True)
    inner = (..., slice(50, 78), slice(70, 98))  # away from the block and the walls
    start = side.function(side.x)
    for transpose, axes in itertools.product((False, True), ((), (-1,), (-2,), (-1, -2))):
        move = lambda z: (z.mT if transpose else z).flip(axes)  # noqa: B023, E731
        left, right = side.function(move(side.x)), move(start)
        error = (left - right)[inner].square().mean()
        error = error / ((left - start)[inner].square().mean() + (right - start)[inner].square().mean() + 1e-12)
        assert error < 1e-9 if not transpose and not axes else error > 0.15


def test_command_line(here, capsys):
    assert main(["compare", "toy", "--json"]) == 0
    shown = capsys.readouterr().out
    assert shown == (here / "runs" / "compare-toy-seed0" / "compare.json").read_text()
    assert main(["compare", "toy", "--methods", "careless", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "careless" in shown and "negative control: nothing" in shown and OURS not in shown


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["heet"], "unknown comparison 'heet', did you mean 'heat'?"),
        (["heat", "--methods", "magic"], "`methods` must be among atlasd, AtlasD, LieGG, LieGAN, got 'magic'"),
        (["heat", "--set", "sample=3"], "unknown key 'sample', did you mean 'samples'?"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("atlasd: error: ") and message in shown.err and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_heat_in_its_own_processes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    small = ["samples=60", "steps=3", "atlas=three", "liegan_steps=2"]
    arguments = [part for s in small for part in ("--set", s)]
    assert main(["compare", "heat", *arguments, "--methods", "atlasd,LieGG,LieGAN", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in content["methods"]] == ["atlasd", "LieGG", "LieGAN"]
    assert (tmp_path / "runs" / "compare-heat-seed0" / "report.html").is_file()
