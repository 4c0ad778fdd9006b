"""A discovery in a notebook: the answer and the verdict, without a style sheet of its own."""

from __future__ import annotations

__all__ = ["notebook_html"]

from atlasd.discovery.result import Discovery
from atlasd.report.svg import text
from atlasd.report.words import MARKS, answer_sentences, headline, short_number

_MOST_ROWS = 12


def notebook_html(discovery: Discovery) -> str:
    """A fragment that shows well on any background."""
    verdict = discovery.verdict
    groups = (("generator", verdict.directions), ("coset", verdict.cosets), ("rejected", verdict.rejected))
    rows = [(f"{kind} {k + 1}", d) for kind, found in groups for k, d in enumerate(found)]
    body = "".join(
        f"<tr><th scope='row' style='text-align:left'>{text(name)}</th><td>{short_number(d.error)}</td>"
        f"<td>{short_number(d.upper)}</td><td style='text-align:left'>{MARKS[d.decision]} {text(d.decision)}</td>"
        f"<td style='text-align:left'>{text(d.reason)}</td></tr>"
        for name, d in rows[:_MOST_ROWS]
    )
    more = f"<p>and {len(rows) - _MOST_ROWS} more</p>" if len(rows) > _MOST_ROWS else ""
    head = "".join(f"<th scope='col'>{name}</th>" for name in ("", "error", "upper bound", "decision", "why"))
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}" if rows else ""
    sentences = "".join(f"<p style='margin:.2em 0'>{text(s)}</p>" for s in answer_sentences(discovery))
    name = f"<p style='font-size:1.5em;margin:.2em 0'><b>{text(headline(discovery)[0])}</b></p>"
    return f"<div>{name}{sentences}{table}</div>"
