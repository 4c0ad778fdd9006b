"""Ctrl-C during a long call into compiled code."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from atlasd.runtime.interrupt import prompt_interrupt

LONG = """
import signal, sys, time, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start with it ignored
from atlasd.runtime.interrupt import prompt_interrupt
torch.set_num_threads(1)
matrix = torch.rand(3000, 3000)
try:
    with prompt_interrupt(lambda: "stopped", 0.3):
        print("ready", flush=True)
        {work}
except KeyboardInterrupt:
    sys.exit("heeded")
"""


@pytest.mark.parametrize(
    "work, status, words",
    [("torch.linalg.svd(matrix)", 130, "stopped"), ("time.sleep(20)", 1, "heeded")],
)
def test_an_interrupt_ends_the_process_in_time(work, status, words):
    command = [sys.executable, "-c", LONG.format(work=work)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    started = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, shown = process.communicate(timeout=60)
    assert process.returncode == status and shown.strip() == words
    assert time.monotonic() - started < 10  # half a second on an idle machine; the sleep is longer


def test_nothing_is_left_behind():
    before = threading.active_count()
    with prompt_interrupt(lambda: ""):
        assert threading.active_count() == before + 1
    assert threading.active_count() == before
    assert signal.set_wakeup_fd(-1) == -1
