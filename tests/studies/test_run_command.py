"""`atlasd run` and `atlasd report` with an experiment that takes no time."""

import json

import pytest

from atlasd.cli import main
from atlasd.errors import DataError, InputError
from atlasd.report import figures


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def undrawn(monkeypatch):
    """Leaves out the figures, which take most of the time."""
    monkeypatch.setattr(figures, "write_figures", lambda discovery, directory, fields: None)


def test_run_prints_the_name_and_keeps_the_run(fake, here, capsys):
    assert main(["run", "fake", "--seed", "2"]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("O(2)  (so(2), 2 components)")
    assert "kept in runs/fake-seed2" in shown.err
    kept = {p.name for p in (here / "runs" / "fake-seed2").iterdir()}
    assert {"result.json", "tensors.safetensors", "log.txt", "cosets.png", "cosets.svg"} <= kept


def test_json_is_exactly_the_file(fake, undrawn, here, capsys):
    assert main(["run", "fake", "--json", "--out", "out"]) == 0
    shown = capsys.readouterr()
    assert shown.out == (here / "out" / "result.json").read_text()
    assert json.loads(shown.out)["experiment"] == "fake"


def test_json_and_quiet_say_nothing_else(fake, undrawn, capsys):
    assert main(["run", "fake", "--json", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["fake", "--set", "sample=3"], "unknown key 'sample', did you mean 'samples'? Keys are: samples,"),
        (["fake", "--set", "samples=x"], "`samples` must be an integer of at least 1, got 'x'"),
        (["fake", "--set", "samples"], "settings must have the form key=value"),
        (["fake", "--seed", "-3"], "`seed` must be a non-negative integer"),
        (["fake", "--seed", "abc"], "'--seed'"),
        (["fakee"], "did you mean 'fake'"),
        ([], "NAME"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(fake, here, capsys, arguments, message):
    assert main(["run", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("atlasd: error: ") and shown.err.count("\n") == 1
    assert message.lower() in shown.err.lower()
    assert not list(here.iterdir())


@pytest.mark.parametrize("error", [InputError("chart must lie\ninside"), DataError("damaged"), OSError("disc full")])
def test_errors_of_the_run(fake, here, capsys, error):
    def fail(config, seed, progress):
        raise error

    fake.run = fail
    assert main(["run", "fake"]) == 2
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1] == f"atlasd: error: {' '.join(str(error).split())}"
    assert "Traceback" not in shown.err and not list(here.iterdir())


def test_interrupt(fake, here, capsys):
    def interrupt(config, seed, progress):
        raise KeyboardInterrupt

    fake.run = interrupt
    assert main(["run", "fake"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("atlasd: interrupted")
    assert not list(here.iterdir())


def test_our_own_mistakes_are_not_hidden(fake):
    def crash(config, seed, progress):
        raise RuntimeError("a bug")

    fake.run = crash
    with pytest.raises(RuntimeError, match="a bug"):
        main(["run", "fake"])


def test_unwritable_directory(fake, here, capsys):
    (here / "file").write_text("")
    assert main(["run", "fake", "--out", "file/run"]) == 2
    assert "`out` must be a directory that can be written" in capsys.readouterr().err


def test_report_of_a_run(fake, undrawn, here, capsys):
    main(["run", "fake", "--out", "out", "--set", "label=<script>alert(1)</script>"])
    capsys.readouterr()
    assert main(["report", "out"]) == 0
    assert capsys.readouterr().out.strip() == "out/report.html"
    page = (here / "out" / "report.html").read_text()
    assert "<script>alert" not in page and "&lt;script&gt;" in page
    assert "atlasd run fake --seed 0" in page


@pytest.mark.parametrize(
    "prepare, message",
    [
        (lambda d: None, "nothing there"),
        (lambda d: d.write_text("text"), "got a file"),
        (lambda d: d.mkdir(), "result.json"),
        (lambda d: (d.mkdir(), (d / "result.json").write_text("{")), "result.json"),
    ],
)
def test_report_of_something_else(here, capsys, prepare, message):
    prepare(here / "thing")
    assert main(["report", "thing"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("atlasd: error: ") and shown.err.count("\n") == 1 and message in shown.err


def test_list_shows_settings(fake, capsys):
    assert main(["list", "fake"]) == 0
    shown = capsys.readouterr().out
    assert "fake: for tests" in shown and "an integer of at least 1" in shown


def test_interrupt_says_how_to_go_on(fake, here, capsys):
    from atlasd.runtime.stages import current_stages

    def interrupt(config, seed, progress):
        current_stages().do("half", lambda: 1)
        raise KeyboardInterrupt

    fake.run = interrupt
    assert main(["run", "fake", "--out", "my run"]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "atlasd: interrupted; `atlasd resume 'my run'` goes on with it."
