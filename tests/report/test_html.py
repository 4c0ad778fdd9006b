"""The page is self-contained, and nothing in the data becomes markup."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from atlasd.discovery.result import Verdict
from atlasd.errors import DataError
from atlasd.report.html import Section, write_page, write_report

EVIL = "<script>alert('x')</script>\"><img src=x onerror=alert(1)>"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


def _read(path) -> _Reader:
    reader = _Reader()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader


@pytest.fixture(scope="module")
def page(discovery, fields, tmp_path_factory):
    content = discovery.to_dict(
        EVIL, config={"name": EVIL, EVIL: 1}, metrics={EVIL: EVIL}, paper={"angle_deg": 1.67}, command=EVIL
    )
    return write_report(discovery, tmp_path_factory.mktemp("page") / "report.html", content=content, fields=fields)


def test_data_never_become_markup(page):
    reader = _read(page)
    assert not [tag for tag, _ in reader.tags if tag in ("script", "i", "b", "iframe", "object")]
    for _, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on")]
    assert EVIL in reader.words


def test_nothing_is_loaded_from_elsewhere(page):
    reader = _read(page)
    sources = [a[k] for _, a in reader.tags for k in ("src", "href") if k in a]
    assert sources and all(s.startswith("data:image/") for s in sources)
    assert "@import" not in page.read_text() and not re.search(r"url\(", page.read_text())
    assert page.stat().st_size < 3e6


def test_the_answer_comes_first(page):
    words = " ".join(_read(page).words)
    answer = words.index("The map commutes with O(2): one continuous direction, 2 components.")
    assert answer < words.index("Verdict") < words.index("Time")
    assert "Chart 1 stands apart from the other 2." in words
    assert "as far off as unrelated data" in words


def test_pictures_speak(page):
    images = [a for tag, a in _read(page).tags if tag == "img"]
    assert len(images) == 6 and all(a["alt"] for a in images)


def test_light_dark_and_phone(page):
    text = page.read_text()
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text and '<html lang="en">' in text


def test_report_from_the_discovery_alone(plain, tmp_path):
    path = plain.report(tmp_path / "deep" / "report.html")
    assert "O(2)" in path.read_text()


def test_no_symmetry_is_said_plainly(plain, tmp_path):
    nothing = replace(plain, verdict=Verdict(False, "The predictor has no skill."))
    words = " ".join(_read(write_report(nothing, tmp_path / "r.html")).words)
    assert "No symmetry found" in words and "The predictor has no skill." in words


def test_several_discoveries_on_one_page(plain, tmp_path):
    path = write_page(tmp_path / "r.html", [Section(plain, title="one"), Section(plain, title="two")])
    assert [tag for tag, _ in _read(path).tags].count("article") == 2


def test_unwritable_place(plain, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((DataError, OSError)):
        write_report(plain, tmp_path / "file" / "report.html")
