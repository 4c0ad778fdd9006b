"""Everything that can be wrong with a file or an option: one clear line, status 2, and nothing is written."""

import gzip
import os
import struct

import h5py
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import xarray

from atlasd.cli import main
from atlasd.data.samples import Samples
from atlasd.errors import InputError

X = np.random.default_rng(0).standard_normal((30, 1, 24, 24)).astype("float32")
V = np.random.default_rng(1).standard_normal((40, 3)).astype("float32")
M = (V**2).sum(-1)


def spoiled(array, bad, *where):
    array = array.astype("float32")
    array[where] = bad
    return array


def npz(**arrays):
    def make(path):
        np.savez(path / "d.npz", **arrays)
        return ["d.npz"]

    return make


def netcdf(dims, **arrays):
    def make(path):
        xarray.Dataset({k: (dims, a) for k, a in arrays.items()}).to_netcdf(path / "d.nc", engine="h5netcdf")
        return ["d.nc"]

    return make


def text(content, name="d.csv"):
    def make(path):
        (path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        return [name]

    return make


def part_of(make, share=0.5):
    """A file that ends too early."""

    def cut(path):
        (name,) = make(path)
        content = (path / name).read_bytes()
        (path / name).write_bytes(content[: int(len(content) * share)])
        return [name]

    return cut


def pair(x, y):
    def make(path):
        np.save(path / "x.npy", x)
        np.save(path / "y.npy", y)
        return ["x.npy", "y.npy"]

    return make


def hdf5(**arrays):
    def make(path):
        with h5py.File(path / "d.h5", "w") as file:
            for name, array in arrays.items():
                file[name] = array
        return ["d.h5"]

    return make


def parquet(**columns):
    def make(path):
        pyarrow.parquet.write_table(pyarrow.table(columns), path / "d.parquet")
        return ["d.parquet"]

    return make


def huge(path):
    """3 GB of one axis, without a byte on the disc."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (800000000,), }".ljust(117) + "\n"
    for name in ("x.npy", "y.npy"):
        with (path / name).open("wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
            file.truncate(128 + 4 * 800_000_000)
    return ["x.npy", "y.npy"]


def huge_hdf5(path):
    with h5py.File(path / "d.h5", "w") as file:
        for name in "xy":
            file.create_dataset(name, shape=(800_000_000,), dtype="f4", chunks=(1 << 20,))
    return ["d.h5"]


def unreadable(path):
    npz(x=X, y=X + 1)(path)
    (path / "d.npz").chmod(0)
    return ["d.npz"]


def directory(path):
    (path / "folder").mkdir()
    return ["folder"]


def pipe(path):
    os.mkfifo(path / "d.npz")
    return ["d.npz"]


def broken_zarr(path):
    (path / "d.zarr").mkdir()
    (path / "d.zarr" / "zarr.json").write_text("{")
    return ["d.zarr"]


def taken(path):
    (path / "out").write_text("")
    return npz(x=X, y=X**2)(path)


FIELDS = npz(x=X, y=X**2)
VECTORS = npz(x=V, y=M)
ROWS = "".join(f"{a},{b},{a * b}\n" for a, b in V[:30, :2])
TABLE = text("a,b,y\n" + ROWS)
GRID = ("time", "lat", "lon")
BAD = {
    # what is not a file of data
    "no such file": (lambda path: ["d.npz"], "`d.npz` does not exist; check the path"),
    "a near name": (lambda path: (FIELDS(path), ["e.npz"])[1], "`e.npz` does not exist, did you mean 'd.npz'?"),
    "a directory": (directory, "must be a file or a zarr store, got a directory"),
    "an empty file": (text("", "d.npz"), "must hold data, got an empty file"),
    "an empty table": (text(""), "must hold data, got an empty file"),
    "no permission": (unreadable, "must be readable, got no permission"),
    "a pipe": (pipe, "must be a file, got something else"),
    "unknown kind": (text("hello", "d.bin"), "must be one of npz, npy, hdf5"),
    "text as npz": (text("hello", "d.npz"), "must be a npz file, as its name says, got a file that starts with"),
    "npz as HDF5": (lambda path: (FIELDS(path), (path / "d.npz").rename(path / "d.h5"), ["d.h5"])[-1],
                    "must be a hdf5 file, as its name says, got a npz file"),
    "HDF5 as CSV": (lambda path: (hdf5(x=X)(path), (path / "d.h5").rename(path / "d.csv"), ["d.csv"])[-1],
                    "must be a csv file, as its name says, got a hdf5 file"),
    "zarr that is a file": (text("hello", "d.zarr"), "must be a zarr directory, got a file"),
    "zarr that is broken": (broken_zarr, "must be a complete zarr file"),
    "gzipped npz": (lambda path: ((path / "d.npz.gz").write_bytes(gzip.compress(b"x")), ["d.npz.gz"])[1],
                    "must be unpacked first"),
    "truncated npz": (part_of(FIELDS), "must be a complete npz file, got one that cannot be read"),
    "truncated npy": (part_of(lambda path: pair(X, X)(path)[:1]), "got a truncated file"),
    "truncated HDF5": (part_of(hdf5(x=X, y=X)), "must be a complete hdf5 file"),
    "truncated netCDF": (part_of(netcdf(GRID, x=X[:, 0], y=X[:, 0])), "must be a complete netcdf file"),
    "truncated parquet": (part_of(parquet(a=V[:, 0], y=M)), "must be a complete parquet file"),
    "truncated gzip": (lambda path: ((path / "d.csv.gz").write_bytes(gzip.compress(ROWS.encode() * 9)[:-40]),
                                     ["d.csv.gz"])[1], "add a header"),
    "truncated gzip with a header": (
        lambda path: ((path / "d.csv.gz").write_bytes(gzip.compress(b"a,b,y\n" + ROWS.encode() * 9)[:-40]),
                      ["d.csv.gz"])[1], "must be a complete csv file"),
    "npz without arrays": (npz(), "must hold arrays, got a npz file with none"),
    "HDF5 without arrays": (hdf5(), "must hold arrays, got a hdf5 file with none"),
    # tables
    "no header": (text(ROWS), "must start with column names, got the numbers"),
    "an empty first line": (text("\n" + ROWS), "must start with a line of column names"),
    "one column": (text("a\n1\n2\n"), "must have at least two columns"),
    "columns of one name": (text("a,a,y\n" + ROWS), "must have different column names, got 'a' twice"),
    "a short line": (text("a,b,y\n" + ROWS + "1,2\n"), "must have 3 entries on every line, got 2 on line 32"),
    "no rows": (text("a,b,y\n"), "at least 20 samples, got 0"),
    "few rows": (text("a,b,y\n1,2,3\n4,5,6\n"), "at least 20 samples, got"),
    "bytes that are no text": (text(b"a,b,y\n\xff\xfe\x00,1,2\n"), "must be a complete csv file"),
    "a column of words": (text("a,b,y\n" + ROWS.replace("\n", "\nred,", 1)[:-1] + "\n", "d.csv"), "entries on every"),
    "input of words": (lambda path: [*text("a,y\n" + "red,1\n" * 30)(path), "--input", "a"],
                       "variable 'a' must hold real numbers"),
    "target of words": (lambda path: [*text("a,y\n" + "1,red\n" * 30)(path), "--target", "y"],
                        "variable 'y' must hold real numbers"),
    "missing column": (lambda path: [*TABLE(path), "--target", "yy"], "no variable 'yy' in d.csv, did you mean 'y'?"),
    "target among inputs": (lambda path: [*TABLE(path), "--input", "a,y", "--target", "y"], "must not be among"),
    "a name twice": (lambda path: [*TABLE(path), "--input", "a,a"], "must name every variable once, got 'a' twice"),
    "an empty name": (lambda path: [*TABLE(path), "--input", "a,,b"], "must hold names separated by commas"),
    "uneven tokens": (lambda path: [*TABLE(path), "--tokens", "a;a,b"], "must all have as many columns, got 1, 2"),
    "tokens and input": (lambda path: [*TABLE(path), "--tokens", "a,b", "--input", "a"], "must not both be given"),
    "tokens of nothing": (lambda path: [*TABLE(path), "--tokens", ";"], "--tokens must hold column names"),
    "tokens of arrays": (lambda path: [*FIELDS(path), "--tokens", "x"], "must name columns of a table"),
    "too many columns": (text(",".join(f"c{k}" for k in range(20)) + ",y\n" + (",".join("1" * 21) + "\n") * 30),
                         "must name the input columns, got none and 20 to choose from"),
    "no plain target": (text("a,b,c\n" + ROWS), "--target must be named, got none"),
    "missing values in a table": (lambda path: [*text("a,b,y\n" + ROWS + "1,,3\n")(path), "--nan", "refuse"],
                                  "variable 'b' must be finite, got NaN or infinity in 1 of"),
    "decimal commas in quotes": (text('a,b,y\n' + '"1,5","2,5","3,5"\n' * 30),
                                 "'a' holds text, such as '1,5' on line 2; write decimal points, and 2 more"),
    "decimal commas between commas": (text("a,b,y\n" + "1,5,2,5,3,5\n" * 30),
                                      "got 6 on line 2; decimal commas need semicolons between the columns"),
    "a word among the numbers": (text("# remark\na,b,y\n" + ROWS + "1,red,3\n"),
                                 "got none and 1 to choose from: a, b, y; not usable: 'b' holds text, such as 'red' on "
                                 "line 33"),
    "a label for a whole image": (npz(x=np.zeros((30, 20, 20)), y=M[:30]), "give a value for every pixel"),
    "a label for a field": (npz(x=np.zeros((30, 1, 20, 20)), y=M[:30]), "give a value for every pixel"),
    # arrays
    "missing variable": (lambda path: [*FIELDS(path), "--input", "X1"], "no variable 'X1' in d.npz"),
    "a near variable": (lambda path: [*npz(temperature=X, y=X)(path), "--input", "temprature"],
                        "did you mean 'temperature'? It holds: temperature (30, 1, 24, 24), y"),
    "one array only": (npz(x=X), "--target must be named, got none; d.npz holds: x (30, 1, 24, 24); --ahead 1"),
    "three arrays without names": (npz(a=X, b=X, c=X), "--target must be named, got none"),
    "3 GB of one axis": (huge, "input x (800000000) must have shape (N, n)"),
    "3 GB of one axis in HDF5": (huge_hdf5, "input x (800000000) must have shape (N, n)"),
    "six axes": (npz(x=np.zeros((30, 1, 2, 2, 2, 2)), y=M), "must have shape (N, n), (N, P, n)"),
    "different lengths": (npz(x=X, y=X[1:]), "as many samples, got 30 in x (30, 1, 24, 24) and 29"),
    "different lengths in a pair": (pair(V, M[1:]), "as many samples, got 40 in x (40, 3) and 39"),
    "another grid": (npz(x=X, y=X[..., 1:]), "fields must lie on one grid, got (24, 24) in x"),
    "one label for a field": (npz(x=X, y=np.arange(30)), "must be a field on the grid (24, 24) of the input"),
    "a field for a vector": (npz(x=V[:30], y=X[:, 0, :5, :5]), "must have shape (N,) or (N, outputs) for vectors"),
    "too few samples": (npz(x=X[:7], y=X[:7]), "at least 20 samples, got 7; give more data"),
    "an empty axis": (npz(x=X[:, :, :0], y=X[:, :, :0]), "must not be empty"),
    "objects": (npz(x=np.array([{}] * 30), y=M[:30]), "'x' holds Python objects, which are never unpickled"),
    "complex numbers": (lambda path: [*npz(x=V.astype("complex64"), y=M)(path), "--input", "x"],
                        "variable 'x' must hold real numbers, got complex64: 'x' holds complex numbers; save real"),
    "NaN in the input": (npz(x=spoiled(X, np.nan, 7, 0, 3, 4), y=X), "'x' must be finite, got NaN or infinity in 1 of"
                         " 30 samples, 1 of 17280 values, first at index (7, 0, 3, 4); --nan mask"),
    "NaN in the target": (npz(x=V, y=spoiled(M, np.nan, 5)), "'y' must be finite, got NaN or infinity in 1 of 40"),
    "infinity": (npz(x=spoiled(V, np.inf, 5), y=M), "'x' must be finite"),
    "NaN everywhere": (lambda path: [*npz(x=spoiled(X, np.nan, slice(None)), y=X)(path), "--nan", "mask"], "must vary"),
    "NaN in too many samples": (lambda path: [*npz(x=spoiled(V, np.nan, slice(30)), y=M)(path), "--nan", "mask"],
                                "got 10 that can be used (30 of 40 samples have missing values"),
    "constant target": (npz(x=X, y=np.full_like(X, 3)), "variable 'y' must vary, got 3.0 everywhere"),
    "constant input": (npz(x=np.zeros_like(X), y=X), "variable 'x' must vary, got 0.0 everywhere; name another"),
    "copies": (npz(x=np.concatenate([V, V]), y=np.concatenate([M, M])),
               "got 40 copies among 80 (sample 40 is sample 0 again); --duplicates drop"),
    "copies only": (lambda path: [*npz(x=np.tile(V[:5], (20, 1)), y=np.tile(M[:5], 20))(path), "--duplicates", "drop"],
                    "got 5 that can be used (95 copies are left out)"),
    "two row axes": (netcdf(("time", "lat", "y", "lon"), a=X, b=X**2), "must name rows once"),
    "no sample axis": (netcdf(("lat", "lon"), x=X[0, 0], y=X[1, 0]), "one dimension must count samples, such as time"),
    "ahead of everything": (lambda path: [*npz(x=X)(path), "--ahead", "15"], "of which --ahead 15 leaves 15"),
    # options
    "chart outside": (lambda path: [*FIELDS(path), "--charts", "2,2", "--in-radius", "6"], "must lie inside the field"),
    "chart far outside": (lambda path: [*FIELDS(path), "--charts", "200,200"], "must lie inside the field"),
    "charts of one number": (lambda path: [*FIELDS(path), "--charts", "12"], "--charts must be auto, grid, whole"),
    "charts of words": (lambda path: [*FIELDS(path), "--charts", "everywhere"], "--charts must be auto, grid, whole"),
    "charts on vectors": (lambda path: [*VECTORS(path), "--charts", "2,2"], "must be left out for vectors"),
    "radius on vectors": (lambda path: [*VECTORS(path), "--in-radius", "4"], "must be left out for vectors"),
    "too large a radius": (lambda path: [*FIELDS(path), "--in-radius", "40"], "must fit into the field of shape"),
    "radii that do not nest": (lambda path: [*FIELDS(path), "--in-radius", "4", "--out-radius", "5"],
                               "--out-radius must be smaller than --in-radius, got 5 and 4"),
    "radius of zero": (lambda path: [*FIELDS(path), "--in-radius", "0"], "`in_radius` must be an integer of at least"),
    "tiny fields": (npz(x=X[..., :5, :5], y=X[..., :5, :5] ** 2), "at least 7 pixels wide"),
    "half a sphere": (lambda path: [*FIELDS(path), "--charts", "sphere:12"], "needs a grid of the whole sphere"),
    "no charts of a sphere": (lambda path: [*FIELDS(path), "--charts", "sphere:0"], "number of charts from 1 to 200"),
    "unknown way with NaN": (lambda path: [*FIELDS(path), "--nan", "drop"], "`nan` must be one of auto, refuse, mask"),
    "unknown task": (lambda path: [*FIELDS(path), "--task", "class"], "`task` must be one of auto, values, classes"),
    "classes of numbers": (lambda path: [*VECTORS(path), "--task", "classes"], "--task classes needs whole numbers"),
    "vectors of one": (lambda path: [*FIELDS(path), "--vectors", "u"], "--vectors must be auto, none or pairs"),
    "vectors not there": (lambda path: [*FIELDS(path), "--vectors", "u,v"], "--vectors must name two of x, y"),
    "tolerance beyond chance": (lambda path: [*FIELDS(path), "--tolerance", "2"], "`tolerance` must be a number from"),
    "samples below zero": (lambda path: [*FIELDS(path), "--samples", "-5"], "`samples` must be an integer of at least"),
    "seed below zero": (lambda path: [*FIELDS(path), "--seed", "-1"], "`seed` must be a non-negative integer"),
    "seed of words": (lambda path: [*FIELDS(path), "--seed", "x"], "--seed"),
    "unknown option": (lambda path: [*FIELDS(path), "--radius", "3"], "--radius"),
    "no file": (lambda path: [], "FILE"),
    "quiet and verbose": (lambda path: [*FIELDS(path), "--quiet", "--verbose"], "must not both be given"),
    "out is a file": (taken, "`out` must be a directory, got the file"),
}  # fmt: skip


def test_there_are_sixty_kinds():
    assert len(BAD) >= 60


@pytest.mark.parametrize("name", BAD)
def test_one_clear_line(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name == "no permission":  # root may read everything; the answer of the system is what counts
        monkeypatch.setattr(os, "access", lambda path, mode: "d.npz" not in str(path))
    make, message = BAD[name]
    arguments = make(tmp_path)
    before = sorted(p.name for p in tmp_path.iterdir())
    out = ["--out", "out"] if name == "out is a file" else []
    assert main(["discover", *arguments, *out]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("atlasd: error: ") and shown.err.count("\n") == 1 and "Traceback" not in shown.err
    assert message.lower() in shown.err.lower()
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize("copies, refused", [(0, False), (2, False), (3, True), (100, True)])
def test_the_front_door_of_python_counts_copies_too(copies, refused):
    x = np.random.default_rng(0).standard_normal((200, 3)).astype("float32")
    x[100 : 100 + copies] = x[:copies]
    y = x.sum(1)
    Samples.check(x)  # a function is asked, not fitted: copies do no harm
    if not refused:
        Samples.check(x, y)
        return
    with pytest.raises(InputError, match=rf"got {copies} copies among 200 \(sample 100 is sample 0 again\); drop them"):
        Samples.check(x, y)
