"""A run directory is whole or absent."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from atlasd.cli import main
from atlasd.discovery.result import load
from atlasd.errors import InputError
from atlasd.runtime.progress import Silent
from atlasd.studies import EXPERIMENTS, find_experiment
from atlasd.studies.record import Extras, execute, plan_run, read_fields


def _draw(discovery, directory, fields):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "drawn.svg").write_text(f"{discovery.group.name} {sorted(fields)}")


def test_round_trip(fake, fields, tmp_path):
    plan = plan_run("fake", ["samples=12", "flag=false"], seed=5, out=tmp_path / "run")
    recorded = execute(plan, Silent(), _draw)
    names = {p.name for p in plan.directory.iterdir()}
    assert names == {"result.json", "tensors.safetensors", "fields.safetensors", "log.txt", "drawn.svg"}
    content = json.loads((plan.directory / "result.json").read_text())
    assert content == json.loads(json.dumps(recorded.content))
    assert content["experiment"] == "fake" and content["seed"] == 5
    assert content["config"] == {"samples": 12, "label": "plain", "flag": False}
    assert content["metrics"] == {"angle_deg": 0.5} and content["paper"] == {"angle_deg": 1.67}
    assert content["group"]["name"] == "O(2)" and content["seconds"]["total"] == pytest.approx(1.9)
    assert content["command"] == "atlasd run fake --seed 5 --set samples=12 --set flag=false"
    back = load(plan.directory)
    assert back.group.name == "O(2)" and back.seed == 5
    assert torch.equal(back.cosets, recorded.discovery.cosets)
    assert torch.equal(read_fields(plan.directory)["input"], fields["input"])


def test_schema_keys(fake, tmp_path):
    execute(plan_run("fake", out=tmp_path / "run"), Silent())
    content = json.loads((tmp_path / "run" / "result.json").read_text())
    first = "schema experiment config seed version group generators cosets spectrum"
    rest = "verdict predictor charts metrics paper seconds"
    assert {*first.split(), *rest.split()} <= set(content)
    assert set(content["group"]) == {"name", "algebra", "dimension", "components", "component_group"}
    assert {"strength", "lower", "upper", "sensitivity", "coverage", "tolerance", "decision", "reason"} <= set(
        content["verdict"]["directions"][0]
    )


def test_log_tells_what_happened(fake, tmp_path):
    execute(plan_run("fake", out=tmp_path / "run"), Silent())
    log = (tmp_path / "run" / "log.txt").read_text()
    for words in ("started 2", "atlasd run fake --seed 0", "working: ", "half way", "O(2)"):
        assert words in log


def test_default_directory(fake, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert str(plan_run("fake", seed=7).directory) == "runs/fake-seed7"
    assert not list(tmp_path.iterdir())


def test_a_run_replaces_an_earlier_one(fake, discovery, tmp_path):
    execute(plan_run("fake", out=tmp_path / "run"), Silent())
    fake.run = lambda config, seed, progress: (discovery, Extras({}))
    execute(plan_run("fake", out=tmp_path / "run"), Silent())
    assert read_fields(tmp_path / "run") == {}


def test_a_run_that_fails_writes_nothing(fake, tmp_path):
    def fail(config, seed, progress):
        raise InputError("chart at (0, 0) must lie inside")

    fake.run = fail
    with pytest.raises(InputError, match="must lie inside"):
        execute(plan_run("fake", out=tmp_path / "run"), Silent(), _draw)
    assert not list(tmp_path.iterdir())


def test_bad_places(fake, tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(InputError, match="`out` must be a directory, got the file"):
        plan_run("fake", out=tmp_path / "file")
    with pytest.raises(InputError, match="directory that can be written"):
        plan_run("fake", out=tmp_path / "file" / "run")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="must be empty or an earlier run"):
        plan_run("fake", out=tmp_path / "full")


def test_bad_seed_and_name(fake):
    with pytest.raises(InputError, match="`seed` must be a non-negative integer, got -1"):
        plan_run("fake", seed=-1)
    with pytest.raises(InputError, match="unknown experiment 'fakes', did you mean 'fake'"):
        plan_run("fakes")


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_every_experiment_has_valid_presets(experiment):
    for preset in experiment.config().PRESETS:
        config = experiment.configure([f"preset={preset}"])
        assert config.changes() == ({} if preset == "cpu" else {"preset": preset})
    assert find_experiment(experiment.name) is experiment
    assert callable(experiment.runner())


@pytest.mark.parametrize("change", ["damaged", "changed"])
def test_fields_are_covered_by_the_digest(fake, fields, tmp_path, capsys, change):
    execute(plan_run("fake", out=tmp_path / "run"), Silent())
    path = tmp_path / "run" / "fields.safetensors"
    if change == "damaged":
        path.write_bytes(path.read_bytes()[:-5])
    else:
        save_file({**fields, "input": -fields["input"]}, str(path))
    assert main(["report", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "fields.safetensors`" in shown and "remove it" in shown
    path.unlink()
    assert main(["report", str(tmp_path / "run")]) == 0


def test_all_files_have_one_mode(fake, tmp_path):
    before = os.umask(0o027)
    try:
        execute(plan_run("fake", out=tmp_path / "run"), Silent(), _draw)
    finally:
        os.umask(before)
    modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "run").iterdir()}
    assert set(modes.values()) == {0o640}, modes


def test_a_disk_that_is_full_at_the_end_loses_nothing(fake, tmp_path, monkeypatch, capsys):
    from atlasd.runtime.stages import current_stages

    plain, done = fake.run, []

    def staged(config, seed, progress):
        current_stages().do("long", lambda: done.append(1) or 1)
        return plain(config, seed, progress)

    fake.run = staged
    with monkeypatch.context() as patch:
        real = type(tmp_path).write_bytes

        def full(path, data):
            if "tensors.safetensors" in path.name:
                raise OSError(28, "No space left on device")
            return real(path, data)

        patch.setattr(type(tmp_path), "write_bytes", full)
        assert main(["run", "fake", "--out", str(tmp_path / "run"), "--quiet"]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "No space left on device" in shown and "make room" in shown
    assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 0
    assert done == [1] and load(tmp_path / "run").group.name == "O(2)"
    assert not (tmp_path / "run" / "stages").exists()


def test_what_a_killed_process_leaves_does_not_stand_in_the_way(fake, tmp_path):
    place = tmp_path / "run"
    (place / ".scratch-1").mkdir(parents=True)
    (place / ".result.json.01.part").write_text("half")
    (place / ".lock").write_text("99999999")
    execute(plan_run("fake", out=place), Silent())
    assert not [p.name for p in place.iterdir() if p.name.startswith(".")]
