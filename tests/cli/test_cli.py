"""The program as its users start it."""

import subprocess
import sys

import pytest

from atlasd.cli import main


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("atlasd 0.")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_the_commands(arguments, capsys):
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in ("demo", "list", "run", "report"))


@pytest.mark.parametrize("command", ["demo", "list", "run", "report"])
def test_every_command_has_help(command, capsys):
    assert main([command, "--help"]) == 0
    assert f"atlasd {command}" in capsys.readouterr().out


def test_list(capsys):
    assert main(["list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names[:4] == ["heat", "d4", "arctan", "toy"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["runn"], "No such command 'runn'"),
        (["--nonsense"], "--nonsense"),
        (["list", "heet"], "unknown experiment 'heet', did you mean 'heat'?"),
        (["run", "heet"], "unknown experiment 'heet', did you mean 'heat'?"),
        (["report"], "DIRECTORY"),
    ],
)
def test_usage_errors_are_one_line(arguments, message, capsys):
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("atlasd: error: ") and shown.err.count("\n") == 1
    assert message.lower() in shown.err.lower()


def test_as_a_module():
    done = subprocess.run([sys.executable, "-m", "atlasd", "run", "x"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("atlasd: error: unknown experiment 'x'") and "Traceback" not in done.stderr


def test_help_does_not_wait_for_torch():
    code = "import sys; from atlasd.cli import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"
