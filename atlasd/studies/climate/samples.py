"""Maps as samples of a discovery: one for every expert, standardised, in files where they are too many."""

from __future__ import annotations

__all__ = ["DISCOVERY", "climate_samples"]

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from atlasd.data.stored import Stored
from atlasd.runtime.progress import Progress
from atlasd.studies.climate.files import ClimateFolder

DISCOVERY = ("TMQ", "U850", "V850", "PSL")
"""The four variables that the paper's predictors see."""


def climate_samples(
    folder: ClimateFolder, directory: Path, progress: Progress, variables: tuple[str, ...] = DISCOVERY
) -> tuple[Tensor | Stored, Tensor | Stored]:
    """Inputs `(N, C, H, W)` and classes `(N, H, W)`; written map by map to files that are read as they are needed.

    Arguments:
        folder: The maps, with labels.
        directory: Where the files may stand, for as long as they are used.
        progress: Progress display.
        variables: Which variables are the channels.
    """
    known = folder.statistics(progress)
    mean = torch.tensor([known.mean[v] for v in variables])[:, None, None]
    spread = torch.tensor([known.spread[v] for v in variables]).clamp_min(1e-12)[:, None, None]
    paths = directory / "maps.bin", directory / "labels.bin"
    count = 0
    # Plain writes, not a map of the file: what was written needs no memory.
    with paths[0].open("wb") as fields, paths[1].open("wb") as labels:
        for number in progress.track(range(len(folder)), "read maps"):
            x = ((folder.fields(number, variables) - mean) / spread).numpy()
            for drawn in folder.labels(number):
                x.astype("<f4").tofile(fields)
                drawn.numpy().astype(np.uint8).tofile(labels)
                count += 1
    shapes = torch.Size((count, len(variables), *folder.shape)), torch.Size((count, *folder.shape))
    return (
        Stored("memory", str(paths[0].resolve()), "", shapes[0], "<f4"),
        Stored("memory", str(paths[1].resolve()), "", shapes[1], "|u1"),
    )
