"""How much memory this process holds, the most it has held, and what becomes of memory that is freed."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_MEMORY = Path("/proc/meminfo")
_THREAD = 64.0
"""MB that a thread may reserve."""
# From malloc.h of the GNU C library: size from which memory is mapped for itself, free memory that is given back, and
# how much more is asked for at once.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


def peak_megabytes() -> float:
    """The most memory held since the start or since `reset_peak`, in MB.

    Example:
        >>> peak_megabytes() > 1
        True
    """
    # Not getrusage where it can be helped: a new process starts with the peak of the one that made it.
    return _status("VmHWM") or _usage()


def resident_megabytes() -> float:
    """Memory held now, in MB; the peak where the system does not tell."""
    return _status("VmRSS") or _usage()


def free_megabytes() -> float:
    """Memory that could still be taken, in MB; 4,000 where the system does not tell."""
    return _status("MemAvailable", _MEMORY) or 4000.0


def reset_peak() -> None:
    """Forgets the peak, where the system allows it."""
    with contextlib.suppress(OSError):
        _CLEAR.write_text("5")


@contextmanager
def bounded_memory(megabytes: float) -> Iterator[None]:
    """Lets this process take at most so many more MB inside; beyond them allocations fail, with `MemoryError`.

    The system sees to that, also in compiled code. Does nothing on systems that cannot, and in other threads than the
    first, since the limit is one of the process.
    """
    held = _status("VmData")
    if not held or math.isinf(megabytes) or threading.current_thread() is not threading.main_thread():
        yield
        return
    import resource

    soft, hard = before = resource.getrlimit(resource.RLIMIT_DATA)
    # Whatever is imported inside may start a thread for each core, with a stack and buffers.
    room = held + megabytes + _THREAD * (os.cpu_count() or 1)
    limits = [int(room * 2**20), *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def keep_freed_memory(limit: int = 1 << 28) -> bool:
    """Lets this process keep freed memory up to `limit` bytes, in place of giving it back and asking again.

    Searches and trainings make and free the same large tensors in every step; with pages that are given back, a tenth
    to a half of their time goes into page faults. Does nothing where the C library is not GNU's.

    Returns:
        Whether it could be done.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    settings = ((_MMAP_THRESHOLD, limit), (_TRIM_THRESHOLD, limit), (_TOP_PAD, limit // 8))
    return all(mallopt(which, value) == 1 for which, value in settings)


def _status(name: str, file: Path = _STATUS) -> float:
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), 0.0)


def _usage() -> float:
    try:
        import resource
    except ImportError:
        return 0.0
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / (2**20 if sys.platform == "darwin" else 1024)
