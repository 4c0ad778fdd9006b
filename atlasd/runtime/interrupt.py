"""Ctrl-C and SIGTERM that are heeded in time, also where a long call into compiled code keeps Python from noticing."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STATUS = 130
_HEEDED = (signal.SIG_DFL, signal.default_int_handler)


@contextmanager
def prompt_interrupt(message: Callable[[], str], seconds: float = 0.7) -> Iterator[Callable[[], bool]]:
    """Lets SIGTERM raise `KeyboardInterrupt` as Ctrl-C does, and ends the process if that is not heeded in some time.

    Python raises it between two of its own instructions; a large matrix may lie between them. Files are written whole
    or not at all, so nothing is lost that was not lost anyway.

    Arguments:
        message: Called before ending; gives what to say on standard error.
        seconds: How long to wait for the usual way.

    Yields:
        Tells whether an interrupt has come.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    left, came = threading.Event(), threading.Event()

    def stop(number: int, frame: object) -> None:
        came.set()
        raise KeyboardInterrupt

    def watch() -> None:
        while signals := os.read(heard, 64):
            if {signal.SIGINT, signal.SIGTERM} & set(signals) and not left.wait(seconds):
                try:
                    sys.stderr.write(message() + "\n")
                    sys.stderr.flush()
                finally:
                    os._exit(STATUS)

    # What a shell has told its background jobs to ignore stays ignored.
    before = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) in _HEEDED}
    for each in before:
        signal.signal(each, stop)
    earlier = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, name="interrupts", daemon=True)
    watcher.start()
    try:
        yield came.is_set
    finally:
        left.set()
        signal.set_wakeup_fd(earlier)
        for each, handler in before.items():
            signal.signal(each, handler)
        os.close(told)
        watcher.join()
        os.close(heard)
