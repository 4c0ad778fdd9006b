"""The audit of a model as one HTML page."""

from __future__ import annotations

__all__ = ["write_audit"]

import math
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path

from atlasd.nn.auditing import Audit
from atlasd.runtime.files import write_atomically


def write_audit(found: Audit, path: str | Path, title: str = "Audit of a model") -> Path:
    """Writes the page; it needs nothing beside it."""
    style = resources.files("atlasd.report").joinpath("page.css").read_text(encoding="utf-8")
    rows = [
        (
            e.name,
            _share(e.worst),
            f"{_share(_low(e.lower))} to {_share(_low(e.upper))}",
            _share(e.tolerance),
            e.decision,
        )
        for e in found.elements
    ]
    layers = [
        (f.name, f.kind, _share(f.given), _share(f.made), f.cause or ("here" if f.culprit else ""))
        for f in found.layers
    ]
    parts = [
        f"<h1>{escape(title)}</h1>",
        f"<p>{escape(str(found).splitlines()[0])}</p>",
        _table("Elements of the group", ("element", "breaking", "interval", "tolerance", "decision"), rows),
        _table("Layers under the worst element", ("layer", "type", "in", "out", "breaking starts"), layers),
        f"<h2>In words</h2><pre>{escape(str(found))}</pre>",
    ]
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{style}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )
    return write_atomically(Path(path), lambda part: part.write_text(page, encoding="utf-8"))


def _low(values: tuple[float, ...]) -> float:
    return max((v for v in values if not math.isnan(v)), default=math.nan)


def _share(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.2%}"


def _table(title: str, head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    if not rows:
        return ""
    top = "".join(f"<th>{escape(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<h2>{escape(title)}</h2><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
