"""The zoo: every system of known symmetry, asked directly and through fitted predictors, and scored."""

from __future__ import annotations

__all__ = [
    "QUICK",
    "Score",
    "Task",
    "Zoo",
    "describe_zoo",
    "plan_zoo",
    "run_task",
    "run_zoo",
    "score",
    "write_zoo",
    "zoo_table",
]

import difflib
import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from atlasd.algebra.lie import LieAlgebra
from atlasd.datasets.system import System
from atlasd.datasets.zoo import zoo_systems
from atlasd.discovery.discover import discover_connected
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.experiments.digits import digits_reason, upright_digits
from atlasd.prediction.neural import ConvPredictor, MLPPredictor
from atlasd.prediction.predictor import PredictorSpec
from atlasd.prediction.train import Schedule
from atlasd.runtime.codec import storable
from atlasd.runtime.executor import current_workers, process_pool, working
from atlasd.runtime.files import write_atomically
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

Mode = Literal["oracle", "fitted"]
Outcome = Literal["detected", "missed", "wrong dimension", "false discovery", "none", "skipped"]

LARGEST_ANGLE = 10.0
"""Degrees between a generator and the truth beyond which the generator is wrong."""

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
class Score:
    """How an algebra that was found compares with the truth.

    Arguments:
        outcome: `detected` has the exact dimension and span; `missed` and `wrong dimension` found nothing and
            too little; `false discovery` holds a direction that is no symmetry; `none` is right on a negative.
        angle: Largest principal angle between the two spans in degrees, where both are there.
    """

    outcome: Outcome
    angle: float | None


def score(found: LieAlgebra, truth: LieAlgebra, largest: float = LARGEST_ANGLE) -> Score:
    """Compares spans: what was found must lie inside the truth, and should fill it.

    Arguments:
        found: The algebra found.
        truth: The algebra that is there.
        largest: Degrees by which a direction may be off.

    Example:
        >>> turn = LieAlgebra(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]))
        >>> nothing = LieAlgebra(torch.zeros(0, 2, 2))
        >>> score(turn, turn).outcome, score(turn, nothing).outcome, score(nothing, turn).outcome
        ('detected', 'false discovery', 'missed')
    """
    if not found.dimension:
        return Score("missed" if truth.dimension else "none", None)
    if not truth.dimension:
        return Score("false discovery", None)
    angle = math.degrees(float(found.angles(truth).max()))
    if found.dimension > truth.dimension or angle > largest:
        return Score("false discovery", angle)
    return Score("detected" if found.dimension == truth.dimension else "wrong dimension", angle)


@dataclass(frozen=True)
class Task:
    """One system, asked in one way, with one seed."""

    system: str
    mode: Mode
    seed: int

    def __str__(self) -> str:
        return f"{self.system}, {self.mode}, seed {self.seed}"


@storable()
@dataclass(frozen=True)
class Row:
    """What one task gave; a line of the table."""

    system: str
    kind: str
    mode: Mode
    seed: int
    positive: bool
    truth: int
    found: int
    name: str
    verdict: str
    outcome: Outcome
    angle: float | None
    skill: float | None
    error: float | None
    seconds: float


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
        """Rows with a symmetry to be found."""
        return sum(row.positive for row in self.rows if row.outcome != "skipped")

    def to_dict(self) -> dict[str, Any]:
        """What `atlasd zoo --json` prints."""
        return {
            "systems": [asdict(row) for row in self.rows],
            "false_discoveries": self.count("false discovery"),
            "detected": self.count("detected"),
            "positives": self.positives,
            "wrong_dimension": self.wrong_dimension,
            "seconds": round(self.seconds, 2),
        }

    @property
    def wrong_dimension(self) -> int:
        """Positives in which something was found, but with another dimension than the truth."""
        return sum(row.positive and row.found not in (0, row.truth) for row in self.rows)


@cache
def _systems() -> dict[str, System]:
    """All systems by name; the maps are closures, which no process can send to another."""
    known = {system.name: system for system in zoo_systems()}
    for name, (base, _) in _UNTRAINED.items():
        system = known[base]
        known[name] = System(
            name=name,
            kind=system.kind,
            truth=LieAlgebra(torch.zeros(0, system.size, system.size)),
            sample=system.sample,
            function=system.function,
            atlas=system.atlas,
            oracle=False,
            note=f"{base} through a predictor that was never trained",
        )
    digits = upright_digits()
    known[digits.name] = digits
    return known


def plan_zoo(*, seeds: int = 5, first: int = 0, only: Sequence[str] = (), mode: str = "both") -> tuple[Task, ...]:
    """The tasks, in the order of the table.

    Arguments:
        seeds: The number of seeds.
        first: The first of them.
        only: Names of systems; all by default.
        mode: Ask the exact maps, fitted predictors, or both.
    """
    systems = _systems()
    if seeds < 1:
        raise InputError(f"`seeds` must be at least 1, got {seeds}.")
    if first < 0:
        raise InputError(f"`first` must be at least 0, got {first}.")
    if mode not in ("oracle", "fitted", "both"):
        raise InputError(f"`mode` must be 'oracle', 'fitted' or 'both', got {mode!r}.")
    for name in only:
        if name not in systems:
            near = difflib.get_close_matches(name, systems, n=3, cutoff=0.6)
            hint = f", did you mean {' or '.join(repr(n) for n in near)}?" if near else "."
            raise InputError(f"unknown system {name!r}{hint} The zoo holds: {', '.join(systems)}.")
    modes: tuple[Mode, ...] = ("oracle", "fitted")
    chosen = [systems[name] for name in (only or systems)]
    return tuple(
        Task(system.name, way, seed)
        for seed in range(first, first + seeds)
        for system in chosen
        for way in modes
        if mode in (way, "both") and (system.oracle if way == "oracle" else system.fitted)
    )


def run_task(task: Task) -> Row:
    """Draws data, discovers the continuous part, and scores it. One thread: the processes share the cores."""
    torch.set_num_threads(1)
    system = _systems()[task.system]
    started = time.perf_counter()
    missing = digits_reason() if task.system == "upright_digits" else None
    if missing is not None:
        return _row(task, system, None, missing, 0.0)
    samples = _FEWER.get(task.system, _SAMPLES[system.kind, task.mode])
    generator = stream(task.seed, "zoo", "data", system.name)
    with torch.no_grad():
        if task.mode == "oracle":
            x, y = system.sample(samples, generator), None
        else:
            x, y = system.data(samples, generator)
    predictor = _UNTRAINED[task.system][1] if task.system in _UNTRAINED else None
    found = discover_connected(
        x,
        y,
        function=system.function if task.mode == "oracle" else None,
        atlas=system.atlas,
        action=system.action,
        predictor=predictor,
        seed=task.seed,
    )
    return _row(task, system, found, "", time.perf_counter() - started)


def _row(task: Task, system: System, found: Discovery | None, reason: str, seconds: float) -> Row:
    given = Score("skipped", None) if found is None else score(found.algebra, system.truth)
    verdict = found.verdict if found is not None else None
    return Row(
        system=system.name,
        kind=system.kind,
        mode=task.mode,
        seed=task.seed,
        positive=system.positive,
        truth=system.truth.dimension,
        found=found.group.dimension if found is not None else 0,
        name=found.group.name if found is not None else "",
        verdict=verdict.reason if verdict is not None else reason,
        outcome=given.outcome,
        angle=None if given.angle is None else round(given.angle, 4),
        skill=None if found is None else round(found.predictor.skill, 5),
        error=None if verdict is None else max((round(d.upper, 5) for d in verdict.directions), default=None),
        seconds=round(seconds, 2),
    )


def run_zoo(tasks: Sequence[Task], *, workers: int | None = None, progress: Progress | None = None) -> Zoo:
    """Runs all tasks: in this process, in several, or where the workers of the surroundings are.

    Arguments:
        tasks: What to run.
        workers: Processes, each with one thread; `None` takes the workers of the surroundings.
        progress: Who is told how far it is.
    """
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
            progress.say(f"{row.system} ({row.mode}, seed {row.seed}): {row.outcome}. {row.verdict}")
    return Zoo(tuple(rows), time.perf_counter() - started)


def zoo_table(rows: Iterable[Row]) -> str:
    """The table as text, one line for every row."""
    lines = [("system", "mode", "seed", "truth", "found", "name", "outcome", "angle", "seconds", "verdict")]
    lines += [
        (
            row.system,
            row.mode,
            str(row.seed),
            str(row.truth),
            str(row.found),
            row.name,
            row.outcome,
            "" if row.angle is None else f"{row.angle:.2f}",
            f"{row.seconds:.1f}",
            row.verdict,
        )
        for row in rows
    ]
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
            f"{mode or 'total'}: {part.count('false discovery')} false discoveries, "
            f"{part.count('detected')} of {part.positives} positives found with the exact dimension, "
            f"{part.wrong_dimension} with another, {part.count('none')} of {negatives} negatives left alone"
            + (f", {skipped} skipped" if skipped else "")
        )
    return "\n".join([*lines, f"{zoo.seconds:.0f} s"])


def write_zoo(zoo: Zoo, directory: Path) -> Path:
    """Writes `zoo.json` and `zoo.txt`, the table with its totals.

    Arguments:
        zoo: What was found.
        directory: Where to; made where it is not there.
    """
    content = json.dumps(zoo.to_dict(), indent=1) + "\n"
    text = f"{zoo_table(zoo.rows)}\n\n{describe_zoo(zoo)}\n"
    write_atomically(directory / "zoo.json", lambda path: path.write_text(content))
    return write_atomically(directory / "zoo.txt", lambda path: path.write_text(text))
