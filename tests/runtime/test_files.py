"""Files and text."""

import io
import os

import pytest
import torch
from rich.table import Table
from rich.text import Text
from safetensors.torch import save_file

from atlasd.cli import main
from atlasd.errors import DataError
from atlasd.runtime import files
from atlasd.runtime.content import read_json, write_tensors
from atlasd.runtime.files import read_bytes, sweep, write_atomically
from atlasd.runtime.progress import Terminal
from atlasd.runtime.text import EscapingConsole, escaped


def test_writes_and_makes_directories(tmp_path):
    path = write_atomically(tmp_path / "a" / "b.txt", lambda p: p.write_text("all"))
    assert path.read_text() == "all"
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_replaces(tmp_path):
    path = tmp_path / "b.txt"
    path.write_text("old and long")
    write_atomically(path, lambda p: p.write_text("new"))
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interruption_leaves_the_old_file(tmp_path, error):
    path = tmp_path / "b.txt"
    path.write_text("old")

    def fail(temporary):
        temporary.write_text("half")
        raise error

    with pytest.raises(error):
        write_atomically(path, fail)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"could not be written.*choose another directory"):
        write_atomically(tmp_path / "file" / "b.txt", lambda p: p.write_text("x"))


def test_links_with_the_name_of_a_temporary_file_are_not_followed(tmp_path):
    precious = tmp_path / "thesis.tex"
    precious.write_text("years of work")
    for name in (f".b.txt.{os.getpid()}.part", ".b.txt.part"):
        (tmp_path / name).symlink_to(precious)
    seen = []
    write_atomically(tmp_path / "b.txt", lambda p: seen.append(p.name) or p.write_text("new"))
    write_atomically(tmp_path / "b.txt", lambda p: seen.append(p.name) or p.write_text("new"))
    assert precious.read_text() == "years of work" and seen[0] != seen[1]


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_one_mode_by_umask_whatever_writes_the_file(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write_atomically(tmp_path / "text", lambda p: p.write_text("x"))
        write_atomically(tmp_path / "tensors", lambda p: save_file({"a": torch.ones(2)}, str(p)))
        write_tensors(tmp_path / "ours", {"a": torch.ones(2)})
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {mode}


def test_renames_are_synced(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(files, "sync_directory", lambda directory: synced.append(directory))
    write_atomically(tmp_path / "a", lambda p: p.write_text("x"))
    assert synced == [tmp_path]


def test_what_killed_processes_leave_is_swept(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("x")
    place = tmp_path / "run"
    (place / ".scratch-abc" / "1").mkdir(parents=True)
    (place / ".scratch-abc" / "1" / "x.bin").write_bytes(b"x")
    (place / ".scratch-link").symlink_to(outside)
    (place / ".result.json.0011.part").write_text("x")
    (place / ".lock").write_text("1")
    (place / "notes.txt").write_text("x")
    sweep(place)
    assert {p.name for p in place.iterdir()} == {".lock", "notes.txt"} and (outside / "mine").exists()


@pytest.mark.parametrize("text", ["[" * 700 + "]" * 700, '{"a":' * 5000 + "1" + "}" * 5000], ids=["700", "5000"])
def test_deep_json_is_refused(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DataError, match="at most 60 levels"):
        read_json(tmp_path / "a.json")


def test_large_files_and_pipes_are_not_read(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 11)
    with pytest.raises(DataError, match="at most 10 bytes, got 11"):
        read_bytes(tmp_path / "a", 10)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="plain file"):
        read_bytes(tmp_path / "pipe", 10)
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(DataError, match="plain file"):
        read_bytes(tmp_path / "zero", 10)


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
