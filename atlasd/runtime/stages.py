"""Finished stages of a run, kept in its directory: a run that was killed goes on from there."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from atlasd.errors import DataError
from atlasd.runtime.codec import Unstorable, decode, encode
from atlasd.runtime.content import MOST_TENSORS, digest_of, read_json, unpack_tensors, write_tensors
from atlasd.runtime.context import current_context, within
from atlasd.runtime.files import SCRATCH, is_litter, read_bytes, sole_owner, sweep, write_atomically

T = TypeVar("T")
SCHEMA = 1
NAME = "stages"
"""Where in a run directory stages stand until the run is done."""
MARKS = ("result.json", "zoo.json", "compare.json")
"""Files by which a finished run is known."""


class Stages:
    """Keeps what is finished under the path of stages that led to it; without a directory, nothing is kept.

    Arguments:
        plan: What the work is: plain values that tell one run from another.
        fresh: Drops what an earlier run left there.
        say: Shows a message to the user.
    """

    def __init__(
        self,
        directory: Path | None = None,
        plan: dict[str, Any] | None = None,
        *,
        fresh: bool = True,
        say: Callable[[str], object] = lambda _: None,
    ) -> None:
        self.directory = directory
        self._say = say
        self._entered: list[str] = []
        self._before: list[str] = []
        self._plan = {"schema": SCHEMA, **(plan or {})}
        self._entries: dict[str, dict[str, str]] = {}
        self._path: list[str] = []
        self._counts: dict[str, int] = {}
        if directory is None:
            return
        if directory.is_symlink():
            raise DataError(f"`{directory}` must be a directory, got a symbolic link; remove it.")
        if fresh:
            shutil.rmtree(directory, ignore_errors=True)
        else:
            for each in directory.iterdir():
                if each.is_symlink():  # nothing that goes on writes or reads through one
                    each.unlink()
            kept = _read(directory / "manifest.json")
            self._entries, self._before = dict(kept["stages"]), list(kept["entered"])
            sweep(directory)
        self._write()

    def _write(self) -> None:
        if self.directory is not None:
            entered = [*self._entered, *self._before]
            text = json.dumps({**self._plan, "entered": entered, "stages": self._entries}, indent=1) + "\n"
            write_atomically(self.directory / "manifest.json", lambda path: path.write_text(text))

    def key(self, name: str) -> str:
        """The path of the next stage of that name; the same work gives the same paths in the same order."""
        path = "/".join([*self._path, name])
        self._counts[path] = self._counts.get(path, -1) + 1
        return f"{path}.{self._counts[path]}"

    def enter(self, name: str) -> None:
        """Begins a part of the run, such as one discovery of several; what follows is kept under its name.

        The name tells the data apart. Where the run was stopped in parts of other names, the data have changed since.
        """
        self._path = []
        self._path = [self.key(name)]
        if self.directory is None:
            return
        entered = self._path[0]
        if entered in self._before:
            self._before = self._before[self._before.index(entered) + 1 :]
        elif self._before:
            self._say("the data have changed since the run was stopped; it starts anew")
            self._before, self._entries = [], {k: e for k, e in self._entries.items() if _part(k) in self._entered}
        self._entered.append(entered)
        self._write()

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
            data = read_bytes(path, MOST_TENSORS, follow=False)
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                return False, None
            tensors, metadata = unpack_tensors(path, data)
            return True, decode(json.loads(metadata["tree"]), tensors)
        except Exception:  # whatever is wrong with it, it is done again
            return False, None

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
        digest = write_tensors(self.directory / file, tensors, {"tree": tree})
        self._entries[key] = {"file": file, "sha256": digest}
        self._write()

    def any(self) -> bool:
        """Whether any stage is kept."""
        return bool(self._entries)

    def leave(self) -> None:
        """Called when the run ends early: forgets everything if there is nothing to take up again.

        The manifest stays where files of the unfinished run stand beside it, so that they are known as such.
        """
        if self.directory is None or self.any():
            return
        beside = {p.name for p in self.directory.parent.iterdir() if not is_litter(p.name)} - {NAME}
        if not beside or beside & set(MARKS):
            self.remove()

    @property
    def hint(self) -> str | None:
        """The command that goes on with the run; `None` where nothing is kept."""
        if self.directory is None or not self.directory.exists() or not self.any():
            return None
        return f"atlasd resume {shlex.quote(str(self.directory.parent))}"

    def abandon(self) -> None:
        """Leaves the directory as it should be left by a process that ends at once."""
        if self.directory is not None:
            self.leave()
            sweep(self.directory.parent, lock=True)

    def remove(self) -> None:
        """Forgets everything; called when the run is done."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)


def _part(key: str) -> str:
    """The part of the run that a stage belongs to."""
    return key.split("/", 1)[0]


def _read(path: Path) -> dict[str, Any]:
    try:
        content = read_json(path, follow=False)
        if content["schema"] != SCHEMA:
            raise DataError(f"`{path}` must have schema {SCHEMA}, got {content['schema']!r}; start the run again.")
        if not all(isinstance(e["file"], str) and isinstance(e["sha256"], str) for e in content["stages"].values()):
            raise TypeError("stages must name files and their hashes")
        if any(Path(e["file"]).name != e["file"] for e in content["stages"].values()):
            raise ValueError("a stage lies outside the directory")
        entered = content.setdefault("entered", [])
        if not isinstance(entered, list) or not all(isinstance(e, str) for e in entered):
            raise TypeError("parts of the run must be texts")
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
    """A text that differs where settings or any number of the data do; empty where nothing is kept."""
    return "" if current_stages().directory is None else digest_of(*values)


def current_stages() -> Stages:
    """The stages of the run that is under way; ones that keep nothing where there is none."""
    return current_context().stages or Stages()


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A directory for large temporary arrays: in that of the run, whose next owner removes what a killed one left."""
    kept = current_stages().directory
    place = None if kept is None else kept.parent
    with TemporaryDirectory(prefix="atlasd-" if place is None else SCRATCH, dir=place) as name:
        yield Path(name)


def without_stages() -> AbstractContextManager[None]:
    """Keeps nothing inside: for a task that is kept as a whole."""
    return within(stages=None)


def resuming(where: Path = Path()) -> AbstractContextManager[None]:
    """Lets the next run go on from what it finds.

    Arguments:
        where: The directory from which its files were named.
    """
    return within(origin=where)


def located(name: str | Path) -> Path:
    """The path of a file that the settings of a run name, also where the run goes on in another directory."""
    return (current_context().origin or Path()) / name


@contextmanager
def keeping(
    directory: Path, words: Sequence[str], version: str, say: Callable[[str], object] = lambda _: None
) -> Iterator[Stages]:
    """Keeps the stages of one run, alone in its directory; they go when the run ends well.

    Arguments:
        words: The command line that does this run, without the name of the program.
        version: The version of the program.
        say: Shows a message to the user.
    """
    origin = current_context().origin
    where = Path.cwd() if origin is None else origin
    plan = {"version": version, "words": list(words), "where": str(where)}
    with sole_owner(directory):
        if origin is not None:
            kept = read_plan(directory)
            if kept.get("version") != version or kept["words"] != plan["words"]:
                raise DataError(
                    f"`{directory}` must hold the same run, atlasd {version} {' '.join(words)}, got "
                    f"{kept.get('version')} {' '.join(kept['words'])}; start it again."
                )
        elif (directory / NAME / "manifest.json").is_file():
            say(f"an unfinished run in {directory} is replaced; `atlasd resume` would have gone on with it")
        sweep(directory)
        stages = Stages(directory / NAME, plan, fresh=origin is None, say=say)
        unfinished = current_context().unfinished
        unfinished[:] = [stages]
        try:
            with within(stages=stages):
                yield stages
        except BaseException:
            stages.leave()
            raise
        stages.remove()
        unfinished.clear()
