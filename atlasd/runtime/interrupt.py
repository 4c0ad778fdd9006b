"""Ctrl-C and SIGTERM that are heeded in time, also where a long call into compiled code keeps Python from noticing."""

from __future__ import annotations

__all__ = ["prompt_interrupt"]

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STATUS = 130


@contextmanager
def prompt_interrupt(message: Callable[[], str], seconds: float = 0.7) -> Iterator[None]:
    """Lets SIGTERM raise `KeyboardInterrupt` as Ctrl-C does, and ends the process if that is not heeded in some time.

    Python raises it between two of its own instructions; a large matrix may lie between them. Files are written whole
    or not at all, so nothing is lost that was not lost anyway.

    Arguments:
        message: Called before ending; gives what to say on standard error.
        seconds: How long to wait for the usual way.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard, told = os.pipe()
    os.set_blocking(told, False)
    left = threading.Event()

    def watch() -> None:
        while signals := os.read(heard, 64):
            if {signal.SIGINT, signal.SIGTERM} & set(signals) and not left.wait(seconds):
                try:
                    sys.stderr.write(message() + "\n")
                    sys.stderr.flush()
                finally:
                    os._exit(STATUS)

    terminated = signal.signal(signal.SIGTERM, signal.default_int_handler)
    earlier = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, name="interrupts", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(earlier)
        signal.signal(signal.SIGTERM, terminated)
        os.close(told)
        watcher.join()
        os.close(heard)
