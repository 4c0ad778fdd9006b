"""What a comparison leaves behind: `compare.json`, and our own discovery with the table among its metrics."""

from __future__ import annotations

__all__ = ["Written", "write_table"]

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atlasd.discovery.result import Discovery, load
from atlasd.runtime.files import write_atomically
from atlasd.studies.rivals.compare import Table


@dataclass(frozen=True, eq=False)
class Written:
    """Our discovery and the content of its `result.json`."""

    discovery: Discovery
    content: Mapping[str, Any]


def write_table(table: Table, directory: Path, ours: Path) -> Written | None:
    """Writes the table, and our discovery if our method took part.

    Arguments:
        table: The figures.
        directory: The run directory.
        ours: Where our method left its discovery.
    """
    written = None
    if (ours / "result.json").is_file():
        discovery = load(ours)
        name = f"compare {table.contest.name}"
        entries = {
            "config": {**table.config.as_dict(), "discover": dict(discovery.config)},
            "metrics": {
                "rows": list(table.methods),
                "published": list(table.published),
                "memory": list(table.memory),
                "control": table.contest.control,
            },
            "paper": dict(table.contest.paper),
            "command": f"atlasd compare {table.contest.name} --seed {table.seed}",
        }
        discovery.save(directory, name, **entries)
        written = Written(discovery, discovery.to_dict(name, **entries))
    content = json.dumps(table.to_dict(), indent=1, allow_nan=False) + "\n"
    write_atomically(directory / "compare.json", lambda path: path.write_text(content))
    return written
