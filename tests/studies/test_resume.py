"""A run that was killed goes on to the same result, whenever it was killed and whatever it is continued with."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save

from atlasd.cli import main
from atlasd.discovery.spectral import SpectralSearch
from atlasd.runtime.stages import NAME, Stages, located, resuming

PROGRAM = Path(__file__).with_name("small_run.py")


@pytest.mark.slow
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

    import atlasd.studies as register

    monkeypatch.setattr(register, "EXPERIMENTS", register.EXPERIMENTS)
    small_run.enlist()
    return small_run


def interrupted(monkeypatch, after):
    """Makes the next run stop when it has kept that stage."""
    real = Stages.put

    def put(stages, key, value):
        real(stages, key, value)
        if after in key:
            raise KeyboardInterrupt

    monkeypatch.setattr(Stages, "put", put)


def test_resume_command(small, tmp_path, monkeypatch, capsys):
    place = tmp_path / "run"
    assert main(["run", "small", "--out", str(tmp_path / "whole"), "--quiet"]) == 0
    with monkeypatch.context() as patch:
        interrupted(patch, "search")
        assert main(["run", "small", "--out", str(place), "--quiet"]) == 130
    assert (place / NAME / "manifest.json").is_file() and not (place / "result.json").exists()
    calls = []
    real = SpectralSearch.find

    def find(search, problem, **options):
        """The search that was finished is counted; the one with translations comes later."""
        return real(search, problem, **options) if problem.homogeneous else calls.append(1)

    monkeypatch.setattr(SpectralSearch, "find", find)
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


def stop(small, monkeypatch, place):
    """A run that was interrupted after its search."""
    with monkeypatch.context() as patch:
        interrupted(patch, "search")
        assert main(["run", "small", "--out", str(place), "--quiet"]) == 130


def edit_manifest(place, **changes):
    path = place / NAME / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_only_known_words_are_taken_from_a_manifest(small, tmp_path, monkeypatch, capsys):
    stop(small, monkeypatch, tmp_path / "run")
    monkeypatch.setitem(sys.modules, "distributed", None)  # asking for it would fail in another way
    refused = (
        "--dask tcp://127.0.0.1:9", "--workers 3", "--out elsewhere", "--tls a,b,c", "--json", "-q", "--set",
        "--set samples=300 another", "--seed 1 --seed 1", "--set nothing=1", "--seed one",
    )  # fmt: skip
    for words in refused:
        edit_manifest(tmp_path / "run", words=["run", "small", *words.split()])
        capsys.readouterr()
        assert main(["resume", str(tmp_path / "run"), "--quiet"]) == 2
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1 and "--dask must" not in shown
    for words in ([], ["data", "mnist"], ["report", "x"], ["resume", "x"], ["--version"]):
        edit_manifest(tmp_path / "run", words=words)
        assert main(["resume", str(tmp_path / "run")]) == 2
        assert "a kept run must be one of run, discover, compare, zoo" in capsys.readouterr().err
    assert {p.name for p in tmp_path.iterdir()} == {"run"}


def test_interrupting_resume_is_like_interrupting_run(small, tmp_path, monkeypatch, capsys):
    place = tmp_path / "run"
    stop(small, monkeypatch, place)
    first = capsys.readouterr().err.splitlines()[-1]
    with monkeypatch.context() as patch:
        interrupted(patch, "verdict")
        assert main(["resume", str(place), "--quiet"]) == 130
    assert (
        capsys.readouterr().err.splitlines()[-1]
        == first
        == f"atlasd: interrupted; `atlasd resume {place}` goes on with it."
    )
    assert {p.name for p in place.iterdir()} == {NAME}
    assert main(["resume", str(place), "--quiet"]) == 0


def write_vectors(path, sign):
    x = np.random.default_rng(0).standard_normal((200, 2)).astype(np.float32)
    y = x[:, 0] ** 2 + sign * x[:, 1] ** 2
    np.savez(path, x=x, y=np.concatenate([[1.0] * 10, y[10:]]))  # the first samples are the same


def test_changed_targets_start_anew(small, tmp_path, monkeypatch, capsys):
    assert main(["run", "small", "--out", str(tmp_path / "old"), "--quiet"]) == 0
    stop(small, monkeypatch, tmp_path / "run")
    monkeypatch.setattr(small, "SIGN", -1.0)  # of all targets but the first few
    assert main(["run", "small", "--out", str(tmp_path / "new"), "--quiet"]) == 0
    capsys.readouterr()
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert "the data have changed since the run was stopped; it starts anew" in capsys.readouterr().err
    old, new, run = ((tmp_path / name / "tensors.safetensors").read_bytes() for name in ("old", "new", "run"))
    assert run == new != old


def test_files_are_found_from_where_the_run_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with resuming(tmp_path / "there"):
        assert located("d.npz") == tmp_path / "there" / "d.npz" and located("/d.npz") == Path("/d.npz")
    assert located("d.npz") == Path("d.npz") and Path.cwd() == tmp_path


def test_an_interrupt_that_passes_through_exec_ends_with_130():
    """Python remembers it, and would end by the signal."""
    code = """
import sys, atlasd.studies as register, atlasd.cli
def interrupt(name): exec("raise KeyboardInterrupt")
register.find_experiment = interrupt
sys.exit(atlasd.cli.main(["list", "heat"]))
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 130


@pytest.mark.parametrize("sign", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_signals_leave_nothing_behind(tmp_path, sign):
    write_vectors(tmp_path / "d.npz", 1)
    words = ["discover", "d.npz", "--task", "values", "--out", "run", "--workers", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "atlasd", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True,
        stdout=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    end = time.monotonic() + 60
    manifest = tmp_path / "run" / NAME / "manifest.json"
    while time.monotonic() < end and not (manifest.is_file() and json.loads(manifest.read_text())["stages"]):
        time.sleep(0.02)
    process.send_signal(sign)
    said = process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 130 and said[-1] == "atlasd: interrupted; `atlasd resume run` goes on with it."
    assert {p.name for p in (tmp_path / "run").iterdir()} == {NAME}
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.killpg(process.pid, 0)
            time.sleep(0.1)


def test_forged_stages_are_one_line(small, tmp_path, monkeypatch, capsys):
    place = tmp_path / "run"
    stop(small, monkeypatch, place)
    path = place / NAME / "manifest.json"
    manifest = json.loads(path.read_text())
    for entry in manifest["stages"].values():  # each says that it gave the number 7, with a hash that fits
        data = save({}, {"tree": "7"})
        (place / NAME / entry["file"]).write_bytes(data)
        entry["sha256"] = hashlib.sha256(data).hexdigest()
    path.write_text(json.dumps(manifest))
    capsys.readouterr()
    assert main(["resume", str(place), "--quiet"]) == 2
    said = capsys.readouterr().err.splitlines()
    assert "do not fit together" in said[-1] and "start the run again" in said[-1]
