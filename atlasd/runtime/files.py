"""Files that are whole or absent, read only if they are what they should be; one process in a run directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from atlasd.errors import DataError

NO_FOLLOW: int = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: int = getattr(os, "O_NONBLOCK", 0)
SCRATCH = ".scratch-"
"""How directories of temporary arrays are called."""
_LITTER = re.compile(r"\..*\.part|\.scratch-.*|\.lock")


def write_atomically(path: Path, write: Callable[[Path], Any]) -> Path:
    """Lets `write` fill a temporary file beside `path`, then renames it into place.

    The temporary file has a random name and is created by this call: a link that somebody put there is not followed.
    The mode is what the umask leaves of 0666, whatever library writes the file.

    Arguments:
        path: Where the file is to stand.
        write: Fills the file whose path it is given.
    """
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        created = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW, 0o666)
        try:
            mode = stat.S_IMODE(os.fstat(created).st_mode)
        finally:
            os.close(created)
        write(temporary)
        os.chmod(temporary, mode)  # some libraries replace the file by one of their own
        with temporary.open("rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise DataError(f"`{path}` could not be written: {error}; {_remedy(error)}.") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return path


def _remedy(error: OSError) -> str:
    return "make room and go on" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "choose another directory"


def sync_directory(directory: Path) -> None:
    """Makes a rename in the directory survive a loss of power, where the system lets directories be synced."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def open_plain(path: Path, flags: int = os.O_RDONLY, *, follow: bool = True) -> int:
    """A descriptor of a regular file; a pipe or a device is refused, and so is a link unless `follow`.

    Arguments:
        follow: Whether a symbolic link is followed, and a file with several names accepted.
    """
    # A pipe would make a plain open wait for ever.
    descriptor = os.open(path, flags | NO_WAIT | (0 if follow else NO_FOLLOW), 0o666)
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or (not follow and info.st_nlink > 1):
        os.close(descriptor)
        kind = "a file with other names" if stat.S_ISREG(info.st_mode) else "a pipe, device or directory"
        raise DataError(f"`{path}` must be a plain file, got {kind}; remove it.")
    return descriptor


def read_bytes(path: Path, most: int, *, follow: bool = True) -> bytes:
    """The content of a regular file of at most `most` bytes."""
    with os.fdopen(open_plain(path, follow=follow), "rb") as handle:
        size = os.fstat(handle.fileno()).st_size
        if size > most:
            raise DataError(f"`{path}` must have at most {most} bytes, got {size}; is it the right file?")
        return handle.read(most + 1)


def is_litter(name: str) -> bool:
    """Whether only a process that was killed leaves a file of that name.

    Example:
        >>> is_litter(".result.json.0123456789abcdef.part"), is_litter("result.json")
        (True, False)
    """
    return _LITTER.fullmatch(name) is not None


def sweep(directory: Path, *, lock: bool = False) -> None:
    """Removes what a killed process left in the directory; links are removed, not followed."""
    with contextlib.suppress(OSError):
        for entry in list(os.scandir(directory)):
            if not is_litter(entry.name) or (entry.name == ".lock" and not lock):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


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
        # The name goes before the lock does: a process that waits for this file finds that it has no name any more.
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
