"""Devices and random streams."""

import subprocess
import sys

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.runtime.context import find_device, on_device
from atlasd.runtime.random import stream
from atlasd.studies import EXPERIMENTS
from atlasd.studies.record import plan_run

absent = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")


@absent
@pytest.mark.parametrize("name", ["cuda", "cuda:1", "mps", "meta"])
def test_a_device_that_is_not_there(name):
    with pytest.raises(InputError, match=f"`device` must be one that this machine has.*'{name}'.*write device=cpu"):
        find_device(name)


def test_no_device_at_all():
    with pytest.raises(InputError, match="`device` must be a name such as cpu"):
        find_device("abacus")


@absent
def test_discover_says_so():
    with pytest.raises(InputError, match="`device` must be one that this machine has"):
        ad.discover(torch.randn(50, 2), function=lambda x: x.norm(dim=-1), device="cuda", progress=False)


@absent
@pytest.mark.parametrize("name", [e.name for e in EXPERIMENTS])
def test_every_run_says_so_before_it_starts(name, tmp_path):
    with pytest.raises(InputError, match="`device` must be one that this machine has"):
        plan_run(name, ["device=cuda"], out=tmp_path / "run")
    assert plan_run(name, out=tmp_path / "run").config.device == "cpu"
    assert not (tmp_path / "run").exists()


def test_the_cpu_by_name_changes_nothing():
    with on_device("cpu") as device:
        drawn = torch.randn(3, generator=stream(0, "device"))
    assert device.type == "cpu" and torch.equal(drawn, torch.randn(3, generator=stream(0, "device")))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_group():
    x = torch.randn(400, 2, generator=stream(0, "data"))
    found = ad.discover(x, function=lambda p: p.norm(dim=-1), device="cuda", progress=False)
    assert found.group.name == "O(2)" and found.algebra.basis.device.type == "cpu"


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
