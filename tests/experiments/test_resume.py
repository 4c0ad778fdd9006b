"""A run that was killed goes on to the same result, whenever it was killed and whatever it is continued with."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from atlasd.cli import main
from atlasd.discovery.spectral import SpectralSearch
from atlasd.runtime.stages import NAME

PROGRAM = Path(__file__).with_name("small_run.py")


def test_twenty_kills(tmp_path):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), "20", "0"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert counts["kills"] == 20 and counts["ended"] >= 1 and counts["different"] == 0


@pytest.fixture
def small(monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    import small_run

    import atlasd.experiments as register

    monkeypatch.setattr(register, "EXPERIMENTS", register.EXPERIMENTS)
    small_run.enlist()
    return small_run


def interrupted(small, monkeypatch, after):
    """Makes the next run stop at that stage."""

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"atlasd.discovery.discover.{after}", stop)


def test_resume_command(small, tmp_path, monkeypatch, capsys):
    place = tmp_path / "run"
    assert main(["run", "small", "--out", str(tmp_path / "whole"), "--quiet"]) == 0
    with monkeypatch.context() as patch:
        interrupted(small, patch, "judge_generators")
        assert main(["run", "small", "--out", str(place), "--quiet"]) == 130
    assert (place / NAME / "manifest.json").is_file() and not (place / "result.json").exists()
    calls = []
    monkeypatch.setattr(SpectralSearch, "find", lambda *_, **__: calls.append(1))
    monkeypatch.setattr(small.MLPPredictor, "fit", lambda *_, **__: calls.append(1))
    capsys.readouterr()
    assert main(["resume", str(place), "--json", "--quiet"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert not calls, "a finished stage was done again"
    whole = json.loads((tmp_path / "whole" / "result.json").read_text())
    assert small.without_times(shown) == small.without_times(whole)
    assert main(["resume", str(place)]) == 0 and "finished" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "", "{}", "[]", '{"schema": 9, "stages": {}}', '{"schema": 1, "stages": 3}'])
def test_what_cannot_go_on_is_one_line(tmp_path, capsys, content):
    place = tmp_path / "run"
    if content is not None:
        (place / NAME).mkdir(parents=True)
        (place / NAME / "manifest.json").write_text(content)
    assert main(["resume", str(place)]) == 2
    shown = capsys.readouterr().err
    assert shown.startswith("atlasd: error: ") and shown.count("\n") == 1


def test_options_of_workers(tmp_path, capsys):
    for words in (["--workers", "0"], ["--workers", "2", "--dask", "tcp://x:1"], ["--dask", "nonsense://"]):
        assert main(["run", "d4", "--out", str(tmp_path / "run"), "--quiet", *words]) == 2
        assert capsys.readouterr().err.startswith("atlasd: error: ")
        torch.set_num_threads(1)
    assert not (tmp_path / "run").exists()
