"""Tables for the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from atlasd.discovery.result import Discovery
from atlasd.report.sentences import COLUMNS, MISSING, Row, judged_rows, strength

_MOST_ROWS = 12


def print_discovery(
    discovery: Discovery, console: Console, *, metrics: Mapping[str, Any] | None = None, title: str = ""
) -> None:
    """Writes the group, the verdict and the figures to a console."""
    if title:
        console.print(Text(title, style="bold"))
    console.print(Text(discovery.headline, style="bold"))
    # Text, not str: square brackets in a reason are not markup. A note begins a line.
    console.print(Text(discovery.verdict.reason.replace(" Note: ", "\nNote: ")))
    for heading, judged in judged_rows(discovery):
        console.print(_verdict_table(heading, judged))
    if discovery.charts and any(math.isfinite(c.error) for c in discovery.charts):
        worst = max((c.error for c in discovery.charts if math.isfinite(c.error)), default=math.nan)
        apart = [str(k) for k, c in enumerate(discovery.charts) if c.outlier and not c.dropped]
        dropped = sum(c.dropped for c in discovery.charts)
        used = len(discovery.charts) - dropped
        words = f"{used} chart{'s' if used > 1 else ''}, largest breaking {strength(worst)}"
        words += f", outlier charts: {', '.join(apart) or 'none'}" + (f"; {dropped} more dropped" if dropped else "")
        console.print(Text(words))
    if metrics:
        tables = {k: v for k, v in metrics.items() if _is_table(v)}
        plain = {k: v for k, v in metrics.items() if k not in tables and k not in ("rows", "data")}
        console.print(Text("  ".join(f"{k}={_short(v)}" for k, v in plain.items())))
        for name, table in tables.items():
            if name != "rows":
                console.print(Text(name))
            console.print(row_table(table))
    console.print(Text(f"{sum(discovery.seconds.values()):.1f} s, {discovery.predictor.kind}"))


def option_table(rows: Iterable[tuple[str, str, str, str]]) -> Table:
    """Keys of `--set`: accepted values, default and meaning."""
    table = Table(box=SIMPLE)
    table.add_column("key", no_wrap=True, style="bold")
    for heading in ("values", "default", "meaning"):
        table.add_column(heading)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def row_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Rows of a comparison, one column for each key that any row has; many figures stand below each other."""
    table = Table(box=SIMPLE)
    keys = list(dict.fromkeys(key for row in rows for key in row))
    if len(keys) > max(8, len(rows)) and keys[0] == "name":
        table.add_column("")
        for row in rows:
            table.add_column(Text(str(row["name"])), justify="right", overflow="fold")
        for key in keys[1:]:
            cells = (Text(_short(row[key]) if row.get(key) is not None else "") for row in rows)
            table.add_row(key.replace("_", " "), *cells)
        return table
    for key in keys:
        table.add_column(key, justify="left" if any(isinstance(r.get(key), str) for r in rows) else "right")
    for row in rows:
        table.add_row(*(Text(_short(row[key]) if row.get(key) is not None else "") for key in keys))
    return table


def _is_table(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _verdict_table(heading: str, judged: Sequence[Row]) -> Table:
    table = Table(box=SIMPLE, title=Text(heading, style="italic"), title_justify="left")
    for name in COLUMNS:
        number = name in COLUMNS[2:5]
        table.add_column(name.partition(" (")[0], justify="right" if number else "left", no_wrap=number)
    for row in judged[:_MOST_ROWS]:
        cells = (row.name, f"{row.sign} {row.decision}", row.breaking, row.sensitivity, row.coverage, row.reason)
        # Text, not str: square brackets in a reason are not markup.
        table.add_row(*(Text(cell) for cell in cells))
    if len(judged) > _MOST_ROWS:
        table.caption = f"and {len(judged) - _MOST_ROWS} more"
    return table


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else MISSING
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_short(v) for v in value) + "]"
    return str(value)
