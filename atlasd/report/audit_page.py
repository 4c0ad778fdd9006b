"""The audit of a model as one HTML page."""

from __future__ import annotations

__all__ = ["write_audit"]

import math
from pathlib import Path

from atlasd.nn.auditing import Audit
from atlasd.report.html import STYLE
from atlasd.report.templates import render
from atlasd.runtime.files import write_atomically


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
