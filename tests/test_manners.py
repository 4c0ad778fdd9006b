"""Help, completion, the doctor, and what is shown while work is going on."""

import json
import os
import subprocess
import sys

import pytest
import typer

from atlasd.cli import COMMANDS, app, main
from atlasd.runtime.progress import Terminal


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_and_argument_is_explained(command):
    group = typer.main.get_command(app)
    for parameter in group.commands[command].params:
        assert getattr(parameter, "help", None), f"{command}: {parameter.name} is not explained"
    assert group.commands[command].short_help.endswith(".")


@pytest.mark.parametrize("words, expected", [("atlasd dis", "discover"), ("atlasd run he", "heat")])
def test_completion(words, expected):
    count = str(len(words.split()) - 1)
    environment = {**os.environ, "_ATLASD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": count}
    done = subprocess.run([sys.executable, "-m", "atlasd"], env=environment, capture_output=True, text=True, timeout=60)
    assert expected in done.stdout.split() and done.returncode == 0


def test_doctor(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("torch", "cores", "threads", "cpu", str(tmp_path), "problems: none"))
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path / "away"))
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["data"]["ATLASD_DATA"].endswith("which does not exist")


def test_verbose_says_how_long_stages_took(capsys):
    with Terminal(verbose=True) as terminal:
        assert list(terminal.track(range(3), "counting")) == [0, 1, 2]
    assert capsys.readouterr().err.startswith("counting: 0.")
    with Terminal() as terminal:
        assert list(terminal.track(range(3), "counting")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
