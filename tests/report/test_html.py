"""The page is self-contained, and nothing in the data becomes markup."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from atlasd.discovery.result import ChartFinding, Direction, Verdict
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
        EVIL,
        config={"name": EVIL, EVIL: {EVIL: 1}},
        metrics={EVIL: EVIL, "rows": [{EVIL: EVIL, "model": 0.5}]},
        paper={"angle_deg": 1.67},
        command=EVIL,
    )
    return write_report(discovery, tmp_path_factory.mktemp("page") / "report.html", content=content, fields=fields)


def test_data_never_become_markup(page):
    reader = _read(page)
    assert [tag for tag, _ in reader.tags].count("script") == 1  # the slider's own
    assert not [tag for tag, _ in reader.tags if tag in ("i", "iframe", "object", "embed", "base", "form")]
    for _, attributes in reader.tags:
        assert not [name for name in attributes if name.startswith("on")]
    assert reader.words.count(EVIL) >= 5


def test_evil_everywhere_that_a_name_can_come_from(discovery, tmp_path):
    evil = Direction(0.5, 0.4, 0.6, 1.0, 1.0, "broken", EVIL, 0.2)
    verdict = Verdict(False, EVIL, (), (), (evil,), {EVIL: EVIL})
    charts = (ChartFinding((3.0, 4.0), 0.2, True, 0.9, EVIL),) * 2
    hostile = replace(
        discovery,
        verdict=verdict,
        charts=charts,
        predictor=replace(discovery.predictor, kind=EVIL),
        seconds={EVIL: 1.0},
        curves={EVIL: (1.0, 2.0)},
        config={EVIL: EVIL, "axes": [EVIL] * discovery.algebra.basis.shape[-1]},
    )
    path = write_page(tmp_path / "r.html", [Section(hostile, title=EVIL)], title=EVIL)
    reader = _read(path)
    assert [tag for tag, _ in reader.tags].count("script") == 1
    assert not [a for _, a in reader.tags if any(k.startswith("on") or a.get("src") == "x" for k in a)]
    assert EVIL not in hostile._repr_html_() and "&lt;script&gt;" in hostile._repr_html_()


def test_nothing_is_loaded_from_elsewhere(page):
    reader = _read(page)
    sources = [a[k] for _, a in reader.tags for k in ("src", "href") if k in a]
    assert sources and all(s.startswith("data:image/png") for s in sources)
    text = page.read_text()
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    assert "default-src 'none'" in text and "unsafe-inline'; script-src 'sha256-" in text
    assert page.stat().st_size < 3e6


def test_the_answer_comes_first(page):
    words = " ".join(_read(page).words)
    answer = words.index("The map commutes with O(2): one continuous direction, a rotation, and 2 components.")
    assert answer < words.index("See it happen") < words.index("Verdict") < words.index("Time")
    assert "Chart 1 is an outlier chart; 1 of 3 charts agree." in words
    assert "as far off as unrelated data" in words


def test_for_those_who_hear_it(page):
    reader = _read(page)
    assert all(a.get("alt") for tag, a in reader.tags if tag == "img")
    assert all(a.get("aria-label") for tag, a in reader.tags if tag == "svg")
    assert all(a.get("scope") for tag, a in reader.tags if tag == "th")
    named = {a["for"] for tag, a in reader.tags if tag == "label" and "for" in a}
    assert {a["id"] for tag, a in reader.tags if tag == "input" and a["type"] == "range"} == named != set()
    levels = [int(tag[1]) for tag, _ in reader.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))


def test_decisions_differ_by_more_than_colour(discovery, tmp_path):
    decisions = ("symmetry", "approximate", "broken", "not testable", "cannot tell")
    rows = tuple(Direction(0.1, 0.05, 0.2, 1.0, 1.0, d, d, 0.2) for d in decisions)
    path = write_report(replace(discovery, verdict=Verdict(True, "all five", rows)), tmp_path / "r.html")
    text = path.read_text()
    for decision, sign in zip(decisions, "✓≈✕∅?", strict=True):
        assert f"<span aria-hidden='true'>{sign}</span> {decision}" in text


def test_light_dark_phone_and_paper(page):
    text = page.read_text()
    for words in ("prefers-color-scheme: dark", "width=device-width", '<html lang="en">', "@media print"):
        assert words in text


def test_report_from_the_discovery_alone(plain, tmp_path):
    path = plain.report(tmp_path / "deep" / "report.html")
    assert "O(2)" in path.read_text() and "See it happen" not in path.read_text()


@pytest.mark.parametrize(
    "reason, name",
    [
        ("The predictor has no skill.", "No symmetry found"),
        ("Cannot tell: the predictor has no skill.", "Cannot tell"),
        ("Not testable: outputs are constant.", "Not testable"),
    ],
)
def test_no_symmetry_is_said_plainly(plain, tmp_path, reason, name):
    nothing = replace(plain, verdict=Verdict(False, reason))
    words = " ".join(_read(write_report(nothing, tmp_path / "r.html")).words)
    assert name in words and reason in words


def test_several_discoveries_on_one_page(discovery, tmp_path):
    path = write_page(tmp_path / "r.html", [Section(discovery, title="one"), Section(discovery, title="two")])
    reader = _read(path)
    assert [tag for tag, _ in reader.tags].count("article") == 2
    identities = [a["id"] for _, a in reader.tags if "id" in a and a["id"].startswith("slider")]
    assert len(set(identities)) == len(identities) > 2


def test_a_page_that_grows_too_large_loses_sliders_not_answers(discovery, tmp_path):
    whole = write_page(tmp_path / "whole.html", [Section(discovery)])
    small = write_page(tmp_path / "small.html", [Section(discovery)], most_bytes=whole.stat().st_size - 1)
    assert small.stat().st_size < whole.stat().st_size and "The map commutes with O(2)" in small.read_text()


def test_unwritable_place(plain, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((DataError, OSError)):
        write_report(plain, tmp_path / "file" / "report.html")


def test_a_page_on_own_data_says_what_they_were(tmp_path, plain):
    content = plain.to_dict(
        "discover",
        metrics={"samples": 40, "data": {"file": "wind.nc (netcdf)", "notes": "3 copies are left out"}},
        config={"file": "data/wind.nc"},
    )
    page = write_report(plain, tmp_path / "page.html", content=content).read_text()
    assert "wind.nc - atlasd</title>" in page and "3 copies are left out" in page and ">The data<" in page
    assert "Against the truth" not in page and ">Figures<" in page
