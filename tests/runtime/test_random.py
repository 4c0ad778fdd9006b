"""Named streams: the seed and the purpose, and nothing else."""

import subprocess
import sys

import pytest
import torch

from atlasd.runtime.random import stream


def draw(*names):
    return torch.rand(4, generator=stream(*names)).tolist()


def test_same_seed_and_purpose_same_numbers():
    assert draw(0, "data") == draw(0, "data")


@pytest.mark.parametrize("other", [(1, "data"), (0, "fit"), (0, "data", 1), (0,), (0, "dat", "a")])
def test_another_seed_or_purpose_other_numbers(other):
    assert draw(0, "data") != draw(*other)


def test_the_global_seed_neither_matters_nor_moves():
    torch.manual_seed(5)
    first = draw(0, "data")
    state = torch.get_rng_state()
    torch.manual_seed(6)
    assert draw(0, "data") == first
    torch.manual_seed(5)
    assert torch.equal(torch.get_rng_state(), state)


def test_same_in_another_process():
    code = (
        "import torch; from atlasd.runtime.random import stream; "
        "print(torch.rand(4, generator=stream(0, 'data')).tolist())"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == str(draw(0, "data"))
