"""Which group one gets for which tolerance."""

import math
from dataclasses import replace

import pytest

from atlasd.algebra.group import Group
from atlasd.algebra.known import trivial
from atlasd.discovery.result import Direction, Verdict
from atlasd.report.tolerance import tolerance_block, tolerance_steps


def test_steps_of_a_group_with_an_approximate_direction(discovery):
    steps = [(s.start, s.dimension, s.components, s.answer) for s in tolerance_steps(discovery)]
    assert steps == [
        (0.0, 0, 1, "nothing is shown"),
        (0.025, 0, 2, "part of O(2)"),
        (0.039, 1, 2, "O(2)"),
        (0.13, 2, 2, "O(2) and 1 more"),
    ]


def test_the_chosen_one_is_marked(discovery):
    text = tolerance_block(discovery)
    assert text.count("chosen: 20 %") == 1 and text.count("class='chosen'") == 1
    row = text[text.index("class='chosen'") :]
    assert "O(2) and 1 more" in row[: row.index("</tr>")]
    assert "Not measured, and not counted here: 1." in text
    assert "At the chosen tolerance of 20 %: dimension 2, components 2." in text


@pytest.mark.parametrize("tolerance, answer", [(0.02, "nothing is shown"), (0.03, "part of O(2)"), (0.05, "O(2)")])
def test_the_mark_follows_the_tolerance(discovery, tolerance, answer):
    v = discovery.verdict
    parts = (tuple(replace(d, tolerance=tolerance) for d in part) for part in (v.directions, v.cosets, v.rejected))
    text = tolerance_block(replace(discovery, verdict=Verdict(True, "", *parts)))
    row = text[text.index("class='chosen'") :]
    assert f"<td>{answer} <b>" in row[: row.index("</tr>")]


def test_ends_that_print_alike_are_one_step(discovery):
    one = discovery.verdict.cosets[1]
    others = tuple(replace(one, upper=0.0251 + 1e-5 * k) for k in range(5))
    verdict = replace(discovery.verdict, cosets=(*discovery.verdict.cosets, *others), rejected=())
    steps = tolerance_steps(replace(discovery, verdict=verdict))
    assert [(s.dimension, s.components) for s in steps] == [(0, 1), (0, 7), (1, 7)]


def test_an_end_just_above_the_tolerance_is_not_below_it(discovery):
    base = discovery.verdict.cosets[1]
    pair = (replace(base, upper=0.19999), replace(base, upper=0.20001, decision="cannot tell"))
    verdict = Verdict(True, "", (), (base, pair[0]), (pair[1],))
    assert [s.components for s in tolerance_steps(replace(discovery, verdict=verdict))] == [1, 2, 3]
    assert "components 2." in tolerance_block(replace(discovery, verdict=verdict))


def test_nothing_measured_gives_no_curve(discovery):
    nan = math.nan
    unknown = Direction(nan, nan, nan, nan, 0.1, "cannot tell", "too few", 0.2)
    verdict = Verdict(False, "Cannot tell: too few.", (), discovery.verdict.cosets[:1], (unknown,))
    nothing = replace(discovery, group=Group(trivial(2)), verdict=verdict)
    assert tolerance_block(nothing) == ""
    # The control: one interval is enough, and what was not measured has a dash.
    broken = Direction(0.5, 0.4, 0.6, 1.0, 1.0, "broken", "far off", 0.2, extent=1.0)
    text = tolerance_block(replace(nothing, verdict=replace(verdict, rejected=(unknown, broken))))
    assert "dimension 0." in text and "<td class='number'>–</td>" in text and "trivial" not in text


def test_schema_1_has_no_kind_for_what_it_rejected(discovery):
    old = Direction(0.4, 0.3, 0.5, math.nan, math.nan, "broken", "far off", 0.2)
    verdict = replace(discovery.verdict, rejected=(old,))
    last = tolerance_steps(replace(discovery, verdict=verdict))[-1]
    assert (last.dimension, last.components) == (1, 2)
