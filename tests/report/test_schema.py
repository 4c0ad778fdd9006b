"""Results of schema 2 and of schema 1 are shown, in the words of today."""

import json
import re
from dataclasses import replace

import pytest

from atlasd.algebra.group import Group
from atlasd.algebra.known import trivial
from atlasd.discovery.digest import digest
from atlasd.discovery.result import load
from atlasd.report.figures import draw_discovery

from .test_html import _Reader


def _words(path) -> str:
    """What a reader sees: neither style nor script."""
    shown = re.sub(r"<(style|script)>.*?</\1>", "", path.read_text(), flags=re.DOTALL)
    reader = _Reader()
    reader.feed(shown)
    return " ".join(" ".join(reader.words).split())


@pytest.fixture
def earlier(discovery, tmp_path):
    """The same result as an earlier version wrote it: squares of amplitudes, and gates."""
    content = json.loads((discovery.save(tmp_path / "run") / "result.json").read_text())
    verdict = content["verdict"]
    for part in ("directions", "cosets", "rejected"):
        verdict[part] = [
            {
                "error": None if d["strength"] is None else d["strength"] ** 2,
                "lower": None if d["lower"] is None else d["lower"] ** 2,
                "upper": None if d["upper"] is None else d["upper"] ** 2,
                "chance": 1.1,
                "tolerance": 0.05,
                "decision": "cannot tell" if d["decision"] == "approximate" else d["decision"],
                "reason": "as it was",
                "extent": d["extent"],
            }
            for d in verdict[part]
        ]
    verdict["gates"] = {"skill": 0.97, "untrained": [0.8]}
    content |= {"schema": 1, "verdict": verdict}
    content["digest"] = digest(content, discovery._tensors())
    (tmp_path / "run" / "result.json").write_text(json.dumps(content))
    return load(tmp_path / "run")


def test_schema_2_round_trip(discovery, tmp_path):
    again = load(discovery.save(tmp_path / "run"))
    first, second = (found.report(tmp_path / f"{k}.html") for k, found in enumerate((discovery, again)))
    assert _words(first) == _words(second)


def test_schema_1_can_be_shown(earlier, tmp_path):
    words = _words(earlier.report(tmp_path / "r.html"))
    assert "3.1 % (0.4 to 3.9 %)" in words and "the tolerance is 22 %" in words
    assert "Skill of the predictor on held-out data 0.97" in words and "planted breaking, at least" not in words
    assert "as it was" in earlier._repr_html_() and draw_discovery(earlier)


def test_no_number_for_what_was_not_measured(discovery, earlier, tmp_path):
    for k, found in enumerate((discovery, earlier)):
        words = _words(found.report(tmp_path / f"{k}.html"))
        assert not re.search(r"\b(nan|inf|None)\b", words + found._repr_html_(), re.IGNORECASE)
        assert "0.0000" not in words


def test_words(discovery, tmp_path):
    words = _words(discovery.report(tmp_path / "r.html")).lower()
    assert words.count("the null level, 100 %, is") == 1
    for old in ("chance", "stands apart", "stand-in", "motion", "moved", "rejected", "turn ", "upper bound"):
        assert old not in words, old


def test_cannot_tell_has_no_group(discovery, tmp_path):
    verdict = replace(
        discovery.verdict,
        symmetric=False,
        reason="Cannot tell: too few.",
        directions=(),
        cosets=discovery.verdict.cosets[:1],
    )
    nothing = replace(discovery, group=Group(trivial(2)), verdict=verdict)
    path = nothing.report(tmp_path / "r.html")
    words = _words(path)
    assert "Cannot tell" in words and "The group" not in words
    assert "trivial" not in words.replace("best trivial map", "")
    assert "mark symmetry" not in path.read_text() and "✓" not in nothing._repr_html_()
    # The control: where something was found both are there.
    assert "mark symmetry" in discovery.report(tmp_path / "found.html").read_text()
