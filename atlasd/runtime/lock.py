"""One process at a time in a run directory."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from atlasd.errors import DataError
from atlasd.runtime.files import open_plain

_TRIES = 20


@contextmanager
def sole_owner(directory: Path) -> Iterator[None]:
    """Holds the lock of a directory, which is made if needed; the system frees it when the process ends, however."""
    path = directory / ".lock"
    new = [each for each in (directory, *directory.parents) if not each.exists()]
    try:
        descriptor = _acquire(path)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataError(f"`{path}` must be a plain file, got a symbolic link; remove it.") from error
        raise DataError(f"`{directory}` could not be written: {error}; choose another directory.") from error
    try:
        yield
    finally:
        # The name goes before the lock does: whoever waits for this file finds that it has none any more.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)
        with suppress(OSError):
            for each in new:
                each.rmdir()  # only where nothing was written


def _acquire(path: Path) -> int:
    """A descriptor of the file that bears the name of the lock, locked."""
    for _ in range(_TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = open_plain(path, os.O_RDWR | os.O_CREAT, follow=False)
        except FileNotFoundError:  # the directory went with its last owner
            continue
        try:
            owner = os.read(descriptor, 32).decode(errors="replace").strip()
            if not _lock(descriptor):
                raise DataError(
                    f"`{path.parent}` must not be written by two runs, got process {owner or 'unknown'} at work there; "
                    "wait for it, or choose another directory."
                )
            # Between opening and locking the last owner may have removed the file: then the lock is on no name.
            if _is_still(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.lseek(descriptor, 0, os.SEEK_SET)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    raise DataError(f"`{path.parent}` must not be written by two runs, got others that come and go; wait for them.")


def _is_still(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> bool:
    for _ in range(3):
        with suppress(OSError):
            if os.name == "posix":
                import fcntl

                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                import msvcrt

                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
            return True
        time.sleep(0.05)
    return False
