"""Numbers that were not measured are never printed, and a word never claims more than was found."""

import math
from dataclasses import replace

import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.known import dihedral, trivial
from atlasd.discovery.frames import Frames, Track
from atlasd.discovery.result import ChartFinding, Direction, Verdict
from atlasd.report.sentences import (
    OTHERS,
    answer_sentences,
    axis_names,
    chart_reason,
    chosen_tolerance,
    headline,
    interval,
    judged_rows,
    share,
    strength,
    track_strengths,
)

NAN = math.nan


def _direction(strength, lower, upper, decision="symmetry", sensitivity=1.0, extent=None):
    return Direction(strength, lower, upper, sensitivity, 1.0, decision, "because", 0.2, extent)


@pytest.mark.parametrize(
    "direction, words",
    [
        (_direction(0.031, 0.0, 0.039), "3.1 % (0.0 to 3.9 %)"),
        (_direction(0.899, 0.631, 1.143, "broken"), "89.9 % (63.1 to 100.0 %)"),
        (_direction(NAN, NAN, NAN, "cannot tell"), "–"),
        (_direction(NAN, 0.0, NAN, "cannot tell", 0.1), "–"),
        (_direction(0.1, NAN, NAN), "10.0 %"),
    ],
)
def test_intervals(direction, words):
    assert interval(direction) == words


def test_a_dash_for_what_is_missing():
    assert strength(NAN) == strength(math.inf) == share(NAN) == "–"
    assert strength(0.0) == "0.0 %" and share(1.0) == "100 %"


def test_rows_of_the_verdict(discovery):
    rows = dict(judged_rows(discovery))
    assert list(rows) == ["Generators", "Cosets", OTHERS]
    # The identity is no finding; numbers of cosets stay those of the matrices.
    assert [row.name for row in rows["Cosets"]] == ["coset 2"]
    assert [row.decision for row in rows[OTHERS]] == ["approximate", "broken", "cannot tell"]
    approximate, broken, unknown = rows[OTHERS]
    assert approximate.breaking == "11.0 % (10.0 to 13.0 %)" and approximate.sensitivity == "90 %"
    # No breaking is planted where nothing is claimed.
    assert broken.sensitivity == "–" and broken.coverage == "60 %"
    assert (unknown.breaking, unknown.sensitivity, unknown.coverage) == ("–", "–", "4 %")
    assert chosen_tolerance(discovery) == 0.2


def test_what_is_rejected_is_never_called_a_symmetry(discovery):
    passed = discovery.verdict.directions[0]
    verdict = replace(discovery.verdict, rejected=(passed,))
    rows = dict(judged_rows(replace(discovery, verdict=verdict)))
    assert [row.decision for row in rows[OTHERS]] == ["left out"]
    assert [row.decision for row in rows["Generators"]] == ["symmetry"]


@pytest.mark.parametrize(
    "reason, words, decision",
    [
        ("Cannot tell: too few samples.", "Cannot tell", "cannot tell"),
        ("Not testable: nothing in the data depends on it.", "Not testable", "not testable"),
        ("No symmetry: no transformation comes near.", "No symmetry", "broken"),
        ("The predictor has no skill.", "No symmetry found", "broken"),
    ],
)
def test_headlines(plain, reason, words, decision):
    nothing = replace(plain, group=Group(trivial(2)), verdict=Verdict(False, reason))
    assert headline(nothing) == (words, decision)
    # Guesses may be trivial, the group is not called so.
    assert "trivial" not in " ".join(answer_sentences(nothing)).replace("trivial guesses", "")


def test_sentences(discovery):
    words = " ".join(answer_sentences(discovery))
    assert "the breaking is at most 3.9 %; the tolerance is 20 %." in words
    assert "Of a planted breaking, at least 91 % would have been noticed." in words
    assert "Approximately, it commutes with one more transformation, with a breaking of 11.0 %." in words
    assert "Chart 1 is an outlier chart; 1 of 3 charts agree." in words
    finite = replace(discovery, group=dihedral(4), charts=())
    assert answer_sentences(finite)[0] == "The map commutes with the 8 elements of D4."
    lost = replace(discovery, predictor=replace(discovery.predictor, skill=NAN))
    assert answer_sentences(lost)[-1] == "The skill of the predictor was not measured."


def test_charts_that_were_not_judged_do_not_agree(discovery):
    silent = tuple(replace(c, error=NAN, outlier=False) for c in discovery.charts)
    assert "agree" not in " ".join(answer_sentences(replace(discovery, charts=silent)))
    judged = tuple(replace(c, error=0.01) for c in silent)
    assert "All 3 charts agree." in answer_sentences(replace(discovery, charts=judged))


def test_reason_of_a_chart_without_its_number():
    assert chart_reason(ChartFinding((0.0,), NAN, True, NAN, "a breaking of nan%, where most have none")) == ""
    assert chart_reason(ChartFinding((0.0,), NAN, True, NAN, "left out: no finance")) == "left out: no finance"


def _track(residual, null, covered, t=(0.0, 0.5, 1.0)):
    turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    size = torch.tensor(t, dtype=torch.float64)
    values = (torch.tensor(v, dtype=torch.float64) for v in (residual, null, covered))
    return Track("generator 1", size, torch.matrix_exp(size[:, None, None] * turn), *values)


def test_strengths_of_a_track_are_amplitudes():
    assert track_strengths(_track([0.0, 0.04, 0.25], [1.0] * 3, [1.0] * 3)) == pytest.approx([0.0, 0.2, 0.5])


def test_tracks_of_earlier_runs_are_ratios():
    assert track_strengths(_track([0.0, 0.02, 3.0], [0.0, 0.5, 2.0], [1.0] * 3)) == pytest.approx([0.0, 0.2, 1.0])


def test_steps_that_were_not_measured_have_no_number():
    found = track_strengths(_track([0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]))
    assert found[0] == 0.0 and all(map(math.isnan, found[1:]))


def test_earlier_frames_can_be_shown(plain, tmp_path):
    points = {"input": torch.randn(3, 5, 2), "left": torch.randn(3, 5), "right": torch.randn(3, 5)}
    track = replace(_track([0.0, 0.02, NAN], [0.0, 0.5, 2.0], [1.0, 1.0, 0.0]), points=points)
    text = replace(plain, frames=Frames((track,))).report(tmp_path / "r.html").read_text()
    assert "t = 0.50: strength of the breaking 20.0 %" in text and "t = 1.00: not measured" in text


def test_axes_have_the_names_of_columns(discovery):
    n = discovery.algebra.basis.shape[-1]
    names = [f"q{k}" for k in range(n)]
    assert axis_names(replace(discovery, config={"axes": names})) == names
    assert axis_names(replace(discovery, config={"file": "a.csv", "discover": {"axes": names}})) == names
    assert axis_names(replace(discovery, config={"axes": ["q"]})) == axis_names(discovery)


def test_dropped_charts_are_no_outliers(discovery):
    one = ChartFinding((3.0, 4.0), 0.02, False, 0.9)
    gone = ChartFinding((9.0, 4.0), math.nan, True, 0.1, "dropped: no skill (0.10)")
    words = " ".join(answer_sentences(replace(discovery, charts=(one, one, gone))))
    assert "All 2 charts agree. 1 more was dropped before." in words and "outlier" not in words
