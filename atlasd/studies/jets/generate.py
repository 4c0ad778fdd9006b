"""Jets of top quarks and of light quarks and gluons, generated with Pythia 8 and FastJet (extra `jets`).

The settings are those of the top-tagging reference set, at particle level: proton collisions at 14 TeV without
multiple interactions, anti-kT jets of radius 0.8 with 550 to 650 GeV and |eta| below 2, tops with all their decay
quarks inside the jet, and no detector simulation. Arrays are written, beside them the momentum of each top, `truth`.
"""

from __future__ import annotations

import importlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from atlasd.errors import DataError, InputError
from atlasd.runtime.files import write_atomically
from atlasd.runtime.pool import process_pool
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

_NEUTRINOS = (12, 14, 16)
_COMMON = ("Beams:idA = 2212", "Beams:idB = 2212", "PartonLevel:MPI = off", "Print:quiet = on")
_TOPS = ("Top:gg2ttbar = on", "Top:qqbar2ttbar = on", "24:onMode = off", "24:onIfAny = 1 2 3 4 5")
_LIGHT = ("HardQCD:all = on",)


@dataclass(frozen=True, kw_only=True)
class JetSettings:
    """What is generated.

    Arguments:
        constituents: Places for constituents, hardest first.
        energy: Of the collision, in GeV.
        lowest: Least transverse momentum of a jet.
        highest: Largest transverse momentum of a jet.
        eta: Largest |eta| of a jet.
    """

    energy: float = 14_000.0
    radius: float = 0.8
    lowest: float = 550.0
    highest: float = 650.0
    eta: float = 2.0
    constituents: int = 200

    def __post_init__(self) -> None:
        if not 0 < self.lowest < self.highest < self.energy / 2 or self.radius <= 0 or self.constituents < 1:
            raise InputError(f"`settings` must have 0 < lowest < highest < energy / 2 and a radius, got {self}.")


def generate_jets(
    path: str | Path,
    count: int,
    *,
    settings: JetSettings | None = None,
    seed: int = 0,
    workers: int = 1,
    shard: int = 500,
    progress: Progress | None = None,
) -> Path:
    """Generates jets, half of them tops, into one file; continues after an interruption.

    Arguments:
        path: The `.npz` file to write.
        shard: Jets that one process makes at a time, and keeps.
    """
    path, settings = Path(path), settings or JetSettings()
    if min(count, workers, shard) < 1:
        raise InputError(f"`count`, `workers` and `shard` must be positive, got {count}, {workers} and {shard}.")
    if path.exists():
        raise InputError(f"`{path}` must not exist yet, got a file; choose another name or move it away.")
    load_generators()
    folder = path.with_name(f"{path.name}.shards")
    _claim(folder, {**asdict(settings), "count": count, "seed": seed, "shard": shard})
    sizes = [min(shard, count - start) for start in range(0, count, shard)]
    tasks = [(folder / f"{i:05d}.npz", size, settings, seed, i) for i, size in enumerate(sizes)]
    missing = [task for task in tasks if not task[0].is_file()]
    for _ in (progress or Silent()).track(_work(missing, workers), "generate jets", len(missing)):
        pass
    _write(path, _merged([task[0] for task in tasks]))
    for task in tasks:
        task[0].unlink()
    (folder / "settings.json").unlink()
    folder.rmdir()
    return path


def generate_shard(count: int, settings: JetSettings, seed: int, number: int) -> dict[str, npt.NDArray[Any]]:
    """Some jets, tops and others in turn: `momenta` `(N, P, 4)`, `label` and `truth` `(N, 4)`, of the parton."""
    halves = []
    for label in (0, 1):
        wanted = (count + 1 - label) // 2
        jets = _jets(label, settings, stream(seed, "jets", number, label).initial_seed() % 900_000_000)
        halves.append([jet for jet, _ in zip(jets, range(wanted), strict=False)])
    labels = np.arange(count) % 2
    mixed = [halves[label].pop() for label in labels]
    return {
        "momenta": np.stack([momenta for momenta, _ in mixed]),
        "label": labels,
        "truth": np.array([truth for _, truth in mixed], dtype=np.float32),
    }


def load_generators() -> tuple[Any, Any]:
    """Pythia and FastJet, or one clear line about how to get them."""
    try:
        return importlib.import_module("pythia8mc"), importlib.import_module("fastjet")
    except ImportError as error:
        raise DataError(f"jets need Pythia and FastJet ({error}); `pip install 'atlasd[jets]'` brings them.") from error


def _work(tasks: list[tuple[Path, int, JetSettings, int, int]], workers: int) -> Iterator[None]:
    if workers == 1 or len(tasks) < 2:
        yield from map(_one, tasks)
        return
    with process_pool(min(workers, len(tasks))) as pool:
        yield from pool.map(_one, tasks)


def _one(task: tuple[Path, int, JetSettings, int, int]) -> None:
    path, count, settings, seed, number = task
    _write(path, generate_shard(count, settings, seed, number))


def _write(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    def write(part: Path) -> None:
        with part.open("wb") as handle:
            np.savez_compressed(handle, **arrays)  # type: ignore[arg-type]

    write_atomically(path, write)


def _merged(shards: list[Path]) -> dict[str, npt.NDArray[Any]]:
    parts = []
    for shard in shards:
        with shard.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            parts.append(dict(file))
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _claim(folder: Path, wanted: dict[str, Any]) -> None:
    """Shards are gone on with only if they were made with the same settings."""
    record = folder / "settings.json"
    if record.is_file():
        found = json.loads(record.read_text())
        if found != wanted:
            changed = [key for key in wanted if found.get(key) != wanted[key]]
            raise InputError(
                f"`{folder}` holds jets made with another {changed[0]} ({found.get(changed[0])}), got "
                f"{wanted[changed[0]]}; go on with the same settings or remove it."
            )
        return
    write_atomically(record, lambda part: part.write_text(json.dumps(wanted)))


def _jets(label: int, settings: JetSettings, seed: int) -> Iterator[tuple[npt.NDArray[np.float32], list[float]]]:
    """An endless stream of jets with the momentum of the parton that each comes from (zeros for light ones)."""
    pythia8, fastjet = load_generators()
    pythia = pythia8.Pythia("", False)
    lines = (*_COMMON, *(_TOPS if label else _LIGHT), f"Beams:eCM = {settings.energy}")
    lines += (f"PhaseSpace:pTHatMin = {0.8 * settings.lowest}", f"PhaseSpace:pTHatMax = {1.5 * settings.highest}")
    for line in (*lines, "Random:setSeed = on", f"Random:seed = {seed}"):
        pythia.readString(line)
    if not pythia.init():
        raise DataError("Pythia could not be started with these settings; choose other energies.")
    definition = fastjet.JetDefinition(fastjet.antikt_algorithm, settings.radius)
    while True:
        if not pythia.next():
            continue
        seen = [p for p in pythia.event if p.isFinal() and p.idAbs() not in _NEUTRINOS and abs(p.eta()) < 5]
        cluster = fastjet.ClusterSequence([fastjet.PseudoJet(p.px(), p.py(), p.pz(), p.e()) for p in seen], definition)
        for jet in cluster.inclusive_jets(settings.lowest):
            if jet.pt() > settings.highest or abs(jet.eta()) > settings.eta:
                continue
            truth = _top_inside(pythia.event, jet, settings.radius) if label else [0.0] * 4
            if truth is not None:
                yield _constituents(jet, settings.constituents), truth


def _constituents(jet: Any, places: int) -> npt.NDArray[np.float32]:
    """The hardest constituents `(P, 4)`, padded with zeros."""
    parts = sorted(jet.constituents(), key=lambda p: -p.pt())[:places]
    momenta = np.zeros((places, 4), dtype=np.float32)
    momenta[: len(parts)] = [(p.e(), p.px(), p.py(), p.pz()) for p in parts]
    return momenta


def _top_inside(event: Any, jet: Any, radius: float) -> list[float] | None:
    """The momentum of a top that lies in the jet with its three decay quarks."""
    for top in event:
        if top.idAbs() != 6 or event[top.daughter1()].idAbs() == 6 or _apart(top, jet) > radius:
            continue
        quarks = []
        for index in top.daughterList():
            child = event[index]
            while child.idAbs() == 24 and event[child.daughter1()].idAbs() == 24:
                child = event[child.daughter1()]
            quarks += [event[i] for i in child.daughterList()] if child.idAbs() == 24 else [child]
        quarks = [q for q in quarks if q.idAbs() <= 5]
        if len(quarks) == 3 and all(_apart(q, jet) < radius for q in quarks):
            return [top.e(), top.px(), top.py(), top.pz()]
    return None


def _apart(particle: Any, jet: Any) -> float:
    angle = abs(particle.phi() - jet.phi_std())
    return math.hypot(particle.eta() - jet.eta(), min(angle, 2 * math.pi - angle))
