"""The program as its users start it."""

import signal
import subprocess
import sys
import time

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


# Interrupts while modules are imported: a traceback of Python's, and status -2 or 1, before.
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_during_imports_is_one_line(sign):
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); print('up', flush=True)\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            print('importing', flush=True)\n"
        "            try: time.sleep(20)\n"
        "            except KeyboardInterrupt: raise ImportError('cannot load module more than once per process')\n"
        "import time; sys.meta_path.insert(0, Slow()); sys.argv = ['atlasd', 'run', 'toy']\n"
        "from atlasd.__main__ import main; sys.exit(main())"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "up\n" and process.stdout.readline() == "importing\n"
    time.sleep(0.1)
    process.send_signal(sign)
    said = process.communicate(timeout=60)[1].strip().splitlines()
    assert process.returncode == 130 and len(said) == 1 and said[0].startswith("atlasd: interrupted; ")


def test_an_interrupt_before_the_program_is_one_line(monkeypatch, capsys):
    from atlasd import __main__

    class Interrupting:
        def find_spec(self, name, path=None, target=None):
            if name == "atlasd.cli":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "atlasd.cli")
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    assert __main__.main() == 130
    assert capsys.readouterr().err.startswith("atlasd: interrupted; ")


@pytest.mark.parametrize(
    "words, said",
    [
        (["run", "toy", "--set", "samples=1000000000000"], "must fit into memory"),
        (["zoo", "--seeds", "1000000000"], "`seeds` must be from 1 to 1000"),
        (["run", "x" * 100_000], "unknown experiment"),
    ],
)
def test_what_asks_for_too_much_is_one_line(words, said, tmp_path, capsys):
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1 and said in shown[0] and len(shown[0]) < 2100
