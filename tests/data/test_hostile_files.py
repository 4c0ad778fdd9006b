"""Files made to harm: each is refused in one line, or read within a second or two and little memory."""

import gc
import gzip
import json
import os
import struct
import subprocess
import sys
import time
import zipfile
import zlib

import h5py
import numcodecs
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import xarray
import zarr

from atlasd.data.arrays import Cleaning, read_own
from atlasd.data.files import open_data
from atlasd.data.pandas_table import TableReader
from atlasd.data.stored import stored
from atlasd.data.variables import choose
from atlasd.errors import DataError, InputError
from atlasd.runtime.memory import peak_megabytes, reset_peak, resident_megabytes

SECONDS, MEGABYTES = 10.0, 400.0
ROWS = slice(0, None, 1000)


def read(path):
    for variable in open_data(path).variables.values():
        variable.read(ROWS)


@pytest.fixture(autouse=True)
def frugal():
    """Every test here must be quick and small."""
    reset_peak()
    before, began = resident_megabytes(), time.process_time()
    yield
    assert time.process_time() - began < SECONDS
    assert peak_megabytes() - before < MEGABYTES


@pytest.mark.parametrize("columns", [20_000, 200_000])
def test_columns_without_end(tmp_path, columns):
    (tmp_path / "d.csv").write_text(",".join(f"c{k}" for k in range(columns)) + "\n" + ",".join(["1"] * columns))
    with pytest.raises(DataError, match=f"at most 10000 columns, got {columns}; write those that are used"):
        open_data(tmp_path / "d.csv")


def test_many_columns_are_read_in_seconds(tmp_path):
    lines = [",".join(f"c{k}" for k in range(9000)), *[",".join(["1.5"] * 9000)] * 40]
    (tmp_path / "d.csv").write_text("\n".join(lines))
    opened = open_data(tmp_path / "d.csv")
    assert len(opened.variables) == 9000 and opened.variables["c8999"].read(slice(0, 2)).tolist() == [1.5, 1.5]


def bomb(path, part, times):
    """A gzipped file of one part over and over, written without unpacking it here."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"a,b\n")
        for _ in range(times):
            file.write(part)


@pytest.mark.parametrize(
    "part, message",
    [
        (b"0" * (1 << 20), "lines of at most 4194304 characters"),
        (b"\n" * (1 << 20), "at most 2000000 numbers as text"),
        (b"0,0\n" * (1 << 18), "at most 2000000 numbers as text"),
    ],
    ids=["one line", "blank lines", "numbers"],
)
def test_a_small_file_that_unpacks_to_gigabytes(tmp_path, part, message, monkeypatch):
    monkeypatch.setattr("atlasd.data.file_csv.MOST_CELLS", 2_000_000)  # the limit is 50 million, 10 seconds
    bomb(tmp_path / "d.csv.gz", part, 64)
    with pytest.raises(DataError, match=message):
        open_data(tmp_path / "d.csv.gz")


def test_text_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr("atlasd.data.file_csv.MOST_BYTES", 1 << 20)
    bomb(tmp_path / "d.csv.gz", b"0," + b" " * 100_000 + b"1\n", 64)
    with pytest.raises(DataError, match="at most 1 MB of text, got more; convert it"):
        open_data(tmp_path / "d.csv.gz")


def deep(path, levels):
    with h5py.File(path, "w") as file:
        group = file
        for _ in range(levels):
            group = group.create_group("g")
        group["x"] = np.ones(30)


def test_nested_groups(tmp_path):
    deep(tmp_path / "d.h5", 3000)
    with pytest.raises(DataError, match="at most 32 levels of groups"):
        open_data(tmp_path / "d.h5")
    deep(tmp_path / "e.h5", 20)
    assert list(open_data(tmp_path / "e.h5").variables) == ["g/" * 20 + "x"]


def test_groups_in_a_ring(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file["a/x"] = np.ones(30)
        file["a/up"] = file["/"]
        file["soft"], file["outside"] = h5py.SoftLink("/a/x"), h5py.ExternalLink("/etc/passwd", "/x")
    assert list(open_data(tmp_path / "d.h5").variables) == ["a/x"]


def test_a_claim_of_many_rows(tmp_path):
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file.create_dataset("x", shape=(10**12,), chunks=(1000,), dtype="f8")
    with pytest.raises(DataError, match="that its shape claims, got 0 bytes"):
        open_data(tmp_path / "d.h5").variables["x"].read(slice(0, None, 10**8))
    with h5py.File(tmp_path / "d.nc", "w") as file:
        file.create_dataset("x", shape=(10**12,), chunks=(1000,), dtype="f8").make_scale("x")
    with pytest.raises(DataError, match="that its shape claims, got 0 bytes"):
        read(tmp_path / "d.nc")


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(np.arange(100, dtype="f8").tobytes())
    return path


def external(path, secret):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape=(100,), dtype="f8", external=[(str(secret), 0, 800)])


def virtual(path, secret):
    with h5py.File(secret.with_suffix(".h5"), "w") as file:
        file["x"] = np.arange(100.0)
    layout = h5py.VirtualLayout((100,), "f8")
    layout[:] = h5py.VirtualSource(secret.with_suffix(".h5"), "x", (100,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


@pytest.mark.parametrize("name", ["d.h5", "d.nc"])
@pytest.mark.parametrize("write, what", [(external, "external storage"), (virtual, "a virtual dataset")])
def test_other_files_are_not_read(tmp_path, secret, write, what, name):
    write(tmp_path / name, secret)
    with pytest.raises(DataError, match=f"must hold its own data, got {what}"):
        read(tmp_path / name)


@pytest.mark.parametrize("write", [external, virtual])
def test_other_files_are_not_read_for_a_dataset_that_is_handed_over(tmp_path, secret, write):
    write(tmp_path / "d.h5", secret)
    with h5py.File(tmp_path / "d.h5") as file, pytest.raises(DataError, match="must hold its own data"):
        stored(file["x"])


def test_other_files_are_not_read_by_tables(tmp_path, secret):
    kind = np.dtype([("index", "i8"), ("values_block_0", "f8")])
    with h5py.File(tmp_path / "d.h5", "w") as file:
        file.create_dataset("table/table", shape=(50,), dtype=kind, external=[(str(secret), 0, 800)])
    with pytest.raises(DataError, match="must hold its own data"):
        TableReader(tmp_path / "d.h5")


def npy_header(shape, kind="<f8"):
    text = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def write_member(path, shape, compression):
    """An array of zeros that takes its size on no disc: stored with a gap, or deflated."""
    blank = bytes(1 << 20)
    with zipfile.ZipFile(path, "w", compression, compresslevel=1) as archive:
        for name in ("x.npy", "y.npy"):
            with archive.open(name, "w", force_zip64=True) as file:
                file.write(npy_header(shape))
                for _ in range(int(np.prod(shape)) * 8 >> 20):
                    file.write(blank)


def test_a_large_member_is_read_in_part(tmp_path):
    write_member(tmp_path / "d.npz", (1 << 20, 32), zipfile.ZIP_STORED)  # 256 MB each
    opened = open_data(tmp_path / "d.npz")
    reset_peak()
    before = resident_megabytes()
    assert opened.variables["x"].read(slice(0, None, 10_000)).shape == (105, 32)
    assert peak_megabytes() - before < 50


def test_a_packed_member_beyond_the_limit(tmp_path, monkeypatch):
    write_member(tmp_path / "d.npz", (1 << 16, 16), zipfile.ZIP_DEFLATED)  # 8 MB each
    assert open_data(tmp_path / "d.npz").variables["x"].read(slice(3, None, 30_000)).shape == (3, 16)
    monkeypatch.setattr("atlasd.data.file_limits.MOST_BYTES", 4 << 20)
    with pytest.raises(DataError, match="at most 4 MB in memory, got 8 MB; save it uncompressed"):
        open_data(tmp_path / "d.npz").variables["x"].read(slice(3, None, 30_000))


@pytest.mark.parametrize("shape", [(10**12, 3), (2**32, 2**32), (-5, 3)])
def test_headers_that_lie(tmp_path, shape):
    (tmp_path / "d.npy").write_bytes(npy_header(shape) + bytes(240))
    with zipfile.ZipFile(tmp_path / "d.npz", "w") as archive:
        archive.writestr("x.npy", npy_header(shape) + bytes(240))
    for name in ("d.npy", "d.npz"):
        with pytest.raises(DataError, match=r"truncated|must hold shape|negative"):
            read(tmp_path / name)


def test_a_constant_of_many_rows(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(pyarrow.table({"a": np.zeros(1 << 22), "b": np.zeros(1 << 22)}), tmp_path / "d.parquet")
    assert open_data(tmp_path / "d.parquet").variables["a"].read(slice(5, None, 1 << 20)).shape == (4,)
    monkeypatch.setattr("atlasd.data.file_limits._PACKED", 10)
    with pytest.raises(DataError, match="that its shape claims"):
        open_data(tmp_path / "d.parquet")


def test_a_codec_that_runs_code(tmp_path):
    class Trap:
        def __reduce__(self):
            return open, (str(tmp_path / "sprung"), "w")

    store = tmp_path / "d.zarr"
    xarray.Dataset({"x": (("t",), np.arange(30.0))}).to_zarr(store, consolidated=False, zarr_format=2)
    metadata = json.loads((store / "x" / ".zarray").read_text())
    metadata |= {"compressor": None, "filters": [{"id": "pickle", "protocol": 5}]}
    (store / "x" / ".zarray").write_text(json.dumps(metadata))
    import pickle

    (store / "x" / "0").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match="codecs that only unpack, got 'pickle'"):
        read(store)
    assert not (tmp_path / "sprung").exists()


@pytest.fixture
def store_of_links(tmp_path, secret):
    store = tmp_path / "d.zarr"
    zarr.open_group(str(store), mode="w").create_array("x", data=np.arange(100.0))
    chunk = next(p for p in (store / "x").rglob("*") if p.is_file() and p.name != "zarr.json")
    chunk.unlink()
    chunk.symlink_to(secret)
    return store


def test_a_store_of_links(store_of_links):
    with pytest.raises(DataError, match="must hold its own data, got the symbolic link"):
        read(store_of_links)


def test_a_store_that_claims(tmp_path):
    group = zarr.open_group(str(tmp_path / "d.zarr"), mode="w")
    group.create_array("x", shape=(10**12,), chunks=(1000,), dtype="f8")
    with pytest.raises(DataError, match="that its shape claims"):
        read(tmp_path / "d.zarr")
    group = zarr.open_group(str(tmp_path / "e.zarr"), mode="w")
    group.create_array("x", shape=(10_000, 100, 100), chunks=(1, 1, 1), dtype="f8")
    with pytest.raises(DataError, match="got 0 of its 100000000 chunks"):
        read(tmp_path / "e.zarr")


def test_no_room_on_opening_is_one_line(tmp_path, monkeypatch, capsys):
    from atlasd.cli import main

    np.savez(tmp_path / "d.npz", x=np.ones((30, 3)), y=np.ones(30))

    def full(*_):
        raise MemoryError

    monkeypatch.setattr("atlasd.data.file_numpy.read_variables", full)
    assert main(["discover", str(tmp_path / "d.npz"), "--out", str(tmp_path / "run")]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "must fit into memory" in shown


@pytest.mark.parametrize("code, cause", [("while True: pass", "took more than 2 seconds"), ("os._exit(9)", "crashed")])
def test_a_library_that_loops_or_crashes(tmp_path, monkeypatch, code, cause):
    from atlasd.data import probe

    (tmp_path / "sitecustomize.py").write_text(
        f"import os, sys\nif 'h5py' in str(sys.argv): pass\nimport types\n"
        f"fake = types.ModuleType('atlasd_fake')\n"
        f"def read_variables(path, kind):\n    {code}\n"
        "fake.read_variables = read_variables\nsys.modules['atlasd.data.fake'] = fake\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    probe._helper.cache_clear()
    with pytest.raises(DataError, match=f"must be a complete hdf5 file, got one that {cause}"):
        probe.check_opens(tmp_path / "d.h5", "fake", "hdf5", 2.0)
    probe._helper.cache_clear()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is limited by the system on Linux only")
def test_a_parquet_table_of_many_columns_ends_no_process(tmp_path):
    """On two cores Arrow's own allocator used to take all that the limit leaves, and the process was aborted."""
    pyarrow.parquet.write_table(pyarrow.table({f"c{k}": [1.0] for k in range(20_000)}), tmp_path / "d.parquet")
    code = "import os, sys; os.cpu_count = lambda: 2; from atlasd.data.files import open_data; open_data(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "d.parquet")], capture_output=True, text=True)
    assert done.returncode == 1 and "must have at most 10000 columns" in done.stderr


def test_endless_remarks_are_refused(tmp_path):
    (tmp_path / "d.csv").write_text("# c\n" * 20_000)
    with pytest.raises(DataError, match="at most 10000 remarks"):
        open_data(tmp_path / "d.csv")


def test_a_parquet_table_of_many_rows_is_read_in_part(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    zeros = np.zeros(100_000_000, dtype=np.int8)
    zeros[::1000] = 1
    parquet.write_table(pyarrow.table({"a": zeros}), tmp_path / "d.parquet")
    variable = open_data(tmp_path / "d.parquet").variables["a"]
    del zeros
    gc.collect()
    reset_peak()
    before = resident_megabytes()
    read = variable.read(slice(500, 3_000_000, 250))
    assert len(read) == 11_998 and read.sum() == 2999 and (read[2::4] == 1).all()
    assert peak_megabytes() - before < 300  # the numbers of all rows alone took 800


def packed_zeros(size):
    packer = zlib.compressobj(1)
    return b"".join(packer.compress(bytes(10**6)) for _ in range(size // 10**6)) + packer.flush()


def zarr_of(path, size):
    """A store whose one chunk unpacks to far more than its 200 numbers."""
    zarr.open_group(str(path), mode="w", zarr_format=2).create_array(
        "x", data=np.arange(200.0), chunks=(200,), compressors=numcodecs.Zlib(1)
    )
    (path / "x" / "0").write_bytes(packed_zeros(size))


def hdf5_of(path, size):
    with h5py.File(path, "w") as file:
        data = file.create_dataset("x", (200,), "f8", chunks=(200,), compression="gzip")
        data[:] = 1.0
        data.id.write_direct_chunk((0,), packed_zeros(size))


@pytest.mark.parametrize("write, name", [(zarr_of, "d.zarr"), (hdf5_of, "d.h5")])
def test_a_chunk_that_unpacks_to_far_more_than_itself(tmp_path, monkeypatch, write, name):
    monkeypatch.setattr("atlasd.data.file_limits.MARGIN", 100.0)
    write(tmp_path / name, 400_000_000)
    gc.collect()
    reset_peak()
    before = resident_megabytes()
    with pytest.raises(DataError):
        read(tmp_path / name)
    assert peak_megabytes() - before < 250  # 400 and more without a limit


def test_a_header_that_unpacks_to_megabytes(tmp_path):
    packed = zipfile.ZipFile(tmp_path / "d.npz", "w", zipfile.ZIP_DEFLATED)
    with packed as archive, archive.open("x.npy", "w") as member:
        member.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 200_000_000))
        for _ in range(200):
            member.write(b" " * 1_000_000)
    gc.collect()
    reset_peak()
    before = resident_megabytes()
    with pytest.raises(DataError, match="must be a complete npz file"):
        read(tmp_path / "d.npz")
    assert peak_megabytes() - before < 50


def test_a_name_in_quotes_may_hold_a_line_feed(tmp_path):
    (tmp_path / "d.csv").write_text('a,"b\nc",t\n' + "1,2,3\n" * 30)
    assert list(open_data(tmp_path / "d.csv").variables) == ["a", "b\nc", "t"]
    assert open_data(tmp_path / "d.csv").variables["b\nc"].read(slice(0, 30)).tolist() == [2] * 30


def test_vectors_that_no_search_could_transform_are_not_read(tmp_path):
    np.savez(tmp_path / "d.npz", x=np.random.default_rng(0).standard_normal((30, 65)), y=np.arange(30.0))
    with pytest.raises(InputError, match="at most 64 components, got 65"):
        read_own(choose([open_data(tmp_path / "d.npz")]), Cleaning())


def test_links_in_a_store_that_is_handed_over(store_of_links):
    with pytest.raises(DataError, match="must hold its own data, got the symbolic link"):
        stored(zarr.open_group(str(store_of_links), mode="r")["x"])
