"""Checks the documentation: every local link leads somewhere, the Python in it runs, and every command is described.

Blocks marked `python` are run; those marked `py` need a cluster or files of their own and are only shown.

Run: make docs
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from atlasd.cli import COMMANDS

ROOT = Path(__file__).resolve().parent.parent


def named_commands() -> set[str]:
    return set(re.findall(r"`atlasd ([a-z]+)", (ROOT / "docs" / "api" / "cli.md").read_text()))


def main() -> int:
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    broken = [f"docs/api/cli.md: the command {name} is missing" for name in COMMANDS if name not in named_commands()]
    for page in pages:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            if not (page.parent / target).exists():
                broken.append(f"{page.name}: {target} does not exist")
        with tempfile.TemporaryDirectory() as folder:
            names: dict[str, object] = {}  # blocks of one page follow each other
            for block in re.findall(r"```python\n(.*?)```", text, flags=re.S):
                exec(compile(block.replace("runs/", f"{folder}/"), str(page), "exec"), names)
    print("\n".join(broken) or f"{len(pages)} pages: links and examples work")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
