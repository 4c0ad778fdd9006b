"""A helper process that opens a file first: a damaged one can make a library loop for ever, or crash it.

`python -m atlasd.data.probe` reads lines of JSON, `[path, module, kind, seconds]`, opens each file, and answers with
a line.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import math
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from atlasd.errors import DataError

SECONDS = 10.0
"""Processor seconds that opening may take: on a busy machine a good file takes many more by the clock."""
_PATIENCE = 300.0
"""Seconds by the clock for a helper that neither works nor answers, as on a disc that is gone."""


def check_opens(path: Path, module: str, kind: str, seconds: float = SECONDS) -> None:
    """Raises where opening a file takes too long or ends the process that does it; other faults are told later.

    Arguments:
        module: The reader, below `atlasd.data`.
        seconds: Processor seconds that it may take.
    """
    if os.name != "posix":  # where pipes cannot be waited for, the file is opened as it is
        return
    helper = _helper()
    if helper.ask([str(path.resolve()), module, kind, seconds]):
        return
    slow = helper.end()
    _helper.cache_clear()
    cause = f"took more than {seconds:.0f} seconds to open" if slow else "crashed the library that reads it"
    raise DataError(f"`{path}` must be a complete {kind} file, got one that {cause}; is it damaged? Fetch it again.")


class _Helper:
    """The other end of a pipe to the helper process, which ends with the pipe."""

    def __init__(self) -> None:
        # -P: no module is taken from the working directory.
        command = [sys.executable, "-P", "-m", "atlasd.data.probe"]
        self._process = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip

    def ask(self, question: list[str | float]) -> bool:
        """Whether an answer came."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            return False
        ready, _, _ = select.select([self._process.stdout], [], [], _PATIENCE)
        return bool(ready) and self._process.stdout.readline() != b""

    def end(self) -> bool:
        """Ends the process; whether it had taken too long."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            return self._process.wait(2.0) == -signal.SIGXCPU
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return True


@cache
def _helper() -> _Helper:
    helper = _Helper()
    atexit.register(helper.end)
    return helper


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Lets the system end this process if it works for more seconds than that inside."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    end = math.ceil(used + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (end if hard == resource.RLIM_INFINITY else min(end, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))


def main() -> None:
    """Opens the files that are named on standard input."""
    for line in sys.stdin:
        path, module, kind, seconds = json.loads(line)
        # What goes wrong is told by the process that asks, when it opens the file itself.
        with contextlib.suppress(Exception):
            reader = importlib.import_module(f"atlasd.data.{module}")
        with contextlib.suppress(Exception), _limited(seconds):
            reader.read_variables(Path(path), kind)
        print("opened", flush=True)


if __name__ == "__main__":
    main()
