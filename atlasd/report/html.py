"""The report: one HTML page that needs nothing beside it."""

from __future__ import annotations

__all__ = ["Section", "write_page", "write_report"]

import base64
import html
import math
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from atlasd.discovery.result import Direction, Discovery
from atlasd.report.figures import draw_discovery, figure_bytes
from atlasd.report.tables import describe_discovery
from atlasd.runtime.files import write_atomically

_CAPTIONS = {
    "generators": "Generators of the continuous part. Row and column follow the array axes.",
    "cosets": "One element of each component, the identity first.",
    "spectrum": "Every direction's error at first order. 0 is exact, 1 is what unrelated data would give.",
    "charts": "Where the charts lie, coloured by their error under the pooled group.",
    "fields": "One sample: what goes in and what comes out.",
    "curves": "Training curves.",
}

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --faint: #5c5c5c; --page: #fcfcfb; --line: #d9d9d6;
  --good: #1a6b3c; --bad: #a3231f; --card: #fff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e3; --faint: #a5a5a0; --page: #161718;
  --line: #3a3b3d; --good: #6fcf97; --bad: #ff8a80; --card: #fff; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1.2rem 1rem 4rem; }
h1 { font-size: 1.9rem; margin: .6rem 0 .2rem; } h2 { font-size: 1.25rem; margin: 2.2rem 0 .5rem; }
article + article { border-top: 2px solid var(--line); margin-top: 3rem; padding-top: 1rem; }
.answer { font-size: 1.15rem; margin: .3rem 0; } .reason, figcaption, .faint { color: var(--faint); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .92rem; min-width: 50%; }
th, td { text-align: left; padding: .3rem .8rem .3rem 0; vertical-align: top;
  border-bottom: 1px solid var(--line); }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.symmetry { color: var(--good); font-weight: 600; } .broken, .outlier { color: var(--bad); font-weight: 600; }
figure { margin: 1rem 0; }
figure img { max-width: 100%; height: auto; background: var(--card); border-radius: 6px; }
pre { overflow-x: auto; padding: .7rem; border: 1px solid var(--line); border-radius: 6px; }
@media print { body { background: #fff; color: #000; } figure, table { break-inside: avoid; } }
"""


@dataclass(frozen=True, eq=False)
class Section:
    """One discovery of a page.

    Arguments:
        discovery: What was found.
        content: The content of its `result.json`; made from the discovery if left out.
        fields: One sample for the pictures, see `draw_discovery`.
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
    return write_page(path, [Section(discovery, content or {}, fields or {}, title)])


def write_page(path: str | Path, sections: Sequence[Section], title: str = "atlasd report") -> Path:
    """Writes one page with a section per discovery."""
    body = "\n".join(_article(section) for section in sections)
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # The page must not be able to load anything, whatever stands in the data.
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )
    return write_atomically(Path(path), lambda p: p.write_text(page, encoding="utf-8"))


def _article(section: Section) -> str:
    discovery = section.discovery
    content = section.content or discovery.to_dict()
    title = section.title or content.get("experiment") or "Discovery"
    figures = {name: figure_bytes(figure, "svg") for name, figure in draw_discovery(discovery, section.fields).items()}
    picture = {name: _figure(name, data, describe_discovery(discovery)) for name, data in figures.items()}

    def pictures(*names: str) -> str:
        return "".join(picture[n] for n in names if n in picture)

    parts = [
        f"<p class='faint'>{_text(title)}</p>",
        f"<h1>{_text(discovery.group.name if discovery.verdict.symmetric else 'No symmetry found')}</h1>",
        f"<p class='answer'>{_text(describe_discovery(discovery))}</p>",
        f"<p class='reason'>{_text(discovery.verdict.reason)}</p>",
        _block("The group", pictures("generators", "cosets")),
        _block("Verdict", _verdict(discovery) + pictures("spectrum")),
        _block("Charts", pictures("charts") + _charts(discovery)),
        _block("Data", pictures("fields")),
        _block("Stand-in for the unknown map", _predictor(discovery) + pictures("curves")),
        _block("Against the truth", _comparison(content)),
        _block("Time", _table(("stage", "seconds"), [(k, _number(v)) for k, v in content["seconds"].items()])),
        _block("Run it again", _again(content)),
    ]
    return f"<article>{''.join(parts)}</article>"


def _block(heading: str, inside: str) -> str:
    return f"<section><h2>{_text(heading)}</h2>{inside}</section>" if inside else ""


def _verdict(discovery: Discovery) -> str:
    verdict = discovery.verdict
    groups = (("generator", verdict.directions), ("coset", verdict.cosets), ("rejected", verdict.rejected))
    rows = [(kind, k, d) for kind, found in groups for k, d in enumerate(found)]
    if not rows:
        return ""
    head = ("", "error", "upper bound", "tolerance", "decision", "why")
    body = "".join(_verdict_row(f"{kind} {k + 1}", d) for kind, k, d in rows)
    return f"<div class='scroll'><table><thead>{_head(head)}</thead><tbody>{body}</tbody></table></div>"


def _verdict_row(name: str, d: Direction) -> str:
    numbers = "".join(f"<td class='number'>{_number(v)}</td>" for v in (d.error, d.upper, d.tolerance))
    mark = d.decision if d.decision in ("symmetry", "broken") else "faint"
    return (
        f"<tr><td>{_text(name)}</td>{numbers}<td class='{mark}'>{_text(d.decision)}</td><td>{_text(d.reason)}</td></tr>"
    )


def _charts(discovery: Discovery) -> str:
    if not any(c.center for c in discovery.charts):
        return ""
    rows = "".join(
        f"<tr><td>{k}</td><td>{_text(', '.join(f'{v:g}' for v in c.center))}</td>"
        f"<td class='number'>{_number(c.error)}</td><td class='number'>{_number(c.skill)}</td>"
        + (f"<td class='outlier'>stands apart</td><td>{_text(c.reason)}</td>" if c.outlier else "<td></td><td></td>")
        + "</tr>"
        for k, c in enumerate(discovery.charts)
    )
    head = _head(("chart", "centre (row, column)", "error", "skill", "", "why"))
    return f"<div class='scroll'><table><thead>{head}</thead><tbody>{rows}</tbody></table></div>"


def _predictor(discovery: Discovery) -> str:
    p = discovery.predictor
    rows = [("kind", p.kind), ("skill against the best trivial map", _number(p.skill))]
    rows += [("samples", str(p.samples)), ("seconds", _number(p.seconds))]
    return _table(("", ""), rows)


def _comparison(content: Mapping[str, Any]) -> str:
    metrics, paper = content.get("metrics") or {}, content.get("paper") or {}
    if not metrics and not paper:
        return ""
    keys = [*metrics, *(k for k in paper if k not in metrics)]
    return _table(("figure", "here", "paper"), [(k, _value(metrics.get(k)), _value(paper.get(k))) for k in keys])


def _again(content: Mapping[str, Any]) -> str:
    command = content.get("command")
    rows = [("version", str(content.get("version", ""))), ("seed", str(content.get("seed", "")))]
    rows += [("python", platform.python_version())]
    rows += [(str(k), _value(v)) for k, v in (content.get("config") or {}).items()]
    return (f"<pre>{_text(command)}</pre>" if command else "") + _table(("setting", "value"), rows)


def _figure(name: str, data: bytes, answer: str) -> str:
    caption = _CAPTIONS[name]
    source = f"data:image/svg+xml;base64,{base64.b64encode(data).decode()}"
    return (
        f"<figure><img src='{source}' alt='{_text(f'{caption} {answer}')}'>"
        f"<figcaption>{_text(caption)}</figcaption></figure>"
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    top = f"<thead>{_head(head)}</thead>" if any(head) else ""
    return f"<div class='scroll'><table>{top}<tbody>{body}</tbody></table></div>"


def _head(names: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<th scope='col'>{_text(name)}</th>" for name in names) + "</tr>"


def _text(value: object) -> str:
    """Everything that is not markup of this file passes here."""
    return html.escape(str(value), quote=True)


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.4f}" if abs(value) < 100 else f"{value:.0f}"


def _value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{k}={_value(v)}" for k, v in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_value(v) for v in value)
    return str(value)
