"""Data of one's own."""

import json

import numpy as np
import pytest
import torch

import atlasd as ad
from atlasd.cli import main
from atlasd.errors import InputError
from atlasd.report import figures
from atlasd.runtime.progress import Silent
from atlasd.studies import OWN
from atlasd.studies.config import configure
from atlasd.studies.own_data.charts import plan_charts
from atlasd.studies.own_data.run import _action, _asked, load_own, run
from atlasd.studies.own_data.settings import OwnConfig
from atlasd.studies.record import plan_config


def write(path, names, columns):
    np.savetxt(path, np.stack(columns, axis=1), delimiter=",", header=",".join(names), comments="")
    return str(path)


def test_velocities_in_a_table(tmp_path):
    x, y = np.random.default_rng(0).normal(size=(2, 300))
    r = x**2 + y**2
    file = write(tmp_path / "hopf.csv", ["x", "y", "dx", "dy"], [x, y, x - y - x * r, x + y - y * r])
    config = OwnConfig(file=file, input="x,y", target="dx,dy", flow=True)
    found, extras = run(config, 0, Silent())
    assert found.group.name.startswith("SO(2)") and extras.metrics["conserved"] == []
    assert config.command("own", 0)[-1] == "--flow"


def test_rows_one_after_the_other(tmp_path):
    # Quasi-periodic: two frequencies beat, so that all radii are seen.
    t = 0.3 * np.arange(200)
    size = 1.5 + np.cos(0.137 * t) + 1e-3 * np.random.default_rng(0).normal(size=200)
    q, p = size * np.cos(t), -size * np.sin(t)
    found, extras = run(OwnConfig(file=write(tmp_path / "states.csv", ["q", "p"], [q, p]), flow=True), 0, Silent())
    assert extras.metrics["samples"] == 199 and found.verdict.reason


xarray = pytest.importorskip("xarray")


@pytest.fixture
def dataset(waves):
    x = waves(60, (24, 24), length=8.0)[:, 0].numpy()
    y = np.roll(x, 1, -1) + np.roll(x, -1, -1) + np.roll(x, 1, -2) + np.roll(x, -1, -2)
    dims = ("time", "lat", "lon")
    return xarray.Dataset({"warmth": (dims, x), "later": (dims, y)}, {"lat": np.linspace(10, -10, 24)})


def test_the_accessor_finds_a_symmetry(dataset):
    assert ad.Atlas is not None  # first use: the accessor is there even where xarray came after atlasd
    found = dataset.atlasd.discover("warmth", target="later", charts="11,11", progress=False)
    assert found.algebra.distance(ad.known.so(2)) < 0.1


def test_unknown_names_are_refused(dataset):
    assert ad.Atlas is not None
    with pytest.raises(InputError, match="no variable 'cold'"):
        dataset.atlasd.discover("cold", target="later", progress=False)
    with pytest.raises(InputError, match="chart"):
        dataset.atlasd.discover("warmth", target="later", chart="grid", progress=False)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "write_figures", lambda discovery, directory, fields: None)
    return tmp_path


@pytest.fixture
def points(here):
    x = torch.randn(1500, 2, generator=torch.Generator().manual_seed(0))
    np.savez(here / "points.npz", x=x.numpy(), y=x.square().sum(-1).numpy())
    rows = "".join(f"{a},{b},{a * a + b * b}\n" for a, b in x.tolist())
    (here / "points.csv").write_text("a,b,r\n" + rows)


def blurred(here, waves, shuffled=False):
    x = waves(120, (36, 36), length=8.0)
    y = torch.nn.functional.avg_pool2d(x, 3, 1, 1) + x.roll(1, -1) * 0
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))] if shuffled else y
    np.savez(here / "blur.npz", before=x.numpy(), after=y.numpy())


def test_vectors_from_a_file(points, here, capsys):
    assert main(["discover", "points.npz", "--json"]) == 0
    shown = capsys.readouterr()
    content = json.loads(shown.out)
    assert shown.out == (here / "runs" / "points-seed0" / "result.json").read_text()
    assert content["group"]["name"] == "O(2)" and content["experiment"] == "discover"
    assert content["command"] == "atlasd discover points.npz --seed 0"
    lines = shown.err.splitlines()
    assert lines[0] == "data: points.npz (npz)" and "guessed: --target y --input x" in lines
    assert any("estimated time: about" in line for line in lines)
    assert main(["report", "runs/points-seed0"]) == 0
    page = (here / "runs" / "points-seed0" / "report.html").read_text()
    assert "atlasd discover points.npz --seed 0" in page


def test_a_run_can_be_done_again_by_its_command(points, here, capsys):
    assert main(["discover", "points.csv", "--target", "r", "--samples", "60", "--quiet", "--out", "one"]) == 0
    first = json.loads((here / "one" / "result.json").read_text())
    lines = capsys.readouterr().err.splitlines()  # what was guessed is said even where progress is not shown
    assert lines[0] == "guessed: --input a,b" and all(line.startswith("note: ") for line in lines[1:])
    assert first["command"] == "atlasd discover points.csv --seed 0 --target r --samples 60"
    assert main([*first["command"].split()[1:], "--quiet", "--out", "two"]) == 0
    assert json.loads((here / "two" / "result.json").read_text())["generators"] == first["generators"]


@pytest.mark.slow
@pytest.mark.parametrize("shuffled", [False, True])
def test_fields_from_a_file(here, waves, capsys, shuffled):
    blurred(here, waves, shuffled)
    assert main(["discover", "blur.npz", "--json", "--in-radius", "11", "--out-radius", "7"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["metrics"]["charts"] == "auto" and content["metrics"]["used"] == len(
        [c for c in content["charts"] if not c["reason"].startswith("dropped")]
    )
    if shuffled:  # targets of other samples: there is no map to ask
        assert not content["verdict"]["symmetric"] and "annot tell" in content["verdict"]["reason"]
    else:
        assert content["group"]["dimension"] <= 1 and content["predictor"]["skill"] > 0.9


def own(**values):
    return load_own(configure(OWN.config(), {k: str(v) for k, v in values.items()}))[0]


def test_charts_are_planned_before_work_starts(here):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((30, 1, 48, 96))
    np.savez(here / "d.npz", x=x, y=x**2)
    data = own(file="d.npz")
    assert plan_charts(data, "auto", None, None).atlas is None
    few, none = plan_charts(data, "auto", None, None, budget=40.0), plan_charts(data, "auto", None, None, budget=1.0)
    assert none.most == 4 < few.most < plan_charts(data, "auto", None, None).most and few.seconds <= 40 / 3
    assert plan_charts(data, "whole", None, None).describe() == "one, the whole field"
    assert len(plan_charts(data, "20,20;20,60", 9, 5).atlas) == 2
    assert 1 < len(plan_charts(data, "grid", None, None).atlas) <= 36
    sphere = plan_charts(data, "sphere:5", 6, 3).atlas
    assert len(sphere) == 5 and sphere.charts[0].pixel == 180 / 48


def test_targets_that_move(here, capsys):
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    y = x * x.norm(dim=-1, keepdim=True)
    np.savez(here / "pull.npz", q=x.numpy(), q_next=y.numpy())
    assert main(["discover", "pull.npz", "--input", "q", "--target", "q_next"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0].startswith("O(2)") and "components of a vector" in shown.out
    assert main(["discover", "pull.npz", "--input", "q", "--target", "q_next", "--targets", "fixed", "-q"]) == 0
    assert not capsys.readouterr().out.startswith("O(2)")
    assert main(["discover", "pull.npz", "--input", "q", "--target", "q_next", "--targets", "up"]) == 2
    assert "targets" in capsys.readouterr().err


def test_two_questions_about_one_file_stand_side_by_side(points, here):
    plans = [
        plan_config(OWN, configure(OWN.config(), {"file": "points.csv", "target": target}))
        for target in ("r", "a", "r")
    ]
    for plan in plans[:2]:
        place = plan_config(OWN, plan.config).directory
        place.mkdir(parents=True)
        (place / "result.json").write_text(json.dumps({"command": plan.command}))
    names = [plan_config(OWN, plan.config).directory.name for plan in plans]
    assert names == ["points-seed0", "points-seed0-2", "points-seed0"]


def test_a_budget_must_be_a_time(points, capsys):
    assert main(["discover", "points.npz", "--budget", "soon"]) == 2
    assert "--budget must be a time such as 90s or 2min, got 'soon'" in capsys.readouterr().err


def test_targets_of_winds_that_no_name_tells(here):
    x = np.random.default_rng(0).standard_normal((30, 2, 24, 24)).astype("float32")
    np.savez(here / "winds.npz", u=x[:, 0], v=x[:, 1], a=x[:, 0], b=x[:, 1], c=x[:, 1])
    for target, asked in (("a,b", ("vector", "trivial")), ("c", None)):
        data = own(file="winds.npz", input="u,v", target=target)
        action, _, _ = _action(data, "auto", False)
        assert _asked("auto", data, action) == asked and _asked("fixed", data, action) == "trivial"
