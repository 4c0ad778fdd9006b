"""All methods on the same data, each in a process of its own, and the table of what each found and what it cost.

One rule counts claims, for us and for the rivals: a method claims the generators, and the components beyond the
first, of its own last answer. For ours that is what its verdict let pass; LieGG claims the singular vectors whose
values its threshold takes for zero; LieGAN and the paper's search claim every generator that did not collapse. On
the negative control nothing is there, so every claim is false. What our verdict would leave of a rival's claims is
given beside, as `confirmed`, with the error of what is left.

There are two tables. In the first, every search that looks at a predictor is given the same one. In the second, each
has the predictor and the settings of its own paper.

Seconds are those of the processor, in one thread: what else the machine does meanwhile does not count.
"""

from __future__ import annotations

import json
import pkgutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from atlasd.algebra.structure import orthonormal_rows
from atlasd.discovery.result import Discovery, load
from atlasd.errors import InputError
from atlasd.runtime.context import on_device
from atlasd.runtime.files import write_atomically
from atlasd.runtime.memory import peak_megabytes, reset_peak, resident_megabytes
from atlasd.runtime.pool import process_pool
from atlasd.runtime.progress import Progress
from atlasd.runtime.stages import current_stages, without_stages
from atlasd.runtime.text import did_you_mean
from atlasd.studies.config import Config, RunConfig, option, tolerance_option
from atlasd.studies.rivals.measures import Measure

OURS = "atlasd"
CONTESTS: Mapping[str, str] = {
    "heat": "atlasd.studies.rivals.compare_paper:HEAT",
    "dimuons": "atlasd.studies.rivals.compare_paper:DIMUONS",
    "top-tagging": "atlasd.studies.rivals.compare_paper:TOP_TAGGING",
    "sphere-mnist": "atlasd.studies.rivals.compare_paper:SPHERE_MNIST",
    "affine": "atlasd.studies.rivals.compare_shaw:AFFINE",
    "cubic": "atlasd.studies.rivals.compare_shaw:CUBIC",
    "sector": "atlasd.studies.rivals.compare_sector:CONTEST",
    "flows": "atlasd.studies.rivals.compare_flows:CONTEST",
    "two-body": "atlasd.studies.rivals.compare_two_body:CONTEST",
    "diffusions": "atlasd.studies.rivals.compare_diffusions:CONTEST",
}


@dataclass(frozen=True, eq=False)
class Answer:
    """What one method says.

    Arguments:
        basis: The generators that it claims, with shape `(k, n, n)`.
        components: The components that it claims.
        discovery: The whole answer, where the method gives one.
        note: One remark for the table.
        judged: The generators that our verdict leaves of them, `(j, n, n)`; asked after the clock has stopped.
        more: Generators of further parts, where the data of a task are several systems.
        figures: Further columns of the table; asked after the clock has stopped.
    """

    basis: Tensor
    components: int = 1
    discovery: Discovery | None = None
    note: str = ""
    judged: Callable[[], Tensor] | None = None
    more: tuple[Tensor, ...] = ()
    figures: Callable[[], Mapping[str, Any]] | None = None

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The generators of every part of the data."""
        return (self.basis, *self.more)

    @property
    def dimension(self) -> int:
        """Number of independent generators, over all parts."""
        return sum(len(orthonormal_rows(part.detach().double().flatten(1), 3e-7)) for part in self.parts)

    @classmethod
    def of(cls, discovery: Discovery) -> Answer:
        """The answer that a discovery is."""
        return cls(discovery.algebra.basis, discovery.group.components, discovery)


@dataclass(frozen=True, kw_only=True)
class CompareConfig(RunConfig):
    """Settings of every comparison."""

    tables: Literal["both", "same", "own"] = option(
        "both", "all searches on the same predictors, each on those of its own paper, or both"
    )
    tolerance: float = tolerance_option()


Method: TypeAlias = Callable[[Any, Any, int], Answer]
"""From the data of a contest, its settings and a seed to an answer: all that lies between."""


@dataclass(frozen=True, eq=False)
class Contest:
    """One comparison.

    Arguments:
        name: What to write after `atlasd compare`.
        measure: How answers are compared with the truth.
        data: Makes the data from settings, a seed, and whether they are the negative control.
        methods: By name, all with the same predictors; ours is `atlasd`.
        control: What the negative control is, in words.
        published: By name, each with the predictors and settings of its own paper.
        reported: What is published of a method on this task, by the method's name: a column of its own.
        remark: What else is published, and which methods cannot answer.
    """

    name: str
    config: type[Config]
    measure: Measure
    data: Callable[[Any, int, bool], Any]
    methods: Mapping[str, Method]
    control: str
    published: Mapping[str, Method] = field(default_factory=dict)
    reported: Mapping[str, str] = field(default_factory=dict)
    remark: str = ""


@dataclass(frozen=True)
class Table:
    """The rows of a contest: all on the same predictors, and each as published."""

    contest: Contest
    config: Config
    seed: int
    methods: tuple[dict[str, Any], ...]
    published: tuple[dict[str, Any], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The content of `compare.json`."""
        content: dict[str, Any] = {"experiment": self.contest.name, "methods": [dict(row) for row in self.methods]}
        if self.published:
            content["published"] = [dict(row) for row in self.published]
        content |= {"control": self.contest.control, "reported": dict(self.contest.reported)}
        return content | {"seed": self.seed, "config": self.config.as_dict()}

    def write(self, directory: Path, ours: Path) -> tuple[Discovery, dict[str, Any]] | None:
        """Writes `compare.json`, and our discovery with the rows among its metrics if our method took part.

        Arguments:
            ours: Where our method left its discovery.

        Returns:
            Our discovery and the content of its `result.json`.
        """
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        write_atomically(directory / "compare.json", lambda path: path.write_text(text))
        if not (ours / "result.json").is_file():
            return None
        discovery, name = load(ours), f"compare {self.contest.name}"
        metrics = {"rows": list(self.methods), "published": list(self.published)}
        entries: dict[str, Any] = {
            "config": {**self.config.as_dict(), "discover": dict(discovery.config)},
            "metrics": {**metrics, "control": self.contest.control},
            "paper": dict(self.contest.reported),
            "command": f"atlasd {name} --seed {self.seed}",
        }
        discovery.save(directory, name, **entries)
        return discovery, discovery.to_dict(name, **entries)


def find_contest(name: str) -> Contest:
    """The comparison of that name.

    Example:
        >>> find_contest("heet")
        Traceback (most recent call last):
            ...
        atlasd.errors.InputError: unknown comparison 'heet', did you mean 'heat'? There are: heat, ...
    """
    if name in CONTESTS:
        contest: Contest = pkgutil.resolve_name(CONTESTS[name])
        return contest
    hint = did_you_mean(name, CONTESTS)
    raise InputError(f"unknown comparison {name!r}{hint} There are: {', '.join(CONTESTS)}.")


@dataclass(frozen=True)
class Task:
    """One method on one set of data, in a process of its own."""

    contest: str
    method: str
    config: Config
    seed: int
    control: bool = False
    keep: Path | None = None
    published: bool = False


def run_contest(
    contest: Contest,
    config: Config,
    seed: int,
    progress: Progress,
    *,
    methods: Sequence[str] = (),
    keep: Path | None = None,
) -> Table:
    """Runs the methods one after the other, with one thread each, and puts their figures side by side.

    Arguments:
        methods: Some of the methods; all by default.
        keep: Where our own discovery is saved.
    """
    known = list(dict.fromkeys((*contest.methods, *contest.published)))
    for name in methods:
        if name not in known:
            raise InputError(f"`methods` must be among {', '.join(known)}, got {name!r}.")
    tables = getattr(config, "tables", "same")
    names = [name for name in contest.methods if name in (methods or known) and (tables != "own" or name == OURS)]
    own = [name for name in contest.published if name in (methods or known) and tables != "same"]
    rows: list[dict[str, Any]] = []
    for name, published in (*((n, False) for n in names), *((n, True) for n in own)):
        settings = " as published" if published else ""
        progress.say(f"{name}{settings} on {contest.name}")
        kept = keep if name == OURS and not published else None
        task = Task(contest.name, name, config, seed, keep=kept, published=published)
        done = with_control(task, _kept)
        reported = {"reported": contest.reported.get(name)} if contest.reported else {}
        rows.append({"name": name, **done, **reported})
    return Table(contest, config, seed, tuple(rows[: len(names)]), tuple(rows[len(names) :]))


def with_control(task: Task, ask: Callable[[Task], dict[str, Any]]) -> dict[str, Any]:
    """The figures of a task, with what the method claims on the negative control."""
    done, empty = ask(task), ask(replace(task, control=True, keep=None))
    # A task may say itself which claims are false.
    claims = empty.get("false", empty["dimension"] + empty["components"] - 1)
    return {**done, "false_claims": claims, "false_confirmed": empty["confirmed"]}


def _kept(task: Task) -> dict[str, Any]:
    """What a task gave before the comparison was interrupted, or gives now."""

    def work() -> dict[str, Any]:
        with without_stages():
            return _alone(task)

    size = task.config.as_dict().get("samples")
    what = "the control" if task.control else "the data"
    name = f"{task.method}, published," if task.published else task.method
    return current_stages().do(f"{name} on {what}, {size} samples", work)


def _alone(task: Task) -> dict[str, Any]:
    """Runs a task in a fresh process: nothing that another method left behind counts."""
    with process_pool(1) as pool:
        return pool.submit(perform, task).result()


def perform(task: Task) -> dict[str, Any]:
    """Makes the data, asks the method, and measures."""
    torch.set_num_threads(1)
    contest = find_contest(task.contest)
    data = contest.data(task.config, task.seed, task.control)
    method = (contest.published if task.published else contest.methods)[task.method]
    reset_peak()
    before = resident_megabytes()
    started, worked = time.perf_counter(), time.process_time()
    with on_device(getattr(task.config, "device", None)):
        answer = method(data, task.config, task.seed)
    wall, seconds = time.perf_counter() - started, time.process_time() - worked
    peak = peak_megabytes()
    if task.keep is not None and answer.discovery is not None:
        answer.discovery.save(task.keep)
    measure, after, confirmed = contest.measure, {}, answer.dimension
    if answer.judged is not None:
        left = answer.judged()
        confirmed, after = len(left), {"after_verdict": measure((left,), data) if len(left) else None}
    return {
        measure.name: measure(answer.parts, data),
        **after,
        "dimension": answer.dimension,
        "components": answer.components,
        "confirmed": confirmed,
        "seconds": round(seconds, 2),
        "wall_seconds": round(wall, 2),
        "peak_mb": round(peak, 1),
        "working_mb": round(max(peak - before, 0.0), 1),
        **({} if answer.figures is None else answer.figures()),
        **({"note": answer.note} if answer.note else {}),
    }
