"""Maps as samples of a discovery: one for every expert, standardised, in files where they are too many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from atlasd.data.stored import Stored
from atlasd.runtime.progress import Progress
from atlasd.studies.climate.files import ClimateFolder

DISCOVERY = ("TMQ", "U850", "V850", "PSL")
"""The four variables that the paper's predictors see."""
PUBLISHED = {"TMQ": (19.22, 15.82), "U850": (1.553, 8.298), "V850": (0.254, 6.232), "PSL": (100_814.0, 1461.0)}
"""Means and spreads of the published code."""


def climate_samples(
    folder: ClimateFolder, directory: Path, progress: Progress, units: Mapping[str, tuple[float, float]] | None = None
) -> tuple[Tensor | Stored, Tensor | Stored]:
    """Inputs `(N, C, H, W)` and classes `(N, H, W)`; written map by map to files that are read as they are needed.

    Arguments:
        folder: The maps, with labels.
        directory: Where the files may stand, for as long as they are used.
        progress: Progress display.
        units: Mean and spread of every variable; those of the maps themselves by default.
    """
    variables = DISCOVERY
    if units is None:
        mean, spread = _measured(folder, progress)
    else:
        mean, spread = torch.tensor([units[v] for v in variables]).mT
    mean, spread = mean[:, None, None], spread.clamp_min(1e-12)[:, None, None]
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


def _measured(folder: ClimateFolder, progress: Progress) -> tuple[Tensor, Tensor]:
    """Mean and spread of every variable over all maps, in one pass."""
    parts = []
    for number in progress.track(range(len(folder)), "measure maps"):
        x = folder.fields(number, DISCOVERY).double()
        parts.append(torch.stack([x.mean((1, 2)), x.var((1, 2), correction=0)]))
    means, variances = torch.stack(parts, dim=1)
    return means.mean(0).float(), (variances.mean(0) + means.var(0, correction=0)).sqrt().float()
