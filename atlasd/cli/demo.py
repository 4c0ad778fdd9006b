"""The demonstration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasd.cli.common import Quiet, Seed, Tolerance, console, shown_progress, tell


def demo(
    tolerance: Tolerance = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="Where to keep the runs and the page.")] = Path("runs/demo"),
    quiet: Quiet = False,
) -> None:
    """Find two groups from nothing, and write a report about them."""
    from atlasd.report.figures import write_figures
    from atlasd.report.html import Section, write_page
    from atlasd.report.tables import print_discovery
    from atlasd.studies.demo import run_demo

    sections = []
    out_console = console()
    with shown_progress(quiet) as progress:
        for step, recorded in run_demo(out, seed, progress, write_figures, tolerance=tolerance):
            print_discovery(recorded.discovery, out_console, metrics=recorded.extras.metrics, title=step.title)
            out_console.print()
            sections.append(Section(recorded.discovery, recorded.content, recorded.extras.fields, step.title))
    page = write_page(out / "report.html", sections, "atlasd demo")
    tell(f"The report is {page.resolve()}", err=False)
