"""Progress yields what it is given; only the terminal shows, and never on standard output."""

import pytest

from atlasd.runtime.progress import Silent, Terminal


@pytest.mark.parametrize("kind", [Silent, Terminal])
def test_yields_all_items(kind, capsys):
    progress = kind()
    assert list(progress.track(range(5), "count")) == [0, 1, 2, 3, 4]
    assert list(progress.track((i for i in "ab"), "letters", total=2)) == ["a", "b"]
    assert capsys.readouterr().out == ""


def test_silent_says_nothing(capsys):
    Silent().say("hello")
    assert capsys.readouterr() == ("", "")


def test_terminal_speaks_on_standard_error(capsys):
    with Terminal() as progress:
        progress.say("[so(2)] found")
    shown = capsys.readouterr()
    assert shown.out == "" and "[so(2)] found" in shown.err


@pytest.mark.parametrize("kind", [Silent, Terminal])
def test_may_be_left_early_and_nested(kind):
    progress = kind()
    for i in progress.track(range(10), "outer"):
        for _ in progress.track(range(3), "inner"):
            break
        if i == 2:
            break
    assert list(progress.track([1], "again")) == [1]
