"""Finished stages of a run, kept in its directory: a run that was killed goes on from there."""

from __future__ import annotations

__all__ = ["Stages", "current_stages", "fingerprint", "how_to_resume", "keeping", "read_plan", "resuming"]

import hashlib
import json
import os
import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from atlasd.errors import DataError
from atlasd.runtime.codec import Unstorable, decode, encode
from atlasd.runtime.files import write_atomically

T = TypeVar("T")
SCHEMA = 1
NAME = "stages"
"""Where in a run directory stages stand until the run is done."""


class Stages:
    """Keeps what is finished under the path of stages that led to it; without a directory, nothing is kept.

    Arguments:
        directory: Where to keep stages.
        plan: What the work is: plain values that tell one run from another.
        fresh: Drops what an earlier run left there.
    """

    def __init__(
        self, directory: Path | None = None, plan: dict[str, Any] | None = None, *, fresh: bool = True
    ) -> None:
        self.directory = directory
        self._plan = {"schema": SCHEMA, **(plan or {})}
        self._entries: dict[str, dict[str, str]] = {}
        self._path: list[str] = []
        self._counts: dict[str, int] = {}
        if directory is None:
            return
        if fresh:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            kept = _read(directory / "manifest.json")
            self._entries = dict(kept["stages"])
        self._write()

    def _write(self) -> None:
        if self.directory is not None:
            text = json.dumps({**self._plan, "stages": self._entries}, indent=1) + "\n"
            write_atomically(self.directory / "manifest.json", lambda path: path.write_text(text))

    def key(self, name: str) -> str:
        """The path of the next stage of that name; the same work gives the same paths in the same order."""
        path = "/".join([*self._path, name])
        self._counts[path] = self._counts.get(path, -1) + 1
        return f"{path}.{self._counts[path]}"

    def enter(self, name: str) -> None:
        """Begins a part of the run, such as one discovery of several; what follows is kept under its name."""
        self._path = []
        self._path = [self.key(name)]

    def do(self, name: str, work: Callable[[], T]) -> T:
        """What the stage of that name gave: as it was kept, or done now and kept."""
        if self.directory is None:
            return work()
        key = self.key(name)
        found, value = self.get(key)
        if found:
            return value
        self._path.append(key.rsplit("/", 1)[-1])
        try:
            done = work()
        finally:
            self._path.pop()
        self.put(key, done)
        return done

    def get(self, key: str) -> tuple[bool, Any]:
        """Whether that stage is kept whole, and what it gave."""
        entry = self._entries.get(key)
        if self.directory is None or entry is None:
            return False, None
        path = self.directory / entry["file"]
        try:
            if hashlib.sha256(path.read_bytes()).hexdigest() != entry["sha256"]:
                return False, None
            with safe_open(str(path), "pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
                tree = json.loads(file.metadata()["tree"])
        except (OSError, SafetensorError, ValueError, KeyError):
            return False, None
        return True, decode(tree, tensors)

    def put(self, key: str, value: Any) -> None:
        """Keeps a finished stage, unless it holds what cannot be written down."""
        if self.directory is None:
            return
        tensors: dict[str, Any] = {}
        try:
            tree = json.dumps(encode(value, tensors))
        except Unstorable:
            return
        file = f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.safetensors"
        path = write_atomically(self.directory / file, lambda path: save_file(tensors, str(path), {"tree": tree}))
        self._entries[key] = {"file": file, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        self._write()

    def any(self) -> bool:
        """Whether any stage is kept."""
        return bool(self._entries)

    def remove(self) -> None:
        """Forgets everything; called when the run is done."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
        if content["schema"] != SCHEMA:
            raise DataError(f"`{path}` must have schema {SCHEMA}, got {content['schema']}; start the run again.")
        if not all(isinstance(e["file"], str) and isinstance(e["sha256"], str) for e in content["stages"].values()):
            raise TypeError("stages must name files and their hashes")
        if any(Path(e["file"]).name != e["file"] for e in content["stages"].values()):
            raise ValueError("a stage lies outside the directory")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"`{path.parent.parent}` holds no run that can go on: {error}; start it again.") from error
    return content


def read_plan(directory: Path) -> dict[str, Any]:
    """What the unfinished run in a run directory was about: `command`, `words`, `where` and `version`."""
    content = _read(directory / NAME / "manifest.json")
    words = content.get("words")
    if not isinstance(words, list) or not all(isinstance(w, str) for w in words):
        raise DataError(f"`{directory}` holds no run that can go on: no words of a command; start it again.")
    return content


def fingerprint(*values: Any) -> str:
    """A short text that differs where settings or data do; of arrays the shape and the first few samples count."""
    if current_stages().directory is None:
        return ""
    digest = hashlib.sha256()
    for value in values:
        if hasattr(value, "shape") and hasattr(value, "__getitem__"):
            head = value[:4]
            rows = head.detach().cpu().numpy() if hasattr(head, "detach") else head
            digest.update(f"{tuple(value.shape)}".encode() + np.ascontiguousarray(rows).tobytes())
        else:
            digest.update(re.sub(r" at 0x[0-9a-f]+", "", repr(value)).encode())
    return digest.hexdigest()[:16]


_stages: ContextVar[Stages | None] = ContextVar("atlasd_stages", default=None)
_resuming: ContextVar[bool] = ContextVar("atlasd_resuming", default=False)


_latest: list[Stages] = []  # for the thread that watches for interrupts, which context variables do not reach


def how_to_resume() -> str | None:
    """The command that goes on with the latest run of this process; `None` where nothing is kept."""
    for stages in _latest:
        if stages.directory is not None and stages.directory.exists() and stages.any():
            return f"atlasd resume {shlex.quote(str(stages.directory.parent))}"
    return None


def current_stages() -> Stages:
    """The stages of the run that is under way; ones that keep nothing where there is none."""
    return _stages.get() or Stages()


@contextmanager
def resuming() -> Iterator[None]:
    """Lets the next run go on from what it finds."""
    token = _resuming.set(True)
    try:
        yield
    finally:
        _resuming.reset(token)


@contextmanager
def keeping(directory: Path, words: Sequence[str], version: str) -> Iterator[Stages]:
    """Keeps the stages of one run, alone in its directory; they go when the run ends well.

    Arguments:
        directory: The run directory.
        words: The command line that does this run, without the name of the program.
        version: The version of the program.
    """
    plan = {"version": version, "words": list(words), "where": os.getcwd()}
    with _alone(directory):
        go_on = _resuming.get()
        if go_on:
            kept = read_plan(directory)
            if kept.get("version") != version or kept["words"] != plan["words"]:
                raise DataError(
                    f"`{directory}` must hold the same run, atlasd {version} {' '.join(words)}, got "
                    f"{kept.get('version')} {' '.join(kept['words'])}; start it again."
                )
        for part in directory.glob(".*.part"):  # what a killed process was writing
            part.unlink(missing_ok=True)
        stages = Stages(directory / NAME, plan, fresh=not go_on)
        token = _stages.set(stages)
        _latest[:] = [stages]
        try:
            yield stages
        except BaseException:
            if not stages.any():  # nothing that could be taken up again
                stages.remove()
            raise
        finally:
            _stages.reset(token)
        stages.remove()


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Holds the lock of a run directory; the system frees it when the process ends, however it does."""
    path = directory / ".lock"
    new = [each for each in (directory, *directory.parents) if not each.exists()]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle = path.open("a+")
    except OSError as error:
        raise DataError(f"`{directory}` could not be written: {error}; choose another directory.") from error
    with handle:
        if not _lock(handle):
            handle.seek(0)
            raise DataError(
                f"`{directory}` must not be written by two runs, got process {handle.read().strip() or 'unknown'} at "
                "work there; wait for it, or choose another directory."
            )
        handle.truncate(0)
        handle.write(f"{os.getpid()}\n")
        handle.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
                for each in new:
                    each.rmdir()  # only where nothing was written


def _lock(handle: Any) -> bool:
    try:
        import fcntl
    except ImportError:  # not on this system: the number of the process must do
        handle.seek(0)
        other = handle.read().strip()
        return not other.isdigit() or not _alive(int(other))
    for _ in range(3):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            time.sleep(0.05)
    return False


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True
