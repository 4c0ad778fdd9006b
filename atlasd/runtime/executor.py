"""Where tasks run: in this process, or wherever a `concurrent.futures.Executor` takes them.

A task is a pure function of a small description, and runs on one thread. The tasks and the order in which their
results are put together do not depend on where they run; that is why the answer does not either.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import torch

from atlasd.errors import AtlasdError, InputError
from atlasd.runtime.context import current_context, within
from atlasd.runtime.files import SCRATCH
from atlasd.runtime.memory import keep_freed_memory
from atlasd.runtime.packing import Packed, dumps
from atlasd.runtime.pool import ProcessPool, process_pool
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.stages import current_stages, without_stages

T = TypeVar("T")
ATTEMPTS = 3
"""How often a task is tried before it is given up."""


class TaskFailed(AtlasdError, RuntimeError):
    """A task failed as often as it may; the message names it.

    Arguments:
        about: What the task was about, such as `About(range(5, 10), shard=3)`.
        cause: What went wrong last.
    """

    def __init__(self, about: object, cause: str) -> None:
        super().__init__(f"{about} failed {ATTEMPTS} times: {cause}; mend the cause and resume the run.")
        self.about, self.cause = about, cause

    def __reduce__(self) -> tuple[Any, ...]:
        return TaskFailed, (self.about, self.cause)


@dataclass(frozen=True)
class About:
    """The charts and the shard of the data that a task is about.

    Example:
        >>> str(About(range(5, 10), shard=3)), str(About(range(4, 5)))
        ('charts 5 to 9, shard 3', 'chart 4')
    """

    charts: range
    shard: int | None = None

    def __str__(self) -> str:
        low, high = self.charts.start, self.charts.stop - 1
        where = f"chart {low}" if low == high else f"charts {low} to {high}"
        return where if self.shard is None else f"{where}, shard {self.shard}"


def _call(*tasks: Packed) -> list[bytes]:
    """What a worker does. Dask looks through the stack of every task a hundred times a second; a thread of its own
    keeps that stack short."""
    if "distributed.worker" not in sys.modules:
        return _work(*tasks)
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(_work, *tasks).result()


def _work(*tasks: Packed) -> list[bytes]:
    torch.set_num_threads(1)  # workers share the cores
    if multiprocessing.parent_process() is not None:  # a worker's process is ours; Dask makes it give back every page
        keep_freed_memory()
    answers = []
    for task in tasks:
        function, arguments = pickle.loads(task.data)
        answers.append(dumps(function(*arguments)))
    return answers


@dataclass(frozen=True)
class _Sent:
    """Where the answer to a task will come from: the one at this place of what a future gives."""

    future: Future[list[bytes]] | None
    place: int = 0

    def lost(self) -> bool:
        """Whether it will never come."""
        return self.future is None or (self.future.done() and self.future.exception() is not None)


@dataclass(eq=False)
class Workers:
    """Runs tasks in order of their numbers, and tries again what fails.

    Arguments:
        executor: Where tasks run; `None` is this process.
        directory: Where large arrays are put for the workers; a temporary directory of this machine by default.

    Example:
        >>> Workers().map(pow, [(2, 3), (3, 2)], ["first", "second"])
        [8, 9]
    """

    executor: Executor | None = None
    directory: Path | None = None

    def __post_init__(self) -> None:
        self._scratch: TemporaryDirectory[str] | None = None
        self._count, self._revived = 0, False
        self._seats: list[Executor] | None = None
        if self.executor is not None and not callable(getattr(self.executor, "submit", None)):
            raise InputError(
                f"`executor` must be a concurrent.futures.Executor or None, got {type(self.executor).__name__}; "
                "for Dask pass client.get_executor()."
            )

    def scratch(self) -> Path:
        """A new directory for arrays that tasks refer to; it goes when the work is done."""
        if self._scratch is None:
            if self.directory is not None:
                self.directory.mkdir(parents=True, exist_ok=True)
            # A run sweeps its own directory when it goes on; elsewhere the name says whose it is.
            prefix = "atlasd-" if self.directory is None else SCRATCH
            self._scratch = TemporaryDirectory(prefix=prefix, dir=self.directory, ignore_cleanup_errors=True)
        self._count += 1
        made = Path(self._scratch.name) / str(self._count)
        made.mkdir()
        return made

    def close(self) -> None:
        """Removes what was put down for the workers."""
        if self._scratch is not None:
            self._scratch.cleanup()
        self._scratch = None
        if self._revived and isinstance(self.executor, ProcessPool):
            self.executor.end()

    def map(
        self, function: Callable[..., T], tasks: Sequence[tuple[Any, ...]], names: Sequence[object], **how: Any
    ) -> list[T]:
        """Results of all tasks, in their order; the arguments are those of `stream`."""
        return list(self.stream(function, tasks, names, **how))

    def stream(
        self,
        function: Callable[..., T],
        tasks: Sequence[tuple[Any, ...]],
        names: Sequence[object],
        *,
        progress: Progress | None = None,
        label: str = "",
        stage: str = "",
        quick: bool = False,
    ) -> Iterator[T]:
        """Results one by one, in the order of the tasks; raises `TaskFailed` for the first that cannot be done.

        Arguments:
            function: What to call; defined at the top of a module.
            tasks: Its arguments for every task.
            names: What every task is about, for messages.
            stage: Keeps the result of every task under this name, where a run directory keeps stages.
            quick: Sends tasks in bundles, one for each worker: sending would take as long as working.
        """
        steps: Iterator[int] | range = range(len(tasks))
        if label:
            steps = (progress or Silent()).track(range(len(tasks)), label)
        stages = current_stages()
        keys = [stages.key(f"{stage} {name}") for name in names] if stage else []
        kept = {i: value for i, key in enumerate(keys) for found, value in [stages.get(key)] if found}
        packed = self._packed(function, tasks) if self.executor is not None and len(tasks) else None
        waiting = self._send(packed, [i for i in range(len(packed)) if i not in kept], quick) if packed else {}
        try:
            for i in steps:
                if i in kept:
                    yield kept.pop(i)
                    continue
                if packed is None:
                    # As it is for a worker: a task that is kept is kept as a whole.
                    with without_stages() if stage else nullcontext():
                        done = self._here(function, tasks[i], names[i])
                else:
                    done = self._result(waiting, packed, names[i], i)
                if stage:
                    stages.put(keys[i], done)
                yield done
        finally:
            for sent in waiting.values():
                if sent.future is not None:
                    sent.future.cancel()

    @staticmethod
    def _packed(function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]]) -> list[bytes] | None:
        """Tasks ready to be sent, or nothing where they cannot leave this process."""
        try:
            return [dumps((function, task)) for task in tasks]
        except (pickle.PicklingError, AttributeError, TypeError, ImportError):
            return None

    def _send(self, packed: list[bytes], numbers: list[int], quick: bool) -> dict[int, _Sent]:
        """Hands tasks over, one by one or in as many bundles as there are workers."""
        seats = self._hands() if quick else []
        size = math.ceil(len(numbers) / len(seats)) if seats else 1
        sent: dict[int, _Sent] = {}
        for number, first in enumerate(range(0, len(numbers), size)):
            bundle = numbers[first : first + size]
            future = self._submit(*(packed[i] for i in bundle), at=seats[number] if seats else None)
            sent |= {i: _Sent(future, place) for place, i in enumerate(bundle)}
        return sent

    def _hands(self) -> list[Executor]:
        """Where to send each of the tasks that run at the same time; empty if the executor does not say how many.

        On Dask a bundle goes to the same worker every time, which has kept what it shares with the last one; another
        takes it where that one is gone.
        """
        assert self.executor is not None
        count = getattr(self.executor, "_max_workers", 0)
        if count:
            return [self.executor] * count
        client: Any = getattr(self.executor, "_client", None)
        if self._seats is None and hasattr(client, "nthreads"):
            addresses = [address for address, threads in sorted(client.nthreads().items()) for _ in range(threads)]
            given = getattr(self.executor, "_kwargs", {})  # what the executor was asked for, such as `retries`
            if "workers" in given:  # somebody chose where to work
                self._seats = [self.executor] * len(addresses)
            else:
                given = {**given, "allow_other_workers": True}
                self._seats = [client.get_executor(**given, workers=[a]) for a in addresses]
        return self._seats or []

    def _submit(self, *data: bytes, at: Executor | None = None) -> Future[list[bytes]] | None:
        executor = at or self.executor
        assert executor is not None
        try:
            return executor.submit(_call, *(Packed(d) for d in data))
        except (BrokenExecutor, RuntimeError):
            return None

    @staticmethod
    def _here(function: Callable[..., T], task: tuple[Any, ...], name: object) -> T:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            for attempt in range(ATTEMPTS):
                try:
                    return function(*task)
                except (AtlasdError, KeyboardInterrupt, GeneratorExit):
                    raise
                except Exception as error:
                    if attempt == ATTEMPTS - 1:
                        raise TaskFailed(name, _reason(error)) from error
            raise AssertionError
        finally:
            torch.set_num_threads(threads)

    def _result(self, waiting: dict[int, _Sent], packed: list[bytes], name: object, number: int) -> Any:
        error: BaseException | None = None
        for _ in range(ATTEMPTS):
            sent = waiting.pop(number)
            try:
                if sent.future is None:
                    raise BrokenExecutor("the pool is broken")
                return pickle.loads(sent.future.result()[sent.place])
            except (AtlasdError, KeyboardInterrupt, GeneratorExit):
                raise
            except BrokenExecutor as broken:
                error = broken
                self._revive()
                # What was on its way through the broken pool is lost with it.
                lost = [i for i, other in waiting.items() if other.lost()]
                waiting.update({i: _Sent(self._submit(packed[i])) for i in lost})
            except Exception as failure:
                error = failure
            waiting[number] = _Sent(self._submit(packed[number]))
        waiting.pop(number)
        assert error is not None
        raise TaskFailed(name, _reason(error)) from error

    def _revive(self) -> None:
        """A broken pool of processes is replaced by a new one of the same size."""
        if isinstance(self.executor, ProcessPoolExecutor):
            count = getattr(self.executor, "_max_workers", 1)
            self.executor.shutdown(wait=False, cancel_futures=True)
            self.executor, self._revived = process_pool(count), True


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def current_workers() -> Workers:
    """The workers of the discovery that is under way; this process where none were given."""
    return current_context().workers or Workers()


def usable_cores() -> int:
    """Processes that make sense here."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def alone() -> AbstractContextManager[None]:
    """Keeps all work in this process, also where `all_cores` would spread it."""
    return within(workers=Workers())


@contextmanager
def all_cores(blocks: int) -> Iterator[None]:
    """Spreads work over the cores of this machine, unless there is little of it or somebody chose otherwise.

    Arguments:
        blocks: How many tasks there are to work on at the same time.
    """
    count = min(usable_cores(), blocks // 2)
    if current_context().workers is not None or count < 2:
        yield
        return
    with process_pool(count) as pool, working(pool):
        yield


@contextmanager
def working(executor: Executor | None, directory: Path | None = None) -> Iterator[Workers]:
    """Makes an executor the place where tasks run; `None` keeps that of the surroundings.

    Arguments:
        executor: Where tasks run.
        directory: Where large arrays are put for the workers; one that all of them see.
    """
    if executor is None:
        yield current_workers()
        return
    workers = Workers(executor, directory)
    try:
        with within(workers=workers):
            yield workers
    finally:
        workers.close()


@contextmanager
def working_in(directory: Path) -> Iterator[None]:
    """Puts large arrays for the workers into this directory, which remote workers must share."""
    workers = current_workers()
    before, workers.directory = workers.directory, directory
    try:
        yield
    finally:
        workers.close()
        workers.directory = before
