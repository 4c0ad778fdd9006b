"""Tables for the terminal say the same as the page."""

import io
from dataclasses import replace

from rich.console import Console

from atlasd.algebra.group import Group
from atlasd.algebra.known import trivial
from atlasd.discovery.result import Verdict
from atlasd.report.tables import option_table, print_discovery, row_table


def _printed(draw) -> str:
    buffer = io.StringIO()
    draw(Console(file=buffer, width=160))
    return buffer.getvalue()


def test_group_verdict_and_metrics(discovery):
    text = _printed(lambda c: print_discovery(discovery, c, metrics={"angle_deg": 0.123456, "list": [1.0, 2]}))
    assert text.startswith("O(2)  (so(2), 2 components)")
    assert "One generator & one reflection hold." in text
    assert "angle_deg=0.1235" in text and "list=[1, 2]" in text
    assert "Other transformations that were judged" in text and "rejected" not in text
    assert "✓ symmetry" in text and "3.1 % (0.4 to 3.9 %)" in text and "91 %" in text and "98 %" in text
    assert "outlier charts: 1" in text and "nan" not in text
    # Square brackets in a reason are text, not markup.
    assert "[/] <b>bold</b>" in text


def test_cannot_tell_is_not_trivial(discovery):
    verdict = Verdict(False, "Cannot tell: too few samples.", cosets=discovery.verdict.cosets[:1])
    lost = replace(discovery, group=Group(trivial(2)), verdict=verdict, charts=())
    text = _printed(lambda c: print_discovery(lost, c, metrics={"angle": float("nan")}))
    assert text.startswith("Cannot tell\n") and "trivial" not in text and "nan" not in text
    # The control: a file that found something says so.
    assert _printed(lambda c: print_discovery(discovery, c)).startswith("O(2)")


def test_options():
    text = _printed(lambda c: c.print(option_table([("key", "[1, 2]", "1", "meaning")])))
    assert "[1, 2]" in text


def test_rows_of_a_comparison_have_a_column_for_each_key():
    text = _printed(lambda c: c.print(row_table([{"model": "a", "auroc": 0.98765}, {"model": "b", "seconds": 3}])))
    assert "model" in text and "0.9877" in text and "seconds" in text


def test_every_list_of_mappings_among_the_metrics_is_a_table(discovery):
    metrics = {"cosine": 0.5, "rows": [{"model": "a"}], "changes": [{"group": "found", "after": 0.25}], "list": [1, 2]}
    text = _printed(lambda c: print_discovery(discovery, c, metrics=metrics))
    assert "cosine=0.5  list=[1, 2]" in text and "changes" in text and "0.25" in text and "{" not in text
