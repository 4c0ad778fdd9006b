"""Malformed input of every kind: an error of ours in one line, or a right answer; never a traceback or half a file.

The numbers in `INPUTS` add up to more than 2,000. Files are mutated with a fixed seed, arguments drawn by hypothesis.
"""

import json
import random
import shutil
import warnings
from functools import cache

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import atlasd as ad
from atlasd.cli import COMMANDS, main
from atlasd.data.files import open_data
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.result import ChartFinding, Direction, Discovery, Verdict
from atlasd.errors import AtlasdError
from atlasd.runtime.codec import decode
from atlasd.runtime.stages import read_plan

INPUTS = {"arrays": 500, "atlases": 250, "matrices": 300, "trees": 250, "commands": 200, "results": 200, "files": 420}


def fuzz(kind):
    return settings(
        max_examples=INPUTS[kind], deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def refuses(call, *arguments, **named):
    """Whether a call ends with an error of ours; any other error is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call(*arguments, **named)
        except AtlasdError as error:
            assert str(error).strip()
            return True
    return False


def test_there_are_two_thousand():
    assert sum(INPUTS.values()) >= 2000


numbers = st.one_of(
    st.integers(-3, 40),
    st.floats(allow_nan=True, width=32),
    st.none(),
    st.text(max_size=4),
    st.lists(st.integers(-2, 9), max_size=3),
)
arrays = st.one_of(
    hnp.arrays(
        st.sampled_from(["f4", "f8", "i4", "u1", "?", "c8", "U3", "O"]).map(np.dtype),
        hnp.array_shapes(min_dims=0, max_dims=6, min_side=0, max_side=5),
        fill=st.nothing(),
    ).filter(lambda a: a.dtype != object),
    numbers,
)


@fuzz("arrays")
@given(x=arrays, y=arrays, seed=st.integers(0, 3))
def test_data_at_the_door(x, y, seed):
    assert refuses(ad.discover, x, y, seed=seed, progress=False)  # fewer than 20 samples can never be used


@fuzz("atlases")
@given(
    centres=st.lists(
        st.lists(st.one_of(st.floats(-20, 60), st.sampled_from([float("nan"), float("inf")])), max_size=4), max_size=3
    ),
    inner=st.integers(-2, 40),
    outer=st.integers(-2, 40),
    shape=st.lists(st.integers(0, 40), max_size=4),
)
def test_atlases(centres, inner, outer, shape):
    def use():
        atlas = ad.Atlas.at(centres, inner, outer)
        atlas.check(shape)
        atlas.input_patches(torch.zeros(1, 1, *shape))

    refuses(use)
    if len(shape) in (2, 3):
        refuses(ad.Atlas.grid, shape, inner, outer)


@fuzz("matrices")
@given(
    basis=hnp.arrays(
        np.float64,
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3),
        elements=st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e300, np.nan, np.inf, 0.5]),
    )
)
def test_algebras_and_groups(basis):
    refuses(ad.LieAlgebra, basis)
    refuses(ad.Group, torch.zeros(0, 2, 2), torch.from_numpy(basis.copy()))
    if basis.ndim == 3 and basis.shape[1] == basis.shape[2] and basis.shape[1] and np.abs(basis).max(initial=0) <= 1:
        refuses(lambda: ad.identify(ad.LieAlgebra(basis)).name)


trees = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(max_size=5), st.floats()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["$", "at", "a"]), inner, max_size=3),
        st.fixed_dictionaries({"$": st.sampled_from(["Group", "tensor", "list", "dict", "class", "os"]), "at": inner}),
    ),
    max_leaves=6,
)


@fuzz("trees")
@given(tree=trees)
def test_kept_stages_make_only_what_is_known(tree):
    refuses(decode, tree, {})


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


WRONG = [
    "--nonsense", "--seed=x", "--set=nothing=1", "--set=samples=-5", "--set", "--out", "--workers=-1", "--dask=nowhere://",
    "--in-radius=x", "--only=nothing", "--mode=maybe", "--samples=x", "--tolerance=x", "--seeds=no", "-\x00",
]  # fmt: skip
words = st.lists(
    st.one_of(st.sampled_from(["heat", "toy", "d4", "nowhere", "--json", "--quiet", "-q", ""]), st.text(max_size=6)),
    max_size=3,
)


@fuzz("commands")
@given(command=st.sampled_from(sorted(COMMANDS)), before=words, wrong=st.sampled_from(WRONG[:1] + WRONG))
def test_command_lines(command, before, wrong, place):
    import contextlib
    import io

    said, told = io.StringIO(), io.StringIO()
    with contextlib.chdir(place), contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
        plain = [word for word in before if word not in ("--", "-h", "--help")]
        status = main([command, *plain, wrong, "--nonsense", "--nonsense"])  # twice: the first may be a value
    assert status == 2 and "Traceback" not in told.getvalue() and said.getvalue() == ""
    assert told.getvalue().startswith("atlasd: error: ") and told.getvalue().count("\n") == 1
    assert not list(place.iterdir())


@cache
def example():
    turn = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
    direction = Direction(0.03, 0.0, 0.04, 1.0, 0.9, "symmetry", "small", 0.2, 1.0)
    return Discovery(
        group=ad.Group(ad.LieAlgebra(turn)),
        verdict=Verdict(True, "It holds.", (direction,)),
        charts=(ChartFinding((8.0, 8.0), 0.01, False, 0.99),),
        spectrum=(0.001, 0.9),
        predictor=PredictorSummary("stencil", 0.99, 60, 0.1),
        seconds={"search": 1.0},
        chart_generators=turn[None],
    )


def mutated(data, chance):
    """The bytes of a file, damaged in one of several ways."""
    data = bytearray(data)
    way = chance.randrange(5)
    if way == 0:
        return bytes(data[: chance.randrange(len(data))])
    if way == 1:
        return bytes(chance.randrange(256) for _ in range(chance.randrange(200)))
    if way == 2:
        at = chance.randrange(len(data))
        return bytes(data[:at] + data[at + chance.randrange(1, 9) :])
    for _ in range(1 if way == 3 else 20):
        data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data)


def test_damaged_results(tmp_path):
    chance = random.Random(0)
    whole = example().save(tmp_path / "whole", "fake")
    content = json.loads((whole / "result.json").read_text())
    ad.load(whole)
    refused = 0
    for number in range(INPUTS["results"]):
        place = tmp_path / str(number)
        shutil.copytree(whole, place)
        if number % 2:
            name = chance.choice(["result.json", "tensors.safetensors"])
            (place / name).write_bytes(mutated((place / name).read_bytes(), chance))
        else:
            key = chance.choice([k for k in content if k != "seconds"])
            wrong = chance.choice([None, 3, "x", [], {}, {"name": "SO(2)"}, [[1.0]], True, 9e99])
            (place / "result.json").write_text(json.dumps({**content, key: wrong}))
        same = all((place / f).read_bytes() == (whole / f).read_bytes() for f in ("result.json", "tensors.safetensors"))
        refused += refuses(ad.load, place)
        (place / "stages").mkdir()
        (place / "stages" / "manifest.json").write_bytes(mutated(json.dumps(content).encode(), chance))
        assert refuses(read_plan, place)
        assert same or refused
        shutil.rmtree(place)
    # What is let pass is a change of white space or of a timing, or none at all.
    assert refused >= 0.85 * INPUTS["results"]


@pytest.mark.parametrize(
    "change",
    [{"schema": 3}, {"version": "9.9.0"}, {"version": "next"}, {"seed": 5}, {"spectrum": [0.0]}, {"digest": None}],
)
def test_other_versions_and_tampered_results(tmp_path, change):
    whole = example().save(tmp_path, "fake")
    content = json.loads((whole / "result.json").read_text())
    (whole / "result.json").write_text(json.dumps({**content, **change}))
    with pytest.raises(AtlasdError, match="must"):
        ad.load(whole)


def write_npz(path, x, y):
    np.savez(path, x=x, y=y)


def write_npy(path, x, y):
    np.save(path, x)


def write_csv(path, x, y):
    rows = [
        ",".join(map(str, (*row, target))) for row, target in zip(x.reshape(len(x), -1)[:, :4], y.flat, strict=False)
    ]
    path.write_text("a,b,c,d,t\n" + "\n".join(rows) + "\n")


def write_h5(path, x, y):
    with h5py.File(path, "w") as file:
        file["x"], file["y"] = x, y


@pytest.mark.parametrize("kind, write", [("npz", write_npz), ("npy", write_npy), ("csv", write_csv), ("h5", write_h5)])
def test_damaged_files(kind, write, tmp_path):
    chance = random.Random(kind)
    x = np.linspace(-1, 1, 24 * 4 * 4, dtype=np.float32).reshape(24, 1, 4, 4)
    whole = tmp_path / f"whole.{kind}"
    write(whole, x, 2 * x)
    data = whole.read_bytes()

    def read(path):
        opened = open_data(path)
        for variable in opened.variables.values():
            variable.read(slice(0, 5))

    assert not refuses(read, whole)
    for number in range(INPUTS["files"] // 4):
        damaged = tmp_path / f"{number}.{kind}"
        damaged.write_bytes(mutated(data, chance))
        refuses(read, damaged)
        damaged.unlink()
    assert {p.name for p in tmp_path.iterdir()} == {whole.name}


def test_pickles_are_not_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    np.save(tmp_path / "trap.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "trap.npz", x=np.array([Trap()], dtype=object))
    for name in ("trap.npy", "trap.npz"):
        assert refuses(lambda path: [v.read(slice(0, 1)) for v in open_data(path).variables.values()], tmp_path / name)
    assert not (tmp_path / "sprung").exists()
