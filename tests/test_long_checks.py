"""The checks of `docs/safety.md` that take minutes: kills at random moments, fuzzing, and memory of a long life."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["kills.py", "--kills", "40"], ["fuzz.py", "--mutants", "2400"], ["long_lived.py", "--times", "100"]],
    ids=lambda words: words[0],
)
def test_passes(words):
    command = [sys.executable, str(BENCHMARKS / words[0]), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=7200)
    assert done.returncode == 0, done.stdout + done.stderr
