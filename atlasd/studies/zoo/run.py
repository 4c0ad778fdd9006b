"""The zoo: every system of known symmetry, asked directly and through fitted predictors, and scored."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from atlasd.discovery.discover import discover
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.limits import TOLERANCE
from atlasd.prediction.neural import ConvPredictor, MLPPredictor
from atlasd.prediction.predictor import PredictorSpec
from atlasd.prediction.train import Schedule
from atlasd.runtime.codec import storable
from atlasd.runtime.executor import current_workers, working
from atlasd.runtime.files import write_atomically
from atlasd.runtime.pool import process_pool
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream
from atlasd.runtime.text import did_you_mean
from atlasd.studies.zoo.field_systems import digits_reason, field_systems, upright_digits
from atlasd.studies.zoo.foreign import foreign_fields, foreign_vectors
from atlasd.studies.zoo.negatives import negative_systems
from atlasd.studies.zoo.scoring import Outcome, Score, score_discovery
from atlasd.studies.zoo.system import System
from atlasd.studies.zoo.vector_systems import vector_systems

Mode = Literal["oracle", "fitted"]

QUICK = ("so2", "o2", "blur", "so2_broken", "threefold", "constant_field")
"""Three positives and three negatives that take seconds."""

_SAMPLES: dict[tuple[str, str], int] = {
    ("vector", "oracle"): 4000,
    ("vector", "fitted"): 10_000,
    ("field", "oracle"): 300,
    ("field", "fitted"): 500,
}
_FEWER = {"upright_digits": 1000, "so3_untrained": 1000, "heat_untrained": 100}
# A step this small leaves every weight where it was drawn.
_NO_TRAINING = Schedule(epochs=1, learning_rate=1e-12)
_UNTRAINED: dict[str, tuple[str, PredictorSpec]] = {
    "so3_untrained": ("so3", MLPPredictor(schedule=_NO_TRAINING)),
    "heat_untrained": ("heat", ConvPredictor(schedule=_NO_TRAINING)),
}


@dataclass(frozen=True)
class Task:
    """One system, asked in one way, with one seed.

    Arguments:
        noise: Noise in the labels, relative to the spread of each output.
        tolerance: The strength of a breaking up to which it counts as a symmetry.
    """

    system: str
    mode: Mode
    seed: int
    noise: float = 0.0
    tolerance: float = TOLERANCE

    def __str__(self) -> str:
        return f"{self.system}, {self.mode}, seed {self.seed}"


@storable()
@dataclass(frozen=True)
class Row:
    """What one task gave; a line of the table.

    Arguments:
        positive: Whether there is a group to be found, continuous or finite.
        components: Number of components of the true group.
        false_generators: Directions claimed that are no symmetries of the exact map.
        false_elements: Coset representatives claimed that are none, or that lie in one component with another.
        upper: The largest upper end of what is claimed.
    """

    system: str
    kind: str
    mode: Mode
    seed: int
    positive: bool
    truth: int
    found: int
    components: int
    found_components: int
    name: str
    verdict: str
    outcome: Outcome
    false_generators: int
    false_elements: int
    note: str
    angle: float | None
    skill: float | None
    upper: float | None
    seconds: float

    @property
    def said(self) -> str:
        """The outcome, with what is wrong."""
        return f"{self.outcome}, {self.note}" if self.note else self.outcome


@dataclass(frozen=True)
class Zoo:
    """All rows and the totals."""

    rows: tuple[Row, ...]
    seconds: float

    def count(self, *outcomes: Outcome) -> int:
        """Rows with one of these outcomes."""
        return sum(row.outcome in outcomes for row in self.rows)

    @property
    def positives(self) -> int:
        """Rows with a group to be found."""
        return sum(row.positive for row in self.rows if row.outcome != "skipped")

    @property
    def wrong_dimension(self) -> int:
        """Rows with a continuous symmetry in which something was found, but with another dimension than the truth."""
        return sum(row.truth > 0 and row.found not in (0, row.truth) for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """What `atlasd zoo --json` prints."""
        return {
            "systems": [asdict(row) for row in self.rows],
            "false_discoveries": self.count("false discovery"),
            "false_generators": sum(row.false_generators for row in self.rows),
            "false_elements": sum(row.false_elements for row in self.rows),
            "detected": self.count("detected"),
            "positives": self.positives,
            "wrong_dimension": self.wrong_dimension,
            "wrong_components": self.count("wrong components"),
            "seconds": round(self.seconds, 2),
        }


def zoo_systems() -> tuple[System, ...]:
    """Every system that is the same for all seeds, positives first.

    Example:
        >>> systems = zoo_systems()
        >>> positives = [system for system in systems if system.positive]
        >>> len(systems) >= 2 * len(positives) >= 44
        True
    """
    positives = (*vector_systems(), *field_systems())
    return (*positives, *negative_systems(positives))


def foreign_systems(seed: int) -> tuple[System, ...]:
    """Families as they come from elsewhere, with parameters drawn for a seed, each followed by its control.

    Example:
        >>> names = [system.name for system in foreign_systems(0)]
        >>> "thin_cone" in names and "thin_cone_control" in names
        True
    """
    return (*foreign_vectors(seed), *foreign_fields(seed))


@lru_cache(maxsize=4)
def _systems(seed: int) -> dict[str, System]:
    """All systems by name; the maps are closures, which no process can send to another."""
    known = {system.name: system for system in (*zoo_systems(), *foreign_systems(seed))}
    for name, (base, _) in _UNTRAINED.items():
        note = f"{base} through a predictor that was never trained"
        known[name] = known[base].without_group(name=name, oracle=False, note=note)
    digits = upright_digits()
    known[digits.name] = digits
    return known


_MOST_SEEDS = 1000


def plan_zoo(
    *,
    seeds: int = 5,
    first: int = 0,
    only: Sequence[str] = (),
    mode: str = "both",
    noise: float = 0.0,
    tolerance: float = TOLERANCE,
) -> tuple[Task, ...]:
    """The tasks, in the order of the table.

    Arguments:
        only: Names of systems; all by default.
        mode: Ask the exact maps, fitted predictors, or both.
        noise: Noise in the labels of fitted predictors, relative to the spread of each output.
        tolerance: The strength of a breaking up to which it counts as a symmetry.
    """
    if not 1 <= seeds <= _MOST_SEEDS:
        raise InputError(f"`seeds` must be from 1 to {_MOST_SEEDS}, got {seeds}; take others with --first.")
    if first < 0:
        raise InputError(f"`first` must be at least 0, got {first}.")
    if mode not in ("oracle", "fitted", "both"):
        raise InputError(f"`mode` must be 'oracle', 'fitted' or 'both', got {mode!r}.")
    if not 0 <= noise < float("inf"):
        raise InputError(f"`noise` must be at least 0, got {noise}.")
    if not 0 < tolerance < 1:
        raise InputError(f"`tolerance` must lie between 0 and 1, got {tolerance}.")
    systems = _systems(first)
    for name in only:
        if name not in systems:
            hint = did_you_mean(name, systems)
            raise InputError(f"unknown system {name!r}{hint} The zoo holds: {', '.join(systems)}.")
    modes: tuple[Mode, ...] = ("oracle", "fitted")
    chosen = [systems[name] for name in (only or systems)]
    return tuple(
        Task(system.name, way, seed, noise if way == "fitted" else 0.0, tolerance)
        for seed in range(first, first + seeds)
        for system in chosen
        for way in modes
        if mode in (way, "both") and (system.oracle if way == "oracle" else system.fitted)
    )


def run_task(task: Task) -> Row:
    """Draws data, discovers and scores. One thread: the processes share the cores."""
    torch.set_num_threads(1)
    system = _systems(task.seed)[task.system]
    started = time.perf_counter()
    missing = digits_reason() if task.system == "upright_digits" else None
    if missing is not None:
        return _row(task, system, None, Score("skipped"), missing, 0.0)
    try:
        found = _discover(task, system)
    except InputError as error:
        return _row(task, system, None, Score("refused"), f"Refused: {error}", time.perf_counter() - started)
    seconds = time.perf_counter() - started
    given = score_discovery(system, found, task.seed, task.tolerance)
    return _row(task, system, found, given, found.verdict.reason, seconds)


def _discover(task: Task, system: System) -> Discovery:
    samples = system.samples or _FEWER.get(task.system, _SAMPLES[system.kind, task.mode])
    generator = stream(task.seed, "zoo", "data", system.name)
    with torch.no_grad():
        if task.mode == "oracle":
            x, y = system.sample(samples, generator), None
        else:
            x, y = system.data(samples, generator, noise=task.noise)
    return discover(
        x,
        y,
        function=system.function if task.mode == "oracle" else None,
        atlas=system.atlas,
        action=system.action,
        predictor=_UNTRAINED[task.system][1] if task.system in _UNTRAINED else None,
        tolerance=task.tolerance,
        seed=task.seed,
        progress=False,
    )


def _row(task: Task, system: System, found: Discovery | None, given: Score, reason: str, seconds: float) -> Row:
    components = len(system.elements)
    claimed = () if found is None else (*found.verdict.directions, *found.verdict.cosets)
    return Row(
        system=system.name,
        kind=system.kind,
        mode=task.mode,
        seed=task.seed,
        positive=system.positive or components > 1,
        truth=system.truth.dimension,
        found=found.group.dimension if found is not None else 0,
        components=components,
        found_components=found.group.components if found is not None else 0,
        name=found.group.name if found is not None else "",
        verdict=reason,
        outcome=given.outcome,
        false_generators=given.generators,
        false_elements=given.elements,
        note=given.note,
        angle=None if given.angle is None else round(given.angle, 4),
        skill=None if found is None else round(found.predictor.skill, 5),
        upper=max((round(d.upper, 5) for d in claimed if d.upper is not None), default=None),
        seconds=round(seconds, 2),
    )


def run_zoo(tasks: Sequence[Task], *, workers: int | None = None, progress: Progress | None = None) -> Zoo:
    """Runs all tasks: in this process, in several, or where the workers of the surroundings are."""
    if workers is not None and workers < 1:
        raise InputError(f"`workers` must be at least 1, got {workers}.")
    if workers is not None and workers > 1:
        with process_pool(workers) as pool, working(pool):
            return run_zoo(tasks, progress=progress)
    progress = progress or Silent()
    started = time.perf_counter()
    rows = []
    todo = [(task,) for task in tasks]
    for row in current_workers().stream(run_task, todo, tasks, progress=progress, label="zoo", stage="row"):
        rows.append(row)
        if row.outcome not in ("detected", "none"):
            progress.say(f"{row.system} ({row.mode}, seed {row.seed}): {row.said}. {row.verdict}")
    return Zoo(tuple(rows), time.perf_counter() - started)


def zoo_table(rows: Iterable[Row]) -> str:
    """The table as text, one line for every row."""
    heads = ("system", "mode", "seed", "truth", "parts", "found", "parts", "name", "outcome", "angle", "s", "verdict")
    lines: list[tuple[str, ...]] = [heads]
    for row in rows:
        counts = map(str, (row.seed, row.truth, row.components, row.found, row.found_components))
        angle = "" if row.angle is None else f"{row.angle:.2f}"
        lines.append((row.system, row.mode, *counts, row.name, row.said, angle, f"{row.seconds:.1f}", row.verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def describe_zoo(zoo: Zoo) -> str:
    """The totals, for every way of asking and together."""
    lines = []
    for mode in ("oracle", "fitted", None):
        part = Zoo(tuple(row for row in zoo.rows if mode in (row.mode, None)), zoo.seconds)
        if not part.rows or (mode is not None and len(part.rows) == len(zoo.rows)):
            continue
        skipped = part.count("skipped")
        negatives = len(part.rows) - part.positives - skipped
        lines.append(
            f"{mode or 'total'}: {part.count('false discovery')} false discoveries "
            f"({sum(r.false_generators for r in part.rows)} generators, "
            f"{sum(r.false_elements for r in part.rows)} elements), "
            f"{part.count('detected')} of {part.positives} positives found in full, "
            f"{part.wrong_dimension} with another dimension, {part.count('wrong components')} with other components, "
            f"{part.count('none')} of {negatives} negatives left alone" + (f", {skipped} skipped" if skipped else "")
        )
    return "\n".join([*lines, f"{zoo.seconds:.0f} s"])


def write_zoo(zoo: Zoo, directory: Path) -> Path:
    """Writes `zoo.json` and `zoo.txt`, the table with its totals."""
    content = json.dumps(zoo.to_dict(), indent=1) + "\n"
    text = f"{zoo_table(zoo.rows)}\n\n{describe_zoo(zoo)}\n"
    write_atomically(directory / "zoo.json", lambda path: path.write_text(content))
    return write_atomically(directory / "zoo.txt", lambda path: path.write_text(text))
