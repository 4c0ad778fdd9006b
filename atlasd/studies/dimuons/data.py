"""Pairs of muons from real proton collisions (CMS 2011, CC BY 4.0, see `dimuons.md`), shipped with the package."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import torch
from torch import Tensor

from atlasd.errors import DataError, InputError
from atlasd.runtime.random import stream


@dataclass(frozen=True, eq=False)
class Dimuons:
    """Events in GeV.

    Arguments:
        momenta: (E, px, py, pz) of both muons, with shape `(N, 2, 4)`, float32.
        mass: Invariant mass of the pair, `(N,)`, float32.
        charge: Charges, `(N, 2)`.
    """

    momenta: Tensor
    mass: Tensor
    charge: Tensor

    def __len__(self) -> int:
        return len(self.mass)

    @property
    def transverse(self) -> Tensor:
        """The sum of the two transverse momenta, with shape `(N,)`."""
        return self.momenta[..., 1:3].norm(dim=-1).sum(-1)


def load_dimuons(samples: int | None = None) -> Dimuons:
    """The events that come with the package: 30,370, or the first `samples` in an order that mixes both tables.

    Example:
        >>> events = load_dimuons(1000)
        >>> events.momenta.shape
        torch.Size([1000, 2, 4])
        >>> total = events.momenta.double().sum(1)
        >>> mass = (total[:, 0].square() - total[:, 1:].square().sum(-1)).sqrt()
        >>> bool((mass / events.mass - 1).abs().max() < 2e-3)
        True
    """
    if samples is not None and samples < 1:
        raise InputError(f"`samples` must be positive, got {samples}; leave it out for all events.")
    source = files("atlasd.studies.dimuons").joinpath("dimuons.npz")
    try:
        with np.load(io.BytesIO(source.read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in ("momenta", "mass", "charge")}
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise DataError(f"`dimuons.npz` of the package could not be read ({error}); install atlasd again.") from error
    # The two tables follow each other in the file; a fixed order mixes them, the same for every seed.
    order = torch.randperm(len(arrays["mass"]), generator=stream(0, "dimuons", "order"))[:samples]
    return Dimuons(**{name: torch.from_numpy(array)[order] for name, array in arrays.items()})
