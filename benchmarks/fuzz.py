"""Damages every kind of file that atlasd reads, and every file of a run directory, and counts what happens.

`python benchmarks/fuzz.py --mutants 2400` prints for every kind how many mutants were read and refused, the longest
time and the largest growth of memory. The exit status is 1 if any ended in an error that is not ours, in a crash, or
took more than 20 processor seconds or 1 GB; seconds by the clock, which depend on what else the machine does, are
printed beside them. Half of the mutants are damaged bytes; the others keep their form, with wrong values
in it and digests that fit.
"""

import argparse
import contextlib
import copy
import gzip
import hashlib
import io
import json
import math
import random
import resource
import shutil
import sys
import tempfile
import time
import unittest.mock
import warnings
import zipfile
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import torch
import xarray
from damage import damaged, places
from safetensors.torch import load, load_file, save
from writers import TableWriter, write_map

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.cli import main as atlasd
from atlasd.cli.resume import check_words
from atlasd.data.files import open_data
from atlasd.discovery.digest import digest
from atlasd.discovery.discover import discover
from atlasd.errors import AtlasdError
from atlasd.prediction.neural import MLPPredictor
from atlasd.prediction.train import Schedule
from atlasd.runtime.content import tensor_digest, write_tensors
from atlasd.runtime.memory import peak_megabytes, reset_peak, resident_megabytes
from atlasd.runtime.pool import process_pool
from atlasd.runtime.random import stream
from atlasd.runtime.stages import Stages, keeping, read_plan
from atlasd.studies.climate.files import open_climate
from atlasd.studies.climate.synthetic import synthetic_climate
from atlasd.studies.digits.data import read_idx
from atlasd.studies.jets.data import jet_columns, read_jets

SECONDS, MEGABYTES = 20.0, 1000.0
X = np.linspace(-1, 1, 24 * 16, dtype=np.float32).reshape(24, 4, 4)
ODD = [
    None,
    True,
    -1,
    0,
    3,
    10**30,
    1e308,
    "",
    "x",
    "\x1b[2J",
    "../../x",
    "pickle",
    [],
    {},
    [[]],
    [1, "a"],
    {"$": "Group"},
]


def dataset():
    return xarray.Dataset({"x": (("time", "lat", "lon"), X), "y": (("time", "lat", "lon"), 2 * X)})


def write_h5(path):
    with h5py.File(path, "w") as file:
        file["x"], file["group/y"] = X, 2 * X
        file.create_dataset("packed", data=X, compression="gzip", chunks=(6, 4, 4))


def write_csv(path):
    rows = "\n".join(",".join(map(str, row)) for row in X.reshape(24, 16).tolist())
    data = (",".join(f"c{k}" for k in range(16)) + "\n" + rows + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_parquet(path):
    pyarrow.parquet.write_table(pyarrow.table({"a": X.ravel(), "t": 2 * X.ravel()}), path)


def write_jets(path):
    momenta = np.tile(np.array([5.0, 1.0, 2.0, 4.0], dtype=np.float32), (24, 3))
    if path.suffix == ".npz":
        np.savez(path, momenta=momenta.reshape(24, 3, 4), label=np.arange(24) % 2)
        return
    with TableWriter(path, [(jet_columns(3), "float32"), (["is_signal_new"], "int64")]) as table:
        table.append([momenta, np.arange(24).reshape(-1, 1) % 2])


def write_climate(path):
    write_map(path, synthetic_climate(1, generator=stream(0), shape=(16, 24), experts=1, variables=("TMQ", "PSL")))


def read_climate(path):
    folder = open_climate(path.parent)
    return [(folder.fields(n), folder.labels(n)) for n in range(len(folder))]


def write_digits(path):
    path.write_bytes(gzip.compress(bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 4]) + bytes(range(32))))


def read_variables(path):
    for variable in open_data(path).variables.values():
        if variable.shape:
            variable.read(slice(0, 5))


READERS = {
    "d.npy": (lambda p: np.save(p, X), read_variables),
    "d.npz": (lambda p: np.savez(p, x=X, y=2 * X), read_variables),
    "packed.npz": (lambda p: np.savez_compressed(p, x=X, y=2 * X), read_variables),
    "d.csv": (write_csv, read_variables),
    "d.csv.gz": (write_csv, read_variables),
    "d.h5": (write_h5, read_variables),
    "classic.nc": (lambda p: dataset().to_netcdf(p, engine="scipy"), read_variables),
    "modern.nc": (lambda p: dataset().to_netcdf(p, engine="h5netcdf"), read_variables),
    "two.zarr": (lambda p: dataset().to_zarr(p, consolidated=False, zarr_format=2), read_variables),
    "three.zarr": (lambda p: dataset().to_zarr(p, consolidated=True, zarr_format=3), read_variables),
    "d.parquet": (write_parquet, read_variables),
    "jets.h5": (write_jets, lambda p: list(read_jets(p))),
    "jets.npz": (write_jets, lambda p: list(read_jets(p))),
    "data-1996-01-01-01-1_0.nc": (write_climate, read_climate),
    "digits-idx3-ubyte": (write_digits, read_idx),
}


def write_run(path):
    """A finished run with every file that a run may have."""
    x = torch.randn(200, 2, generator=stream(0, "fuzz"))
    found = discover(x, function=lambda v: v.norm(dim=-1), progress=False)
    fields = {"input": torch.rand(1, 16, 16), "output": torch.rand(1, 16, 16), "radii": torch.tensor([3.0, 2.0])}
    path.mkdir()
    write_tensors(path / "fields.safetensors", fields)
    files = {"fields.safetensors": tensor_digest(fields)}
    found.save(path, "fake", metrics={"angle": 0.5, "rows": [{"name": "a", "error": 1.0}]}, paper={"a": 1}, files=files)


def quietly(*words):
    """The status of a command, and what it says on standard error."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        status = atlasd([str(word) for word in words])
    return status, said.getvalue()


def report(path):
    status, said = quietly("report", path, "--out", path / "page.html")
    assert status in (0, 2) and "Traceback" not in said and said.count("\n") == (status == 2)
    if status:
        raise AtlasdError(said)


def write_stages(path):
    """An unfinished run with networks, groups and plain values among its stages."""
    x = torch.randn(200, 2, generator=stream(0, "fuzz"))
    predictor = MLPPredictor(hidden=(8,), schedule=Schedule(epochs=3))
    with contextlib.suppress(KeyboardInterrupt), keeping(path, ["run", "toy", "--seed", "0"], "1") as stages:
        discover(x, x.square().sum(-1), predictor=predictor, progress=False)
        stages.do("part", lambda: {"a": [1, 2.5]})
        stages.do("group", lambda: Group(LieAlgebra(torch.tensor([[[0.0, -1.0], [1.0, 0.0]]]))))
        raise KeyboardInterrupt


def go_on(path):
    plan = read_plan(path)
    check_words(plan["words"])
    stages = Stages(path / "stages", plan, fresh=False)
    for key in plan["stages"]:
        stages.get(key)


def write_stopped(path):
    """A discovery on a file of vectors, interrupted when it has kept six stages."""
    x = np.random.default_rng(0).standard_normal((100, 2)).astype(np.float32)
    np.savez(path.parent / "v.npz", x=x, y=np.square(x).sum(1))
    keep, kept = Stages.put, []

    def put(*given):
        if len(kept) == 6:
            raise KeyboardInterrupt
        kept.append(keep(*given))

    with unittest.mock.patch.object(Stages, "put", put):
        status = quietly("discover", path.parent / "v.npz", "--out", path)[0]
    assert status == 130, status


def resume(path):
    status, said = quietly("resume", path)
    assert status in (0, 2) and "Traceback" not in said and said.count("atlasd: error: ") == (status == 2)
    if status:
        raise AtlasdError(said)


DIRECTORIES = {"run": (write_run, report), "stages": (write_stages, go_on), "stopped": (write_stopped, resume)}
KINDS = READERS | DIRECTORIES
WEIGHTS = {"run": 3.0, "stages": 3.0}


def altered(content, chance):
    """JSON with a few values replaced."""
    content = copy.deepcopy(content)
    for _ in range(chance.choice([1, 1, 3])):
        found = list(places(content))
        if not found:
            break
        *path, last = chance.choice(found)
        inside = content
        for key in path:
            inside = inside[key]
        inside[last] = copy.deepcopy(chance.choice(ODD))
    return content


def alter(part, root, chance):
    """Wrong values in the right form, with digests that fit; False where a file has no form that we know."""
    text = part.name
    if text.endswith(".json") or text.startswith(".z"):
        content = altered(json.loads(part.read_text()), chance)
        if text == "result.json":
            with contextlib.suppress(Exception):
                content["digest"] = digest(content, load_file(str(root / "tensors.safetensors")))
        part.write_text(json.dumps(content))
        return True
    if text.endswith(".safetensors") and part.parent.name == "stages":
        data = part.read_bytes()
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        tree = altered(json.loads(header["__metadata__"]["tree"]), chance)
        new = save(load(data), {"tree": json.dumps(tree)})
        part.write_bytes(new)
        manifest = part.parent / "manifest.json"
        old, fit = (hashlib.sha256(d).hexdigest() for d in (data, new))
        manifest.write_text(manifest.read_text().replace(old, fit))
        return True
    if text.endswith(".npz"):
        with zipfile.ZipFile(part) as archive:
            members = {n: archive.read(n) for n in archive.namelist()}
        name = chance.choice(list(members))
        members[name] = damaged(members[name], chance)
        with zipfile.ZipFile(part, "w") as archive:
            for each, content in members.items():
                archive.writestr(each, content)
        return True
    if text.endswith((".csv.gz", "ubyte")):
        part.write_bytes(gzip.compress(damaged(gzip.decompress(part.read_bytes()), chance)))
        return True
    return False


def processor_seconds():
    """Of this process and of those that it has started and that have ended, as a helper does that loops for ever."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def attempt(kind, original, seed):
    """One mutant: what became of it, and the seconds, megabytes and processor seconds it took."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chance = random.Random(f"{kind} {seed}")
    _, read = KINDS[kind]
    with tempfile.TemporaryDirectory() as name:
        place = Path(name) / "m"
        shutil.copytree(original.parent, place)
        root = place / kind
        files = sorted(p for p in root.rglob("*") if p.is_file()) if root.is_dir() else [root]
        part = chance.choice([f for f in files if f.suffix not in (".html", ".png", ".svg")])
        if seed is None:  # left as it is
            pass
        elif chance.random() < 0.5 or not alter(part, root, chance):
            part.write_bytes(damaged(part.read_bytes(), chance))
        reset_peak()
        before, began, worked = resident_megabytes(), time.perf_counter(), processor_seconds()
        try:
            read(root)
            outcome = "read"
        except AtlasdError as error:
            outcome = "refused" if str(error).strip() else "an empty message"
            if seed is None:
                outcome = str(error)
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"[:200]
        return outcome, time.perf_counter() - began, peak_megabytes() - before, processor_seconds() - worked


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=2400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="some of the kinds")
    given = parser.parse_args()
    kinds = given.only.split(",") if given.only else list(KINDS)
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        weights = {kind: WEIGHTS.get(kind, 1.0) for kind in kinds}
        for kind in kinds:
            original = Path(name) / kind.replace(".", "-") / kind
            original.parent.mkdir()
            KINDS[kind][0](original)
            whole = _run(kind, original, None)
            assert whole[0] == "read", f"{kind} left as it is: {whole[0]}"
            count = math.ceil(given.mutants * weights[kind] / sum(weights.values()))
            rows = []
            for seed in range(given.seed, given.seed + count):
                rows.append(_run(kind, original, seed))
            _close()
            outcomes = [row[0] for row in rows]
            wrong = [f"{o} (seed {given.seed + k})" for k, o in enumerate(outcomes) if o not in ("read", "refused")]
            slow, large, work = (max(row[i] for row in rows) for i in (1, 2, 3))
            bad += len(wrong) + (work > SECONDS) + (large > MEGABYTES)
            print(
                f"{kind:<28} {len(rows):>5} mutants: {outcomes.count('read')} read, {outcomes.count('refused')} "
                f"refused, {len(wrong)} wrong; at most {slow:.2f} s, {work:.2f} s of processor and {large:.0f} MB",
                flush=True,
            )
            for each in wrong[:5]:
                print(f"    {each}", flush=True)
    print(f"{bad} wrong")
    return int(bad > 0)


_pools = []


def _run(kind, original, seed):
    """An attempt in another process, so that a crash of a library is seen as one."""
    if not _pools:
        _pools.append(process_pool(1))
    try:
        return _pools[0].submit(attempt, kind, original, seed).result(timeout=600)
    except BrokenProcessPool:
        _pools.clear()
        return "a crash", 0.0, 0.0, 0.0
    except TimeoutError:
        _close()
        return "no end", 600.0, 0.0, 600.0


def _close():
    for pool in _pools:
        pool.end()
    _pools.clear()


if __name__ == "__main__":
    sys.exit(main())
