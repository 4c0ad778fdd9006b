"""`python -m atlasd`."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading


def main() -> int:
    """The program, also where it is interrupted while its modules are still being imported."""
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Threads that wait by spinning take the cores from each other: six times the processor time on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        from atlasd.cli import main as program
        from atlasd.runtime.memory import keep_freed_memory

        keep_freed_memory()  # this process is ours; the library leaves that of others as it is
        return program()
    except KeyboardInterrupt:
        print("atlasd: interrupted; run the same command again.", file=sys.stderr)
        return 130
    finally:
        atexit.register(_heed_no_more)  # registered last, so done first


def _heed_no_more() -> None:
    """The work is done: a signal while libraries tidy up must not change the status."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
