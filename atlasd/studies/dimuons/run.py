"""Real muon pairs: the Lorentz group out of the invariant mass, without a metric being assumed."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from atlasd.algebra.known import so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.discover import discover
from atlasd.discovery.result import Discovery
from atlasd.errors import DataError, InputError
from atlasd.prediction.moments import DeepSetsPredictor, MomentPredictor
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Progress
from atlasd.runtime.random import stream
from atlasd.studies.config import RunConfig, asking, option, tolerance_option
from atlasd.studies.lorentz import lorentz_metrics, metric_field
from atlasd.studies.record import Extras


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


_KINDS: Mapping[str, PredictorSpec] = {
    "moments": MomentPredictor(),
    "deepsets": DeepSetsPredictor(),
    "mlp": MLPPredictor(hidden=(128, 128, 128)),
}


@dataclass(frozen=True, kw_only=True)
class DimuonConfig(RunConfig):
    """Settings of the dimuon experiment."""

    IMPLIES: ClassVar[Mapping[tuple[str, Any], Mapping[str, Any]]] = {
        # A sum of two roots is no function of quadratic forms of sums.
        ("target", "pt_sum"): {"predictor": "deepsets"},
    }

    samples: int | None = option(None, "events, all 30,370 by default", least=100)
    target: Literal["mass", "pt_sum"] = option("mass", "log M, or the control log(pt1 + pt2)")
    labels: Literal["true", "shuffled"] = option("true", "shuffled is a control: nothing is to be found")
    predictor: Literal["moments", "deepsets", "mlp"] = option("moments", "what is fitted")
    tolerance: float = tolerance_option()


CONFIG = DimuonConfig


def run(config: DimuonConfig, seed: int, progress: Progress) -> tuple[Discovery, Extras]:
    """Learns the target from the two momenta and asks for its symmetry."""
    events = load_dimuons(config.samples)
    progress.say(f"{len(events)} muon pairs, {'mass' if config.target == 'mass' else 'sum of transverse momenta'}")
    found = discover(
        events.momenta,
        _target(events, config, seed),
        predictor=_KINDS[config.predictor],
        **asking(config, seed, progress),
    )
    if config.target == "mass":
        return found, Extras(lorentz_metrics(found, so(1, 3)), fields=metric_field(found))
    return found, Extras(_beam_metrics(found))


def _target(events: Dimuons, config: DimuonConfig, seed: int) -> Tensor:
    y = (events.mass if config.target == "mass" else events.transverse).log()
    if config.labels == "shuffled":
        y = y[torch.randperm(len(y), generator=stream(seed, "dimuons", "labels"))]
    return y


def beam_algebra() -> LieAlgebra:
    r"""The exact algebra of :math:`|p_{t1}| + |p_{t2}|`, of dimension 9.

    A matrix keeps the length of every transverse momentum if and only if its rows of px and py are (0, R, 0) with R
    orthogonal. The rows of E and pz are free, since nothing feels them: a rotation about the beam, and eight directions
    that only change what E and pz become. The boost along the beam is one of them.
    """
    basis = torch.zeros(9, 4, 4, dtype=torch.float64)
    basis[0, 1, 2], basis[0, 2, 1] = -1.0, 1.0
    for k in range(4):
        basis[1 + k, 0, k] = 1.0
        basis[5 + k, 3, k] = 1.0
    return LieAlgebra(basis)


def seen_algebra() -> LieAlgebra:
    """What events can show of it: the rotation about the beam and the boost along it.

    Muons are all but massless: their momenta lie on the light cone, where the square of pt is also that of E less
    that of pz. Only transformations that keep the cone can be tested, and of the Lorentz group and the scaling these
    two leave pt as it is.
    """
    basis = torch.zeros(2, 4, 4, dtype=torch.float64)
    basis[0, 1, 2], basis[0, 2, 1] = -1.0, 1.0
    basis[1, 0, 3] = basis[1, 3, 0] = 1.0
    return LieAlgebra(basis)


def _beam_metrics(found: Discovery) -> dict[str, Any]:
    """Whether the rotation about the beam was found, and how far the answer lies from the truth."""
    metrics: dict[str, Any] = {
        "group": found.answer,
        "dimension": found.group.dimension,
        "cosets": found.group.components,
    }
    if found.group.dimension:
        metrics["angle_deg"] = math.degrees(float(found.algebra.angles(seen_algebra()).max()))
        rotation = LieAlgebra(beam_algebra().basis[:1])
        metrics["beam_turn_deg"] = math.degrees(float(found.algebra.angles(rotation).max()))
        metrics["outside_truth_deg"] = math.degrees(float(found.algebra.angles(beam_algebra()).max()))
    return metrics
