"""Finished stages: kept whole, used once more, and never by the wrong run."""

import json
import os

import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.errors import DataError
from atlasd.prediction.networks import ChartConv, VectorMLP
from atlasd.prediction.neural import Architecture
from atlasd.runtime.codec import Unstorable, decode, encode
from atlasd.runtime.content import digest_of
from atlasd.runtime.files import is_litter
from atlasd.runtime.random import stream
from atlasd.runtime.stages import Stages, current_stages, fingerprint, keeping, resuming, scratch_directory

TURN = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
WORDS = ["run", "fake"]


def through(value):
    tensors = {}
    return decode(json.loads(json.dumps(encode(value, tensors))), tensors)


def test_values_come_back():
    value = {"a": (1, 2.5, None, True, "x"), "b": [torch.arange(3), range(2, 5)], "c": {}}
    back = through(value)
    assert back["a"] == value["a"] and back["b"][1] == range(2, 5) and back["c"] == {}
    assert torch.equal(back["b"][0], torch.arange(3))
    group = through(Group(LieAlgebra(TURN), torch.stack([torch.eye(2), torch.diag(torch.tensor([1.0, -1.0]))])))
    assert group.name == "O(2)"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_networks_come_back(dtype):
    for kind, shape, x in (
        (VectorMLP, (3, 2), torch.randn(5, 1, 3, generator=stream(0, "x"))),
        (ChartConv, (2, 1, 1, (5, 5)), torch.randn(5, 2, 1, 13, 13, generator=stream(0, "x"))),
    ):
        make = Architecture(kind, shape, {"hidden": (8,)} if kind is VectorMLP else {"hidden": 4})
        network = make(stream(1, "weights")).to(dtype).eval()
        network.architecture = make
        assert torch.equal(through(network)(x.to(dtype)), network(x.to(dtype)))


def test_functions_are_not_written():
    with pytest.raises(Unstorable):
        encode(lambda x: x, {})


@pytest.mark.parametrize(
    "tree",
    [{"$": "os.system", "at": [["command", "true"]]}, {"$": "class", "at": "Popen"}, {"$": "tensor"}, [1], {"at": 3}],
)
def test_only_known_kinds_are_read(tree):
    with pytest.raises(DataError, match="damaged or of another version"):
        decode(tree, {})


def run(directory, done, fail=False):
    with keeping(directory, WORDS, "1") as stages:
        assert current_stages() is stages
        stages.enter("a")
        first = stages.do("first", lambda: done.append(1) or torch.ones(2))
        second = stages.do("second", lambda: stages.do("inner", lambda: done.append(2) or 2))
        third = stages.do("second", lambda: done.append(3) or 3)
        if fail:
            raise KeyboardInterrupt
        return first.sum().item(), second, third


def test_what_is_finished_is_not_done_again(tmp_path):
    done = []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", done, fail=True)
    assert done == [1, 2, 3] and (tmp_path / "run" / "stages").is_dir()
    with resuming():
        assert run(tmp_path / "run", done) == (2.0, 2, 3)
    assert done == [1, 2, 3] and not list((tmp_path / "run").iterdir())
    assert run(tmp_path / "run", done) == (2.0, 2, 3) and done == [1, 2, 3] * 2
    assert current_stages().directory is None


def test_damaged_stages_are_done_again(tmp_path):
    done = []
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", done, fail=True)
    for file in (tmp_path / "run" / "stages").glob("*.safetensors"):
        file.write_bytes(file.read_bytes()[:-1] + b"!")
    with resuming():
        assert run(tmp_path / "run", done) == (2.0, 2, 3)
    assert done == [1, 2, 3] * 2


@pytest.mark.parametrize(
    "change",
    [{"schema": 2}, {"version": "0"}, {"words": ["run", "other"]}, {"words": 3}, {"stages": {"a": {"file": "../x"}}}],
)
def test_other_runs_are_refused(tmp_path, change):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", [], fail=True)
    manifest = tmp_path / "run" / "stages" / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), **change}))
    with resuming(), pytest.raises(DataError, match="start"):
        run(tmp_path / "run", [])


def test_a_failed_run_without_stages_leaves_nothing(tmp_path):
    with pytest.raises(ValueError), keeping(tmp_path / "run", WORDS, "1"):
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_two_runs_in_one_directory(tmp_path):
    expected = pytest.raises(DataError, match=f"two runs, got process {os.getpid()}")
    with keeping(tmp_path, WORDS, "1"), expected, keeping(tmp_path, WORDS, "1"):
        pass
    with keeping(tmp_path, WORDS, "1"):
        pass


def test_a_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="could not be written"), keeping(tmp_path / "file" / "run", WORDS, "1"):
        pass


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    with pytest.raises(DataError, match="No space left on device"), keeping(tmp_path / "run", WORDS, "1") as stages:
        monkeypatch.setattr("pathlib.Path.write_bytes", full)
        stages.do("first", lambda: torch.ones(2))


def test_fingerprints_tell_data_apart(tmp_path):
    assert fingerprint(torch.ones(3)) == ""
    with keeping(tmp_path, WORDS, "1"):
        x = torch.ones(6, 2)
        assert fingerprint(x, 1) == fingerprint(x.numpy(), 1) != fingerprint(2 * x, 1)
        assert fingerprint(Stages) == fingerprint(Stages)


class Chunked:
    """An array that is read in parts, as one in a file is."""

    def __init__(self, array, rows):
        self.array, self.rows, self.shape, self.most = array, rows, array.shape, 0

    def __getitem__(self, index):
        self.most = max(self.most, len(self.array[index]))
        return self.array[index]


def test_every_number_decides(tmp_path):
    with keeping(tmp_path, WORDS, "1"):
        x = torch.randn(5000, 3, generator=stream(0, "x"))
        before = fingerprint(x, {"seed": 1}, x.sum)
        changed = x.clone()
        changed[4321, 1] += 1e-6
        assert fingerprint(changed, {"seed": 1}, x.sum) != before == fingerprint(x.clone(), {"seed": 1}, x.sum)
        chunked = Chunked(x, 256)
        assert fingerprint(chunked) == fingerprint(Chunked(x, 256)) != fingerprint(Chunked(changed, 256))
        assert chunked.most == 256
        inside = LieAlgebra(torch.eye(40).expand(30, 40, 40).clone())
        other = LieAlgebra(inside.basis.clone())
        other.basis[15, 20, 20] = 3.0  # where the text of a tensor has dots
        assert fingerprint(inside) != fingerprint(other)


def stopped(directory, name, done, said, fail):
    with keeping(directory, WORDS, "1", said.append) as stages:
        stages.enter(name)
        stages.do("first", lambda: done.append(name) or 1)
        stages.enter("always")
        stages.do("first", lambda: done.append("always") or 1)
        if fail:
            raise KeyboardInterrupt


def test_changed_data_are_said_and_start_anew(tmp_path):
    done, said = [], []
    with pytest.raises(KeyboardInterrupt):
        stopped(tmp_path / "run", "old", done, said, fail=True)
    with resuming(), pytest.raises(KeyboardInterrupt):
        stopped(tmp_path / "run", "old", done, said, fail=True)
    assert done == ["old", "always"] and not said
    with resuming():
        stopped(tmp_path / "run", "new", done, said, fail=False)
    assert done == ["old", "always", "new", "always"]
    assert said == ["the data have changed since the run was stopped; it starts anew"]


def test_replacing_an_unfinished_run_is_said(tmp_path):
    said = []
    with pytest.raises(KeyboardInterrupt):
        stopped(tmp_path / "run", "old", [], said, fail=True)
    stopped(tmp_path / "run", "old", [], said, fail=False)
    assert len(said) == 1 and "is replaced; `atlasd resume` would have gone on" in said[0]


def test_links_in_place_of_stages_are_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "manifest.json").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "stages").symlink_to(elsewhere)
    with pytest.raises(DataError, match="got a symbolic link"), keeping(tmp_path / "run", WORDS, "1"):
        pass
    assert (elsewhere / "manifest.json").read_text() == "precious"
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "other", [], fail=True)
    for file in (tmp_path / "other" / "stages").glob("*.safetensors"):
        file.unlink()
        file.symlink_to("/dev/zero")  # would be read for ever
    done = []
    with resuming():
        run(tmp_path / "other", done)
    assert done == [1, 2, 3]


def test_files_of_an_unfinished_run_are_known_as_such(tmp_path):
    with pytest.raises(KeyboardInterrupt), keeping(tmp_path / "run", WORDS, "1"):
        (tmp_path / "run" / "figure.svg").write_text("half of it")
        raise KeyboardInterrupt
    assert (tmp_path / "run" / "stages" / "manifest.json").is_file()


def test_scratch_of_a_run_lies_in_its_directory(tmp_path):
    """So that the next run there removes what a killed one left."""
    with keeping(tmp_path / "run", ["run", "x"], "1"), scratch_directory() as inside:
        assert inside.parent == tmp_path / "run" and is_litter(inside.name)
        (tmp_path / "run" / ".scratch-old").mkdir()
    assert not inside.exists()
    with keeping(tmp_path / "run", ["run", "x"], "1"):
        assert not (tmp_path / "run" / ".scratch-old").exists()
    with scratch_directory() as outside:
        assert tmp_path not in outside.parents and outside.is_dir()


def test_links_among_stages_are_neither_read_nor_written_through(tmp_path):
    """A comparison keeps a directory of its own there; a link in its place would lead the writer elsewhere."""
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", [], fail=True)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "stages" / "ours").symlink_to(tmp_path / "elsewhere")
    with resuming(), keeping(tmp_path / "run", WORDS, "1"):
        assert not (tmp_path / "run" / "stages" / "ours").exists()
    assert (tmp_path / "elsewhere").is_dir()


def scale(factor, *, by=1.0):
    return lambda x: factor * by * x


class Slotted:
    __slots__ = ("size",)

    def __init__(self, size):
        self.size = size


def test_fingerprints_tell_functions_apart(tmp_path):
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    pairs = [
        (lambda x: torch.sin(x), lambda x: torch.cos(x)),
        (lambda x: [v + 1 for v in x], lambda x: [v - 1 for v in x]),
        (lambda x, a=1: a * x, lambda x, a=2: a * x),
        (scale(1.0), scale(2.0)),
        (scale(1.0, by=2.0), scale(1.0)),
        (first.forward, second.forward),
        (Slotted(1), Slotted(2)),
        ({"a", "b"}, {"a", "c"}),
    ]
    for one, other in pairs:
        assert digest_of(one) == digest_of(one) and digest_of(one) != digest_of(other)
