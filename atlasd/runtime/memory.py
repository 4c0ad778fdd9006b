"""How much memory this process holds, and the most it has held."""

from __future__ import annotations

__all__ = ["free_megabytes", "peak_megabytes", "reset_peak", "resident_megabytes"]

import contextlib
import sys
from pathlib import Path

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_MEMORY = Path("/proc/meminfo")


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
