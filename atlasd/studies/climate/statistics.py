"""Statistics of a folder of maps: one pass over the files, then kept beside them."""

from __future__ import annotations

__all__ = ["Statistics", "kept_statistics", "measured_statistics"]

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from atlasd.data.fetch import data_directory
from atlasd.errors import DataError
from atlasd.runtime.files import write_atomically
from atlasd.runtime.progress import Progress
from atlasd.studies.climate.synthetic import CLASSES

if TYPE_CHECKING:
    from atlasd.studies.climate.files import ClimateFolder

NAME = "atlasd-statistics.json"


@dataclass(frozen=True)
class Statistics:
    """What is known of a folder after one pass.

    Arguments:
        mean: Mean of every variable.
        spread: Standard deviation of every variable.
        classes: Share of every class over all experts; empty without labels.
        maps: How many maps.
        experts: How many labels, over all maps.
        print: What the files were known by.
    """

    mean: Mapping[str, float]
    spread: Mapping[str, float]
    classes: tuple[float, ...]
    maps: int
    experts: int
    print: str


def _print(files: Sequence[Path], variables: Sequence[str]) -> str:
    """Changes when a file is added, left out or written again."""
    digest = hashlib.sha256("/".join(variables).encode())
    for file in files:
        stat = file.stat()
        digest.update(f"{file.name}/{stat.st_size if file.is_file() else 0}/{stat.st_mtime_ns}".encode())
    return digest.hexdigest()[:32]


def _places(folder: Path, mark: str) -> tuple[Path, Path]:
    """Beside the files, or in the cache where that cannot be written."""
    return folder / NAME, data_directory("climate") / f"statistics-{mark}.json"


def kept_statistics(folder: Path, files: Sequence[Path], variables: Sequence[str]) -> Statistics | None:
    """What an earlier pass over the same files has left, if any."""
    mark = _print(files, variables)
    for place in _places(folder, mark):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(place.read_text())
            found = Statistics(**{**content, "classes": tuple(content["classes"])})
            if found.print == mark:
                return found
    return None


def measured_statistics(folder: ClimateFolder, files: Sequence[Path], progress: Progress) -> Statistics:
    """One pass in float64; memory does not grow with the folder."""
    names = folder.variables
    total, square = torch.zeros(2, len(names), dtype=torch.float64)
    counts = torch.zeros(len(CLASSES), dtype=torch.float64)
    experts = 0
    shift = torch.zeros(len(names), dtype=torch.float64)
    for number in progress.track(range(len(folder)), "statistics"):
        for c, field in enumerate(folder.fields(number)):
            x = field.double()
            if number == 0:
                shift[c] = x.mean()  # squares of pressures would eat the digits of their spread
            x -= shift[c]
            total[c] += x.mean()
            square[c] += x.square().mean()
        if folder.labelled:
            drawn = folder.labels(number)
            experts += len(drawn)
            counts += torch.bincount(drawn.flatten(), minlength=len(CLASSES)).double() / drawn[0].numel()
    mean = total / len(folder)
    spread = (square / len(folder) - mean.square()).clamp_min(0).sqrt()
    found = Statistics(
        mean=dict(zip(names, (mean + shift).tolist(), strict=True)),
        spread=dict(zip(names, spread.tolist(), strict=True)),
        classes=tuple((counts / max(experts, 1)).tolist()) if experts else (),
        maps=len(folder),
        experts=experts,
        print=_print(files, names),
    )
    text = json.dumps(asdict(found), indent=1)
    for place in _places(folder.path, found.print):
        try:
            write_atomically(place, lambda path: path.write_text(text))
            break
        except DataError:
            continue  # not ours to write; nothing is lost but time
    return found
