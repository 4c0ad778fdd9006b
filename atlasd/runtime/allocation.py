"""How the process handles the memory that large tensors leave behind."""

from __future__ import annotations

__all__ = ["keep_freed_memory"]

import ctypes
import sys

# From malloc.h of the GNU C library: size from which memory is mapped for itself, free memory that is given back, and
# how much more is asked for at once.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3


def keep_freed_memory(limit: int = 1 << 30) -> bool:
    """Lets this process keep freed memory up to `limit` bytes, in place of giving it back and asking again.

    Training makes and frees the same large tensors in every step; with pages that are given back, a third of its time
    goes into page faults. Does nothing where the C library is not GNU's.

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
