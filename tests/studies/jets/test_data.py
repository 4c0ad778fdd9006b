"""Jets: files, and scores of taggers."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from writers import TableWriter

from atlasd.data.pandas_table import TableReader
from atlasd.errors import DataError, InputError
from atlasd.runtime.random import stream
from atlasd.studies.jets.data import find_jets, jet_columns, jet_count, load_jets, read_jets
from atlasd.studies.jets.downstream import accuracy, auroc, background_rejection

PANDAS = Path(__file__).parent / "files" / "written_by_pandas.h5"
TRUTH = ["truthE", "truthPX", "truthPY", "truthPZ"]


def some_jets(count, constituents, seed=0):
    """Light-like constituents, the later ones missing in some jets."""
    rng = np.random.default_rng(seed)
    p = rng.normal(size=(count, constituents, 3))
    momenta = np.concatenate([np.linalg.norm(p, axis=-1, keepdims=True), p], -1).astype(np.float32)
    momenta[::2, constituents // 2 + 1 :] = 0
    return momenta, rng.integers(0, 2, count)


def write_reference(path, momenta, labels, constituents=200, part=100):
    """A file of exactly the reference set's form."""
    blocks = [([*jet_columns(constituents), *TRUTH], "float32"), (["ttv", "is_signal_new"], "int64")]
    with TableWriter(path, blocks) as table:
        for start in range(0, len(momenta), part):
            piece = momenta[start : start + part]
            values = np.zeros((len(piece), 4 * constituents + 4), dtype=np.float32)
            values[:, : piece.shape[1] * 4] = piece.reshape(len(piece), -1)
            label = labels[start : start + part]
            table.append([values, np.stack([np.zeros_like(label), label], 1)])
    return path


@pytest.fixture
def reference(tmp_path):
    momenta, labels = some_jets(250, 12)
    return write_reference(tmp_path / "train.h5", momenta, labels), momenta, labels


def test_reads_what_pandas_wrote():
    momenta, labels = load_jets(PANDAS)
    assert momenta.shape == (4, 3, 4) and momenta.dtype == torch.float32
    assert labels.tolist() == [0, 1, 1, 0]
    assert (momenta[1, 2] == 0).all() and (momenta[0, 2] != 0).all()
    torch.testing.assert_close(momenta[..., 0], momenta[..., 1:].norm(dim=-1), atol=0.02, rtol=0.0)


def test_writer_lays_tables_out_like_pandas(reference):
    with h5py.File(PANDAS) as theirs, h5py.File(reference[0]) as ours:
        a, b = theirs["table/table"], ours["table/table"]
        assert a.dtype.names == b.dtype.names == ("index", "values_block_0", "values_block_1")
        assert a.attrs["values_block_1_kind"] == b.attrs["values_block_1_kind"]
        assert set(a.attrs) - set(b.attrs) <= {"FIELD_0_FILL", "FIELD_1_FILL", "FIELD_2_FILL"}
        assert bytes(theirs["table"].attrs["values_cols"]) == bytes(ours["table"].attrs["values_cols"])


def test_batches_are_the_whole_in_order(reference):
    path, momenta, labels = reference
    parts = list(read_jets(path, batch=64, constituents=12))
    assert [len(y) for _, y in parts] == [64, 64, 64, 58]
    assert np.array_equal(torch.cat([m for m, _ in parts]), momenta)
    assert torch.cat([y for _, y in parts]).tolist() == labels.tolist()
    assert jet_count(path) == 250
    whole, _ = load_jets(path)
    assert whole.shape == (250, 200, 4) and not whole[:, 12:].any()


def test_some_jets_and_leading_constituents(reference):
    path, momenta, _ = reference
    few, _ = load_jets(path, samples=10, constituents=3)
    assert np.array_equal(few, momenta[:10, :3])
    (part,) = list(read_jets(path, start=240, stop=500, constituents=2))
    assert np.array_equal(part[0], momenta[240:, :2])


def test_arrays(tmp_path):
    momenta, labels = some_jets(20, 5)
    path = tmp_path / "jets.npz"
    np.savez(path, momenta=momenta, label=labels)
    found, y = load_jets(path, constituents=4)
    assert np.array_equal(found, momenta[:, :4]) and y.tolist() == labels.tolist()
    assert jet_count(path) == 20
    with pytest.raises(DataError, match="must have 6 constituents, got 5; set constituents=5"):
        load_jets(path, constituents=6)
    np.savez(path, momenta=momenta)
    with pytest.raises(DataError, match="must hold `label`, got momenta"):
        load_jets(path)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"must be a complete \.npz file"):
        load_jets(path)


def test_missing_columns(tmp_path):
    path = tmp_path / "few.h5"
    with TableWriter(path, [(["E_0", "PX_0", "PY_0"], "float32"), (["is_signal_new"], "int64")]) as table:
        table.append([np.ones((3, 3), np.float32), np.ones((3, 1), np.int64)])
    with pytest.raises(DataError, match=r"must have the column PZ_0, got 4 columns \(E_0, PX_0, PY_0, \.\.\.\)"):
        load_jets(path)
    with pytest.raises(DataError, match="must have the column PZ_0 and 4 more"):
        load_jets(path, constituents=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m[7].__imul__(0), "at least one constituent in every jet, got none in 1 of .*first: jet 7"),
        (lambda m: m[7, 0, :1].__imul__(-1), "positive energies in every jet, got a negative .*first: jet 7"),
        (lambda m: m[7, 0].__imul__(np.nan), "finite momenta in every jet, got NaN .*first: jet 7"),
    ],
)
def test_bad_jets_are_named_or_left_out(tmp_path, change, message):
    momenta, labels = some_jets(20, 4)
    change(momenta)
    path = write_reference(tmp_path / "bad.h5", momenta, labels, constituents=6)
    with pytest.raises(DataError, match=message):
        load_jets(path)
    kept, y = load_jets(path, invalid="drop")
    assert len(kept) == 19 and y.tolist() == np.delete(labels, 7).tolist()


def test_bad_files(tmp_path, reference):
    with pytest.raises(DataError, match="must be an HDF5 file, got nothing there"):
        load_jets(tmp_path / "no.h5")
    whole = reference[0].read_bytes()
    cut = tmp_path / "cut.h5"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"must be a complete HDF5 file, got one that cannot be read \(.*truncated"):
        load_jets(cut)
    text = tmp_path / "text.h5"
    text.write_text("E_0,PX_0\n1,2\n")
    with pytest.raises(DataError, match="must be a complete HDF5 file"):
        load_jets(text)
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["images"] = np.zeros(3)
    with pytest.raises(DataError, match="must hold a table `table/table`, got images"):
        load_jets(tmp_path / "other.h5")
    empty = write_reference(tmp_path / "empty.h5", *some_jets(0, 3), constituents=3)
    with pytest.raises(DataError, match="must hold at least one jet, got none"):
        load_jets(empty)
    with pytest.raises(InputError, match="`batch` and `constituents` must be positive"):
        next(read_jets(reference[0], batch=0))


def test_broken_rows_are_told_where(tmp_path):
    momenta, labels = some_jets(3000, 2)
    path = write_reference(tmp_path / "rot.h5", momenta, labels, constituents=2, part=3000)
    with h5py.File(path) as file:
        chunk = file["table/table"].id.get_chunk_info(1)
    content = bytearray(path.read_bytes())
    content[chunk.byte_offset : chunk.byte_offset + chunk.size] = b"\xff" * chunk.size
    path.write_bytes(content)
    assert len(load_jets(path, samples=1024)[1]) == 1024
    with pytest.raises(DataError, match="must be readable to its end, got a fault at rows 0 to 3000"):
        load_jets(path)


def test_names_of_columns_are_read_and_never_run(tmp_path):
    path = write_reference(tmp_path / "train.h5", *some_jets(3, 2), constituents=2)
    ran = tmp_path / "ran"
    evil = f"(lp0\ncos\nsystem\n(Vtouch {ran}\ntRp1\naVE_0\np2\na.".encode()
    with h5py.File(path, "r+") as file:
        file["table/table"].attrs["values_block_0_kind"] = np.bytes_(evil)
    with TableReader(path) as table:
        assert "E_0" in table.columns
    assert not ran.exists()


def test_where_jets_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLASD_DATA", str(tmp_path))
    with pytest.raises(DataError, match="run `atlasd data top-tagging`, or set ATLASD_DATA"):
        find_jets()
    np.savez(tmp_path / "jets_pythia.npz", momenta=some_jets(4, 2)[0], label=np.zeros(4))
    assert find_jets() == tmp_path / "jets_pythia.npz"
    (tmp_path / "top-tagging").mkdir()
    path = write_reference(tmp_path / "top-tagging" / "val.h5", *some_jets(3, 2), constituents=2)
    assert find_jets("val") == path


LABEL = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0])


def test_perfect_reversed_and_constant():
    best = LABEL * 2.0 - 1
    assert auroc(best, LABEL) == 1 and auroc(-best, LABEL) == 0 and auroc(0 * best, LABEL) == 0.5
    assert accuracy(best, LABEL) == 1 and accuracy(-best, LABEL) == 0
    assert background_rejection(best, LABEL, 0.5) == 8  # none passes: half an event
    assert background_rejection(0 * best, LABEL, 0.5) == 1


def test_area_is_the_share_of_ordered_pairs():
    score = torch.randn(300, generator=stream(0, "scores")).round(decimals=1)
    label = torch.randint(2, (300,), generator=stream(0, "labels"))
    score += label
    a, b = score[label == 1][:, None], score[label == 0][None]
    pairs = ((a > b).double() + 0.5 * (a == b).double()).mean()
    assert auroc(score, label) == pytest.approx(float(pairs), abs=1e-12)


def test_rejection_counts_at_the_cut():
    score = torch.tensor([9.0, 7.0, 5.0, 3.0, 8.0, 6.0, 4.0, 2.0])
    assert background_rejection(score, LABEL, 0.25) == 8
    assert background_rejection(score, LABEL, 0.5) == 4
    assert background_rejection(score, LABEL, 0.51) == 2
    assert background_rejection(score, LABEL, 1.0) == pytest.approx(4 / 3)
    ten = torch.cat([torch.arange(10.0), torch.tensor([6.5, 5.5])])
    assert background_rejection(ten, (torch.arange(12) < 10).long(), 0.3) == 4  # 3 of 10, not 4


@pytest.mark.parametrize(
    "score, label, message",
    [
        (torch.ones(3), torch.ones(2), "one shape"),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([0, 1]), "finite"),
        (torch.ones(2), torch.ones(2), "both 1 and 0"),
    ],
)
def test_bad_input(score, label, message):
    with pytest.raises(InputError, match=message):
        auroc(score, label)


def test_bad_efficiency():
    with pytest.raises(InputError, match="`efficiency`"):
        background_rejection(torch.ones(8), LABEL, 0.0)
