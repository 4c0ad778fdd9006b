"""Work is spread over the cores where there is enough of it and nobody chose otherwise."""

import os

import pytest

from atlasd.runtime import executor
from atlasd.runtime.executor import all_cores, alone, current_workers


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    monkeypatch.setattr(executor, "usable_cores", lambda: 4)


def test_many_blocks_take_processes():
    with all_cores(8):
        assert current_workers().executor is not None
        found = current_workers().map(os.getpid, [(), ()], ["a", "b"])
    assert os.getpid() not in found
    assert current_workers().executor is None


def test_little_work_stays_here():
    with all_cores(3):
        assert current_workers().executor is None


def test_a_choice_is_kept():
    with alone(), all_cores(8):
        assert current_workers().executor is None
