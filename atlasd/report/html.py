"""Pages: the report of a discovery and the audit of a model, each one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup
from torch import Tensor

from atlasd.discovery.result import Discovery
from atlasd.nn.auditing import Audit
from atlasd.report.sections import article
from atlasd.report.sentences import headline
from atlasd.report.slider import slider_html
from atlasd.report.templates import render
from atlasd.runtime.files import write_atomically

_FILES = resources.files("atlasd.report")
STYLE = Markup(_FILES.joinpath("page.css").read_text(encoding="utf-8"))
_SCRIPT = Markup(_FILES.joinpath("page.js").read_text(encoding="utf-8"))
"""Everything is computed beforehand: it only looks up positions and words."""


@dataclass(frozen=True, eq=False)
class Section:
    """One discovery of a page.

    Arguments:
        content: The content of its `result.json`; made from the discovery if left out.
        fields: One sample for the pictures: `input` and `output` with shape `(C, H, W)`, and `radii` of the charts.
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
        path: Where the page is to stand.
        content: The content of its `result.json`, with metrics and the command; made if left out.
        fields: One sample for the pictures: `input`, `output` with shape `(C, H, W)`, `radii` of the charts.
    """
    section = Section(discovery, content or {}, fields or {}, title)
    return write_page(path, [section], f"{headline(discovery)[0]}: {_subject(section)} - atlasd")


def write_page(
    path: str | Path, sections: Sequence[Section], title: str = "atlasd report", *, most_bytes: int = 3_000_000
) -> Path:
    """Writes one page with a section per discovery; sliders are left out before it grows too large to send by mail."""
    articles = [_article(section) for section in sections]
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    # By the hash the page allows its own script, and no other.
    around = {"title": title, "style": STYLE, "script": _SCRIPT, "script_hash": f"sha256-{digest}"}
    for most in (9, 4, 2, 0):
        for number, (shown, section) in enumerate(zip(articles, sections, strict=True)):
            shown["slider"] = slider_html(section.discovery, f"slider{number}", most)
        page = render("page.html", articles=articles, **around)
        if len(page.encode()) <= most_bytes:
            break
    return write_atomically(Path(path), lambda p: p.write_text(page, encoding="utf-8"))


def _article(section: Section) -> dict[str, Any]:
    subject = _subject(section)
    heading = subject if subject != "symmetry" else "What is the symmetry?"
    content = section.content or section.discovery.to_dict()
    return article(section.discovery, content, section.fields, heading)


def _subject(section: Section) -> str:
    """What a section is about, in a few words: its heading, the name of the file, or that of the experiment."""
    config = section.content.get("config") or {}
    file = config.get("file") if section.content.get("experiment") == "discover" else None
    return section.title or (Path(str(file)).name if file else "") or section.content.get("experiment") or "symmetry"


def write_audit(found: Audit, path: str | Path, title: str = "Audit of a model") -> Path:
    """Writes the page; it needs nothing beside it."""
    page = render(
        "audit.html",
        title=title,
        style=STYLE,
        words=str(found),
        elements=[
            (e.name, _share(e.worst), f"{_end(e.lower)} to {_end(e.upper)}", _share(e.tolerance), e.decision)
            for e in found.elements
        ],
        outputs=[]
        if found.worst is None
        else [
            (name, _share(strength), f"{_share(low)} to {_share(high)}")
            for name, strength, low, high in zip(
                found.outputs, found.worst.strengths, found.worst.lower, found.worst.upper, strict=True
            )
        ],
        layers=[
            (f.name, f.kind, _share(f.given), _share(f.made), f.cause or ("here" if f.culprit else ""))
            for f in found.layers
        ],
    )
    return write_atomically(Path(path), lambda part: part.write_text(page, encoding="utf-8"))


def _end(values: tuple[float, ...]) -> str:
    return _share(max((v for v in values if not math.isnan(v)), default=math.nan))


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2%}"
