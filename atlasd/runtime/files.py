"""Files that are either whole or absent, and files that are read only if they are what they should be."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable
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
        path: The file.
        flags: How to open it.
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
