"""The program."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
import torch

from atlasd.algebra.lie import LieAlgebra
from atlasd.cli import main
from atlasd.cli.common import chosen_workers
from atlasd.runtime.executor import current_workers
from atlasd.studies.config import Config, option
from atlasd.studies.rivals import compare
from atlasd.studies.rivals.compare import Answer, Contest, perform
from atlasd.studies.rivals.measures import span_angle_to


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


TIDYING = (
    "import atexit, signal, sys, time; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "atexit.register(lambda: (print('tidying', flush=True), time.sleep(0.5)))\n"
    "from atlasd.__main__ import main; sys.argv = ['atlasd', '--version']; sys.exit(main())"
)


def test_threads_of_the_program_do_not_wait_by_spinning(monkeypatch):
    from atlasd import __main__

    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setattr(sys, "argv", ["atlasd", "--version"])
    with pytest.raises(SystemExit):
        sys.exit(__main__.main())
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"


# Status -15 before: one of forty runs that were stopped at random moments ended so, after its work.
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_after_the_work_changes_nothing(sign):
    process = subprocess.Popen(
        [sys.executable, "-c", TIDYING], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().startswith("atlasd ") and process.stdout.readline() == "tidying\n"
    process.send_signal(sign)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0


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


TURN = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)


@dataclass(frozen=True, kw_only=True)
class ToyConfig(Config):
    samples: int = option(400, "points", least=1)


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """Methods that were asked; the second is interrupted the first time."""
    asked = []

    def first(data, config, seed):
        asked.append("first")
        return Answer(TURN)

    def second(data, config, seed):
        asked.append("second")
        if asked.count("second") == 1:
            raise KeyboardInterrupt
        return Answer(TURN)

    toy = Contest(
        name="toy", config=ToyConfig, measure=span_angle_to(LieAlgebra(TURN)), data=lambda *_: None,
        methods={"first": first, "second": second}, control="nothing",
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "find_contest", lambda name: toy)
    monkeypatch.setattr(compare, "_alone", perform)
    return asked


def test_resume_goes_on(calls, tmp_path, capsys):
    assert main(["compare", "toy", "--set", "samples=300", "--methods", "first,second"]) == 130
    place = tmp_path / "runs" / "compare-toy-seed0"
    assert capsys.readouterr().err.splitlines()[-1].endswith("`atlasd resume runs/compare-toy-seed0` goes on with it.")
    assert {p.name for p in place.iterdir()} == {"stages"}
    assert main(["resume", str(place), "--json", "--quiet"]) == 0
    assert calls == ["first", "first", "second", "second", "second"]
    assert capsys.readouterr().out == (place / "compare.json").read_text()
    assert {p.name for p in place.iterdir()} == {"compare.json"}


def test_the_same_command_starts_anew_and_says_so(calls, tmp_path, capsys):
    assert main(["compare", "toy"]) == 130
    capsys.readouterr()
    assert main(["compare", "toy"]) == 0
    assert "is replaced; `atlasd resume` would have gone on with it" in capsys.readouterr().err
    assert calls == ["first", "first", "second", "first", "first", "second", "second"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["--tls", "a,b,c"], "--tls must come with --dask tls://HOST:8786, got 'no address'"),
        (["--dask", "tcp://h:1", "--tls", "a,b,c"], "--tls must come with --dask tls://HOST:8786, got 'tcp://h:1'"),
        (["--dask", "tls://h:1", "--tls", "a,b"], "--tls must name three files, CA,CERT,KEY, got 'a,b'"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, capsys, words, message):
    assert main(["run", "d4", "--out", str(tmp_path / "run"), "--quiet", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown and shown.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.fixture
def certificate(tmp_path):
    """One certificate that is its own authority."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=atlasd", "-keyout"]
    subprocess.run([*words, str(key), "-out", str(cert)], check=True, capture_output=True)
    return str(cert), str(key)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_work_on_an_encrypted_cluster(certificate):
    distributed = pytest.importorskip("distributed")
    cert, key = certificate
    names = ("tls_ca_file", "tls_scheduler_cert", "tls_scheduler_key", "tls_worker_cert", "tls_worker_key")
    files = dict(zip(names, (cert, cert, key, cert, key), strict=True))
    both = {"tls_client_cert": cert, "tls_client_key": key}
    security = distributed.Security(require_encryption=True, **files, **both)
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None, "processes": False}
    with distributed.LocalCluster(security=security, protocol="tls://", **options) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with chosen_workers(None, address, f"{cert},{cert},{key}"):
            assert current_workers().map(pow, [(2, 3), (3, 2)], "ab") == [8, 9]
