"""The page of a run."""

from __future__ import annotations

__all__ = ["report"]

import json
from pathlib import Path
from typing import Annotated

import typer

from atlasd.errors import DataError


def report(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Where to write the page  [default: DIR/report.html]")] = None,
) -> None:
    """Write the report of a run as one HTML page."""
    if not directory.is_dir():
        raise DataError(f"`{directory}` must be a run directory, got {_what(directory)}; `atlasd run` makes one.")
    from atlasd.discovery.result import load
    from atlasd.experiments.record import read_fields
    from atlasd.report.html import write_report

    discovery = load(directory)
    content = json.loads((directory / "result.json").read_text())
    path = write_report(discovery, out or directory / "report.html", content=content, fields=read_fields(directory))
    typer.echo(str(path))


def _what(path: Path) -> str:
    return "a file" if path.exists() else "nothing there"
