"""What a terminal would obey is shown, not sent."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from atlasd.cli import main
from atlasd.runtime.console import EscapingConsole
from atlasd.runtime.progress import Terminal
from atlasd.runtime.text import escaped

EVIL = "a\x1b[31m\x9b2J\u202eb\u2066c\r\x07\udc80"


def harmless(text):
    return all(c.isprintable() or c in "\n\t " for c in text)


def test_escapes():
    assert escaped(EVIL) == r"a\x1b[31m\x9b2J\u202eb\u2066c\r\x07\udc80"
    assert escaped("Größe σ\u00a0(m)\n\tx") == "Größe σ\u00a0(m)\n\tx"


@pytest.mark.parametrize("what", [EVIL, Text(EVIL), "table"])
def test_console(what):
    shown = io.StringIO()
    if what == "table":
        what = Table()
        what.add_column(Text(EVIL))
        what.add_row(Text(EVIL))
    EscapingConsole(file=shown, width=160).print(what)
    assert harmless(shown.getvalue()) and r"a\x1b[31m" in shown.getvalue()


def test_progress_and_errors(capsys, tmp_path):
    with Terminal(verbose=True) as terminal:
        terminal.say(EVIL)
        list(terminal.track(range(2), EVIL))
    (tmp_path / "d.csv").write_text("a,\x1b]0;b\u202e\n1,2\n", encoding="utf-8")
    assert main(["discover", str(tmp_path / "d.csv"), "--target", EVIL[:-1]]) == 2
    assert main(["report", str(tmp_path / "\x1b[2J")]) == 2
    shown = capsys.readouterr()
    assert harmless(shown.err) and r"\x1b[2J" in shown.err and r"\x1b]0;b\u202e" in shown.err


def test_every_command_escapes_what_it_says(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path / EVIL[:-1]))
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    assert harmless(shown) and r"a\x1b[31m" in shown
