"""A helper process that opens a file first: a damaged one can make a library loop for ever, or crash it.

`python -m atlasd.data.probe` reads lines of JSON, `[path, kind]`, opens each file, and answers with a line.
"""

from __future__ import annotations

__all__ = ["check_opens"]

import atexit
import contextlib
import importlib
import json
import os
import select
import subprocess
import sys
from functools import cache
from pathlib import Path

from atlasd.errors import DataError

SECONDS = 15.0
"""How long opening may take."""
_START = 90.0
"""How long the helper and its libraries may take to start, on a busy machine."""


def check_opens(path: Path, module: str, kind: str, seconds: float = SECONDS) -> None:
    """Raises where opening a file takes too long or ends the process that does it; other faults are told later.

    Arguments:
        path: The file.
        module: The reader, below `atlasd.data`.
        kind: The format.
        seconds: How long it may take.
    """
    if os.name != "posix":  # where pipes cannot be waited for, the file is opened as it is
        return
    helper = _helper()
    if helper.ask([str(path.resolve()), module, kind], seconds):
        return
    slow = helper.end()
    _helper.cache_clear()
    cause = f"took more than {seconds:.0f} seconds" if slow else "crashed the library that reads it"
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

    def ask(self, question: list[str], seconds: float) -> bool:
        """Whether an answer came in time."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
        except BrokenPipeError:
            return False
        for limit in (_START, seconds):  # the library is there; the file is opened
            ready, _, _ = select.select([self._process.stdout], [], [], limit)
            if not ready or self._process.stdout.readline() == b"":
                return False
        return True

    def end(self) -> bool:
        """Ends the process; whether it was still at work."""
        try:
            self._process.wait(0.5)
            slow = False
        except subprocess.TimeoutExpired:
            self._process.kill()
            slow = True
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        return slow


@cache
def _helper() -> _Helper:
    helper = _Helper()
    atexit.register(helper.end)
    return helper


def main() -> None:
    """Opens the files that are named on standard input."""
    for line in sys.stdin:
        path, module, kind = json.loads(line)
        # What goes wrong is told by the process that asks, when it opens the file itself.
        with contextlib.suppress(Exception):
            reader = importlib.import_module(f"atlasd.data.{module}")
        print("ready", flush=True)
        with contextlib.suppress(Exception):
            reader.read_variables(Path(path), kind)
        print("opened", flush=True)


if __name__ == "__main__":
    main()
