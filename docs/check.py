"""Checks the documentation: every local link leads somewhere, and the Python in it runs.

Run: make docs
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
    broken = []
    for page in pages:
        text = page.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            if not (page.parent / target).exists():
                broken.append(f"{page.name}: {target} does not exist")
        with tempfile.TemporaryDirectory() as folder:
            for block in re.findall(r"```python\n(.*?)```", text, flags=re.S):
                exec(compile(block.replace("runs/", f"{folder}/"), str(page), "exec"), {})
    print("\n".join(broken) or f"{len(pages)} pages: links and examples work")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
