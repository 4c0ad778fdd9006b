"""Tables for the terminal."""

from __future__ import annotations

__all__ = ["describe_discovery", "experiment_table", "option_table", "print_discovery", "row_table"]

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from atlasd.discovery.result import Direction, Discovery


def describe_discovery(discovery: Discovery) -> str:
    """The answer in one sentence.

    It names the group, what it consists of, and where charts disagree; the evidence is elsewhere.
    """
    group = discovery.group
    if not discovery.verdict.symmetric:
        return "No symmetry was found."
    if not group.dimension:
        words = f"The map commutes with the {group.order} elements of {group.name}."
    else:
        directions = "one continuous direction" if group.dimension == 1 else f"{group.dimension} continuous directions"
        parts = "one component" if group.order == 1 else f"{group.order} components"
        words = f"The map commutes with {group.name}: {directions}, {parts}."
    apart = [str(k) for k, c in enumerate(discovery.charts) if c.outlier]
    if apart:
        subject = f"Chart {apart[0]} stands" if len(apart) == 1 else f"Charts {', '.join(apart)} stand"
        words += f" {subject} apart from the other {len(discovery.charts) - len(apart)}."
    return words


def print_discovery(
    discovery: Discovery, console: Console, *, metrics: Mapping[str, Any] | None = None, title: str = ""
) -> None:
    """Writes the group, the verdict and the figures to a console."""
    if title:
        console.print(Text(title, style="bold"))
    console.print(Text(str(discovery.group), style="bold"))
    # Text, not str: square brackets in a reason are not markup.
    console.print(Text(discovery.verdict.reason))
    rows = [("generator", k, d) for k, d in enumerate(discovery.verdict.directions)]
    rows += [("coset", k, d) for k, d in enumerate(discovery.verdict.cosets)]
    rows += [("rejected", k, d) for k, d in enumerate(discovery.verdict.rejected)]
    if rows:
        console.print(_verdict_table(rows))
    if discovery.charts and any(math.isfinite(c.error) for c in discovery.charts):
        worst = max((c.error for c in discovery.charts if math.isfinite(c.error)), default=math.nan)
        apart = [str(k) for k, c in enumerate(discovery.charts) if c.outlier]
        console.print(
            Text(
                f"{len(discovery.charts)} chart{'s' if len(discovery.charts) > 1 else ''}, "
                f"largest error {worst:.3g}, standing apart: {', '.join(apart) or 'none'}"
            )
        )
    if metrics:
        tables = {k: v for k, v in metrics.items() if _is_table(v)}
        plain = {k: v for k, v in metrics.items() if k not in tables and k != "rows"}
        console.print(Text("  ".join(f"{k}={_short(v)}" for k, v in plain.items())))
        for name, table in tables.items():
            if name != "rows":
                console.print(Text(name))
            console.print(row_table(table))
    console.print(Text(f"{sum(discovery.seconds.values()):.1f} s, {discovery.predictor.kind}"))


def experiment_table(rows: Iterable[tuple[str, str]]) -> Table:
    """Names and descriptions of experiments."""
    table = Table(box=SIMPLE)
    table.add_column("experiment", no_wrap=True, style="bold")
    table.add_column("what it is")
    for name, description in rows:
        table.add_row(Text(name), Text(description))
    return table


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


def _verdict_table(rows: Iterable[tuple[str, int, Direction]]) -> Table:
    table = Table(box=SIMPLE)
    for heading in ("", "error", "upper", "decision", "why"):
        table.add_column(heading, justify="right" if heading in ("error", "upper") else "left")
    for kind, number, d in rows:
        table.add_row(f"{kind} {number + 1}", f"{d.error:.4f}", f"{d.upper:.4f}", Text(d.decision), Text(d.reason))
    return table


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_short(v) for v in value) + "]"
    return str(value)
