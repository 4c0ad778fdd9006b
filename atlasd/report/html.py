"""The report: one HTML page that needs nothing beside it."""

from __future__ import annotations

__all__ = ["Section", "write_page", "write_report"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from torch import Tensor

from atlasd.discovery.result import Discovery
from atlasd.report import blocks
from atlasd.report.sample import sample_block
from atlasd.report.slider import SCRIPT, film_html, script_hash
from atlasd.report.svg import text
from atlasd.report.tolerance import tolerance_block
from atlasd.report.words import answer_sentences, headline
from atlasd.runtime.files import write_atomically

_STYLE = resources.files("atlasd.report").joinpath("page.css").read_text(encoding="utf-8")
MOST_BYTES = 3_000_000
"""A page that can be sent by mail."""


@dataclass(frozen=True, eq=False)
class Section:
    """One discovery of a page.

    Arguments:
        discovery: What was found.
        content: The content of its `result.json`; made from the discovery if left out.
        fields: One sample for the pictures: `input` and `output` with shape `(C, H, W)`, and `radii` of the charts.
        title: A heading for readers.
    """

    discovery: Discovery
    content: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Tensor] = field(default_factory=dict)
    title: str = ""


def write_report(
    discovery: Discovery,
    path: str | Path,
    *,
    content: Mapping[str, Any] | None = None,
    fields: Mapping[str, Tensor] | None = None,
    title: str = "",
) -> Path:
    """Writes the report of one discovery.

    Arguments:
        discovery: What was found.
        path: Where the page is to stand.
        content: The content of its `result.json`, with metrics and the command; made if left out.
        fields: One sample for the pictures: `input`, `output` with shape `(C, H, W)`, `radii` of the charts.
        title: A heading for readers.
    """
    section = Section(discovery, content or {}, fields or {}, title)
    return write_page(path, [section], f"{headline(discovery)[0]}: {_subject(section)} - atlasd")


def write_page(path: str | Path, sections: Sequence[Section], title: str = "atlasd report") -> Path:
    """Writes one page with a section per discovery; sliders are left out before it grows too large to send."""
    for most in (9, 4, 2, 0):
        page = _page(sections, title, most)
        if len(page.encode()) <= MOST_BYTES:
            break
    return write_atomically(Path(path), lambda p: p.write_text(page, encoding="utf-8"))


def _page(sections: Sequence[Section], title: str, most: int) -> str:
    body = "\n".join(_article(section, number, most) for number, section in enumerate(sections))
    # The page must not be able to load or run anything but its own, whatever stands in the data.
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src '{script_hash()}'"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n"
        "<footer>Made by atlasd. This page needs no network and sends nothing.</footer>\n</main>\n"
        f"<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )


def _article(section: Section, number: int, most: int) -> str:
    discovery = section.discovery
    content = section.content or discovery.to_dict()
    subject = _subject(section)
    title = subject if subject != "symmetry" else "What is the symmetry?"
    answer, decision = headline(discovery)
    first, *rest = answer_sentences(discovery)
    parts = [
        f"<header><p class='over'>{text(title)}</p>"
        f"<div class='top'><h1>{text(answer)}</h1>{blocks.mark(decision)}</div><p class='lead'>{text(first)}</p>"
        f"<p class='answer'>{text(' '.join(rest))}</p>{blocks.facts(discovery)}</header>",
        _block("See it happen", film_html(discovery, f"film{number}", most)),
        _block("The group", blocks.group_block(discovery)),
        _block("Where it holds", blocks.map_block(discovery, section.fields)),
        _block("Verdict", blocks.verdict_block(discovery)),
        _block("Which group for which tolerance", tolerance_block(discovery)),
        _pair(
            _block("Predictor", blocks.predictor_block(discovery)),
            _block("Controls", blocks.controls_block(discovery)),
        ),
        _block("The data", blocks.source_block(content)),
        # What was measured on somebody's own data is no distance from a truth.
        _block(
            "Figures" if content.get("experiment") == "discover" else "Against the truth",
            blocks.comparison_block(content),
        ),
        _block("One sample", sample_block(section.fields)),
        _pair(
            _block("Time", blocks.time_block(content)),
            _block("Run it again", blocks.again_block(content)),
        ),
    ]
    return f"<article>{''.join(parts)}</article>"


def _subject(section: Section) -> str:
    """What a section is about, in a few words: its heading, the name of the file, or that of the experiment."""
    config = section.content.get("config") or {}
    file = config.get("file") if section.content.get("experiment") == "discover" else None
    return section.title or (Path(str(file)).name if file else "") or section.content.get("experiment") or "symmetry"


def _block(heading: str, inside: str) -> str:
    return f"<section><h2>{text(heading)}</h2>{inside}</section>" if inside else ""


def _pair(*blocks: str) -> str:
    return f"<div class='pair stretch'>{''.join(blocks)}</div>"
