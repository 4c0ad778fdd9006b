"""The page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import tell
from atlasd.errors import AtlasdError, DataError


def report(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path | None, typer.Option(help="Where to write the page  [default: DIR/report.html]")] = None,
) -> None:
    """Write the report of a run as one HTML page."""
    if not directory.is_dir():
        raise DataError(f"`{directory}` must be a run directory, got {_what(directory)}; `atlasd run` makes one.")
    from atlasd.discovery.result import load
    from atlasd.report.html import write_report
    from atlasd.runtime.content import read_json
    from atlasd.studies.record import read_fields

    discovery = load(directory)
    content, fields = read_json(directory / "result.json"), read_fields(directory)
    try:
        path = write_report(discovery, out or directory / "report.html", content=content, fields=fields)
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, AtlasdError):
            raise
        raise DataError(f"`{directory}` holds a result that cannot be shown: {error!r}; run it again.") from error
    tell(str(path), err=False)


def _what(path: Path) -> str:
    return "a file" if path.exists() else "nothing there"
