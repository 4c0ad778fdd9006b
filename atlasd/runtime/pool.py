"""Processes that work for this one, and end when it does; torch is not imported before they watch for that."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from types import TracebackType
from typing import Any

_SAFE = "PYTHONSAFEPATH"


class _Process(SpawnProcess):
    """A process that looks for no module in the directory where it starts.

    It is started by `python -c`, which would take `random.py` of the working directory for the library's.
    """

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _safe_path():
            return SpawnProcess._Popen(process_obj)  # type: ignore[attr-defined]


class _Spawn(SpawnContext):
    """Processes are spawned: a fork copies torch's threads in whatever state they are in."""

    Process = _Process


class ProcessPool(ProcessPoolExecutor):
    """A pool whose processes end at once when its context is left by an error, and when this process dies."""

    def __init__(self, workers: int) -> None:
        with _safe_path():  # the helper that a pool's semaphores need is started by `python -c`, too
            if sys.platform != "win32":
                resource_tracker.ensure_running()
        super().__init__(workers, mp_context=_Spawn(), initializer=_settle)

    def end(self) -> None:
        """Ends the processes without waiting for their tasks."""
        processes = list((getattr(self, "_processes", None) or {}).values())
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with contextlib.suppress(OSError, ValueError):  # it has ended by itself
                process.terminate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if kind is not None:
            self.end()
        return super().__exit__(kind, error, trace)


def process_pool(workers: int) -> ProcessPool:
    """Processes on this machine, one thread each."""
    return ProcessPool(workers)


def _settle() -> None:
    """Prepares a worker: it leaves interrupts to its parent, and ends when the parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, name="parent", daemon=True).start()


def _watch() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # nobody is left to ask for anything


@contextmanager
def _safe_path() -> Iterator[None]:
    before = os.environ.get(_SAFE)
    os.environ[_SAFE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SAFE]
        else:
            os.environ[_SAFE] = before
