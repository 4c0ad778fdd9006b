"""A discovery in a notebook: the answer and the verdict, without a style sheet of its own."""

from __future__ import annotations

__all__ = ["notebook_html"]

from atlasd.discovery.result import Discovery
from atlasd.report.judged import COLUMNS, judged_rows
from atlasd.report.sentences import answer_sentences, headline
from atlasd.report.templates import render

_MOST_ROWS = 12


def notebook_html(discovery: Discovery) -> str:
    """A fragment that shows well on any background."""
    left, groups = _MOST_ROWS, []
    for heading, rows in judged_rows(discovery):
        if left > 0:
            groups.append((heading, rows[:left]))
        left -= len(rows)
    return render(
        "notebook.html",
        answer=headline(discovery)[0],
        sentences=answer_sentences(discovery),
        columns=COLUMNS,
        groups=groups,
        more=max(-left, 0),
    )
