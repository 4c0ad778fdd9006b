"""Running an experiment and keeping what it found: one directory per run, whole or absent."""

from __future__ import annotations

import logging
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from torch import Tensor

from atlasd import __version__
from atlasd.discovery.digest import read_beside
from atlasd.discovery.result import Discovery
from atlasd.errors import AtlasdError, InputError
from atlasd.runtime.content import read_json, tensor_digest, write_tensors
from atlasd.runtime.context import find_device
from atlasd.runtime.executor import working_in
from atlasd.runtime.files import is_litter, write_atomically
from atlasd.runtime.progress import Logged, Progress
from atlasd.runtime.stages import NAME as STAGES
from atlasd.runtime.stages import keeping
from atlasd.runtime.text import escaped
from atlasd.studies import Experiment, find_experiment
from atlasd.studies.config import Config

T = TypeVar("T")

_FIELDS = "fields.safetensors"


@dataclass(frozen=True)
class Extras:
    """What an experiment knows beyond the discovery.

    Arguments:
        metrics: Distances from the known truth; under `rows`, the rows of a comparison, each a mapping.
        paper: What the paper reports, for comparison.
        fields: One sample for the pictures: `input` and `output`, each with shape `(C, H, W)`, and
            `radii`, the in- and out-radius of the charts. Empty for vectors.
    """

    metrics: Mapping[str, Any]
    paper: Mapping[str, Any] = field(default_factory=dict)
    fields: Mapping[str, Tensor] = field(default_factory=dict)


Run: TypeAlias = Callable[[Any, int, Progress], tuple[Discovery, Extras]]
"""What every experiment module offers as `run`: does the work for a configuration and a seed; writes nothing itself."""
Draw: TypeAlias = Callable[[Discovery, Path, Mapping[str, Tensor]], Any]


@dataclass(frozen=True)
class Plan:
    """A run that has been checked and can start."""

    experiment: Experiment
    config: Config
    seed: int
    directory: Path

    @property
    def command(self) -> str:
        """The command line that does this run again."""
        return shlex.join(["atlasd", *self.config.command(self.experiment.name, self.seed)])


@dataclass(frozen=True, eq=False)
class Recorded:
    """A finished run and where it is."""

    plan: Plan
    discovery: Discovery
    extras: Extras
    content: Mapping[str, Any]


def plan_run(name: str, settings: Sequence[str] = (), *, seed: int = 0, out: str | Path | None = None) -> Plan:
    """Checks everything that can be checked before the work starts, and writes nothing.

    Arguments:
        settings: `key=value` texts.
        out: The run directory, `runs/NAME-seedS` by default.
    """
    experiment = find_experiment(name)
    return plan_config(experiment, experiment.configure(settings), seed=seed, out=out)


def plan_config(experiment: Experiment, config: Config, *, seed: int = 0, out: str | Path | None = None) -> Plan:
    """Like `plan_run`, for a configuration that has been made already."""
    if not 0 <= seed < 2**63:
        raise InputError(f"`seed` must be a non-negative integer, got {seed}; choose for example 0.")
    directory = Path("runs") / f"{config.title(experiment.name)}-seed{seed}" if out is None else Path(out)
    plan = Plan(experiment, config, seed, directory)
    if out is None and config.MANY:
        plan = replace(plan, directory=_unused(directory, plan.command))
    check_directory(plan.directory)
    find_device(getattr(config, "device", "cpu"))
    return plan


def _unused(directory: Path, command: str) -> Path:
    """The directory, or the first of `NAME-2`, `NAME-3` and so on that holds no answer to another question."""
    for number in range(1, 10_000):
        place = directory if number == 1 else directory.with_name(f"{directory.name}-{number}")
        try:
            held = read_json(place / "result.json").get("command", command)
        except (AttributeError, AtlasdError, OSError, ValueError):
            held = command
        if held == command:
            return place
    raise InputError(f"`out` must be given, got {directory} with too many runs beside it; name a directory.")


def check_directory(directory: Path, mark: str = "result.json") -> None:
    """Raises unless a run may be written there; `mark` is the file by which an earlier one is known."""
    if directory.exists():
        if not directory.is_dir():
            raise InputError(f"`out` must be a directory, got the file {str(directory)!r}; choose another name.")
        known = (directory / mark).is_file() or (directory / STAGES).is_dir()
        if not known and any(not is_litter(path.name) for path in directory.iterdir()):
            raise InputError(
                f"`out` must be empty or an earlier run, got {str(directory)!r} with other files; choose another name."
            )
    standing = directory
    while not standing.exists() and standing != standing.parent:
        standing = standing.parent
    if not standing.is_dir() or not os.access(standing, os.W_OK | os.X_OK):
        raise InputError(f"`out` must be a directory that can be written, got {str(directory)!r}; choose another one.")


def execute(plan: Plan, progress: Progress, draw: Draw | None = None) -> Recorded:
    """Runs a plan and writes its directory; nothing is written if the run fails, but for what can be taken up again.

    Arguments:
        plan: From `plan_run`.
        draw: Draws figures of the discovery into the directory.
    """
    log = _Log(progress)
    log.note(plan.command)
    command = plan.config.command(plan.experiment.name, plan.seed)
    with keeping(plan.directory, command, __version__, log.say), working_in(plan.directory):
        discovery, extras = plan.experiment.runner()(plan.config, plan.seed, log)
        log.note(str(discovery))
        return _write(plan, discovery, extras, log, draw)


def _write(plan: Plan, discovery: Discovery, extras: Extras, log: _Log, draw: Draw | None) -> Recorded:
    """Puts down everything a run leaves behind."""
    config = plan.config.as_dict()
    if discovery.config:
        config["discover"] = dict(discovery.config)
    entries = {
        "config": config,
        "metrics": dict(extras.metrics),
        "paper": dict(extras.paper),
        "command": plan.command,
    }
    directory = plan.directory
    # result.json comes last: where it stands, everything else does.
    (directory / "result.json").unlink(missing_ok=True)
    if draw is not None:
        log.say(f"drawing figures into {directory}")
        draw(discovery, directory, extras.fields)
    if extras.fields:
        tensors = {k: v.detach().clone().contiguous() for k, v in extras.fields.items()}
        write_tensors(directory / _FIELDS, tensors)
        entries["files"] = {_FIELDS: tensor_digest(tensors)}
    else:
        (directory / _FIELDS).unlink(missing_ok=True)
    write_atomically(directory / "log.txt", lambda path: path.write_text(log.text()))
    discovery.save(directory, plan.experiment.name, **entries)
    return Recorded(plan, discovery, extras, discovery.to_dict(plan.experiment.name, **entries))


def read_fields(directory: Path) -> dict[str, Tensor]:
    """The sample that a run kept for its pictures; empty if it kept none."""
    return read_beside(directory, _FIELDS, read_json(directory / "result.json"))


class _Log(Logged):
    """Passes progress on, and remembers it with the time."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self._lines: list[str] = []
        self._start = time.monotonic()
        self.note(f"started {datetime.now(UTC).isoformat(timespec='seconds')}")

    def note(self, message: str, level: int = logging.INFO) -> None:
        """Remembers without showing."""
        since = time.monotonic() - self._start
        self._lines += [f"{since:9.2f} s  {escaped(line)}" for line in message.splitlines()]

    def text(self) -> str:
        """All lines."""
        return "\n".join(self._lines) + "\n"
