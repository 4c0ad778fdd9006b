"""Ctrl-C that is heeded in time, also where a long call into compiled code keeps Python from noticing."""

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
    """Ends the process if an interrupt has not been heeded after some time.

    Python raises `KeyboardInterrupt` between two of its own instructions; a large matrix may lie between them. Files
    are written whole or not at all, so nothing is lost that was not lost anyway.

    Arguments:
        message: What to say on standard error before ending.
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
            if signal.SIGINT in signals and not left.wait(seconds):
                sys.stderr.write(message() + "\n")
                sys.stderr.flush()
                os._exit(STATUS)

    earlier = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    watcher = threading.Thread(target=watch, name="interrupts", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        left.set()
        signal.set_wakeup_fd(earlier)
        os.close(told)
        watcher.join()
        os.close(heard)
