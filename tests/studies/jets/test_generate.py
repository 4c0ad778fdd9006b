"""Jets from Pythia: the reference set's selection and form, the same for any number of workers, resumable."""

import json

import numpy as np
import pytest

from atlasd.cli import main
from atlasd.errors import DataError, InputError
from atlasd.studies.jets import generate as jets
from atlasd.studies.jets.data import load_jets
from atlasd.studies.jets.generate import JetSettings, generate_jets, generate_shard

FEW = JetSettings(constituents=20)


def fake_shard(count, settings, seed, number):
    """Quick stand-in for the generator: shard and seed can be read from the momenta."""
    momenta = np.zeros((count, settings.constituents, 4), np.float32)
    momenta[:, 0] = (100.0 * seed + number + 1, 1.0, 2.0, 3.0)
    return {"momenta": momenta, "label": np.arange(count) % 2, "truth": np.zeros((count, 4), np.float32)}


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(jets, "generate_shard", fake_shard)
    monkeypatch.setattr(jets, "load_generators", lambda: (None, None))


def test_shards_become_one_file(fake, tmp_path):
    path = generate_jets(tmp_path / "train.npz", 25, settings=FEW, shard=10)
    momenta, labels = load_jets(path)
    assert momenta.shape == (25, 20, 4) and labels.tolist() == [*[0, 1] * 5, *[0, 1] * 5, 0, 1, 0, 1, 0]
    assert momenta[:, 0, 0].tolist() == [1.0] * 10 + [2.0] * 10 + [3.0] * 5
    assert list(tmp_path.iterdir()) == [path]  # the shards are gone
    with pytest.raises(InputError, match="must not exist yet"):
        generate_jets(path, 25)


def test_command(fake, tmp_path, capsys):
    assert main(["data", "jets", "--count", "12", "--workers", "1", "--out", str(tmp_path), "-q"]) == 0
    path = tmp_path / "jets-12-seed0.npz"
    assert capsys.readouterr().out.strip() == str(path) and len(load_jets(path)[1]) == 12


def test_goes_on_where_it_stopped(fake, tmp_path, monkeypatch):
    made = []

    def failing(count, settings, seed, number):
        made.append(number)
        if made == [0, 1]:
            raise KeyboardInterrupt
        return fake_shard(count, settings, seed, number)

    monkeypatch.setattr(jets, "generate_shard", failing)
    with pytest.raises(KeyboardInterrupt):
        generate_jets(tmp_path / "a.npz", 30, settings=FEW, shard=10)
    assert not (tmp_path / "a.npz").exists()
    generate_jets(tmp_path / "a.npz", 30, settings=FEW, shard=10)
    assert made == [0, 1, 1, 2]


def test_other_settings_do_not_mix(fake, tmp_path):
    folder = tmp_path / "a.npz.shards"
    folder.mkdir()
    (folder / "settings.json").write_text(json.dumps({"seed": 3}))
    with pytest.raises(InputError, match="holds jets made with another"):
        generate_jets(tmp_path / "a.npz", 30, settings=FEW, shard=10)


def test_without_the_extra(tmp_path, monkeypatch):
    def missing(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(jets.importlib, "import_module", missing)
    with pytest.raises(DataError, match=r"pip install 'atlasd\[jets\]'"):
        generate_jets(tmp_path / "a.npz", 10)


def test_bad_settings(tmp_path):
    with pytest.raises(InputError, match="0 < lowest < highest"):
        JetSettings(lowest=700.0)
    with pytest.raises(InputError, match="must be positive, got 0"):
        generate_jets(tmp_path / "a.npz", 0)


@pytest.mark.slow
def test_real_jets_have_the_reference_selection():
    pytest.importorskip("pythia8mc")
    pytest.importorskip("fastjet")
    made = generate_shard(10, JetSettings(), 0, 0)
    again = generate_shard(10, JetSettings(), 0, 0)
    assert all(np.array_equal(made[key], again[key]) for key in made)
    total = made["momenta"].astype(float).sum(1)
    pt = np.hypot(total[:, 1], total[:, 2])
    mass = np.sqrt(total[:, 0] ** 2 - (total[:, 1:] ** 2).sum(-1))
    assert (pt > 540).all() and (pt < 660).all()
    tops = made["label"] == 1
    assert tops.sum() == 5 and 120 < np.median(mass[tops]) < 240
    truth = made["truth"].astype(float)
    assert np.abs(np.sqrt((truth[tops] ** 2) @ [1, -1, -1, -1]) - 173).max() < 60 and not truth[~tops].any()
    leading = np.hypot(made["momenta"][..., 1], made["momenta"][..., 2])
    assert (np.diff(leading, axis=1) <= 1e-3).all()  # hardest first
