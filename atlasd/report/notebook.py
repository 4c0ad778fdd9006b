"""A discovery in a notebook: the answer and the verdict, without a style sheet of its own."""

from __future__ import annotations

__all__ = ["notebook_html"]

from atlasd.discovery.result import Discovery
from atlasd.report.judged import COLUMNS, Row, judged_rows
from atlasd.report.svg import text
from atlasd.report.words import answer_sentences, headline

_MOST_ROWS = 12
_LEFT = " style='text-align:left'"


def notebook_html(discovery: Discovery) -> str:
    """A fragment that shows well on any background."""
    judged = judged_rows(discovery)
    left, body = _MOST_ROWS, []
    for heading, rows in judged:
        if left > 0:
            body.append(f"<tr><th scope='colgroup' colspan='{len(COLUMNS)}'{_LEFT}>{text(heading)}</th></tr>")
        body += [_line(row) for row in rows[: max(left, 0)]]
        left -= len(rows)
    more = f"<p>and {-left} more</p>" if left < 0 else ""
    head = "".join(f"<th scope='col'>{text(name)}</th>" for name in COLUMNS)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}" if judged else ""
    sentences = "".join(f"<p style='margin:.2em 0'>{text(s)}</p>" for s in answer_sentences(discovery))
    name = f"<p style='font-size:1.5em;margin:.2em 0'><b>{text(headline(discovery)[0])}</b></p>"
    return f"<div>{name}{sentences}{table}</div>"


def _line(row: Row) -> str:
    return (
        f"<tr><th scope='row'{_LEFT}>{text(row.name)}</th><td{_LEFT}>{row.sign} {text(row.decision)}</td>"
        f"<td>{text(row.breaking)}</td><td>{text(row.sensitivity)}</td><td>{text(row.coverage)}</td>"
        f"<td{_LEFT}>{text(row.reason)}</td></tr>"
    )
