"""Results: saved whole, loaded the same, and refused where they were changed."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

import atlasd as ad
from atlasd.errors import DataError


@pytest.fixture(scope="module")
def found(exact):
    return ad.discover(exact.normal(300, 2), function=lambda x: x.norm(dim=-1), seed=3, progress=False)


@pytest.fixture
def saved(found, tmp_path):
    return found.save(tmp_path / "run", experiment="test")


def change(directory, edit):
    path = directory / "result.json"
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def test_round_trip(found, saved):
    again = ad.load(saved)
    assert torch.equal(again.algebra.basis, found.algebra.basis) and torch.equal(again.cosets, found.cosets)
    assert again.group.name == found.group.name == "O(2)" and again.verdict == found.verdict
    assert again.spectrum == found.spectrum and again.seed == 3 and again.predictor == found.predictor
    assert again.to_dict("test") == found.to_dict("test")
    assert str(again) == str(found)


def test_fields_round_trip_with_curves_and_charts(exact, waves, tmp_path):
    x = waves(40, (25, 25), length=8.0)
    atlas = ad.Atlas.at([(12, 12)], in_radius=10, out_radius=8)
    found = ad.discover(x, function=lambda u: 0 * u, atlas=atlas, progress=False)
    again = ad.load(found.save(tmp_path))
    assert math.isnan(again.charts[0].error) and again.charts[0].center == (12.0, 12.0)
    assert again.group.dimension == 0 and again.verdict == found.verdict


def test_schema(saved):
    content = json.loads((saved / "result.json").read_text())
    expected = {"schema", "experiment", "config", "seed", "version", "group", "generators", "cosets", "spectrum"}
    assert expected | {"verdict", "predictor", "charts", "metrics", "paper", "seconds"} <= set(content)
    assert content["schema"] == 2 and content["experiment"] == "test" and content["version"] == ad.__version__
    assert set(content["group"]) == {"name", "algebra", "dimension", "components", "component_group"}
    assert {"symmetric", "reason", "directions"} <= set(content["verdict"])
    names = {"strength", "lower", "upper", "sensitivity", "coverage", "decision", "reason"}
    assert names <= set(content["verdict"]["directions"][0])
    assert set(content["predictor"]) == {"kind", "skill", "samples", "seconds"}
    assert {"center", "error", "outlier"} <= set(content["charts"][0])
    assert content["seconds"]["total"] == pytest.approx(sum(v for k, v in content["seconds"].items() if k != "total"))


def test_extra_entries(found, tmp_path):
    found.save(tmp_path, metrics={"error_deg": 0.5, "worst": math.inf, "g": torch.eye(2)})
    content = json.loads((tmp_path / "result.json").read_text())
    assert content["metrics"] == {"error_deg": 0.5, "worst": None, "g": [[1.0, 0.0], [0.0, 1.0]]}


@pytest.mark.parametrize("schema", [0, 3, "1", None])
def test_another_schema_is_refused(saved, schema):
    change(saved, lambda content: content.update(schema=schema))
    with pytest.raises(DataError, match=r"must have schema 1 or 2, got .*; run it again"):
        ad.load(saved)


@pytest.mark.parametrize("key", ["verdict", "predictor", "charts", "spectrum", "seconds", "seed", "config"])
def test_a_missing_entry_is_refused(saved, key):
    change(saved, lambda content: content.pop(key))
    with pytest.raises(DataError, match=f"is not a result of atlasd.*{key}"):
        ad.load(saved)


@pytest.mark.parametrize(
    "edit",
    [
        lambda content: content.update(charts=3),
        lambda content: content.update(verdict=[]),
        lambda content: content["verdict"].update(directions=[{}]),
        lambda content: content["predictor"].update(samples="many"),
        lambda content: content.update(seconds=[1.0]),
        lambda content: content.update(generators=[[[0.0, 1.0], [0.0, 0.0]]]),
        lambda content: content.update(cosets=content["cosets"][:1]),
    ],
)
def test_changed_entries_are_refused(saved, edit):
    change(saved, edit)
    with pytest.raises(DataError, match=r"result\.json"):
        ad.load(saved)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "null", "nonsense"])
def test_broken_json_is_refused(saved, text):
    (saved / "result.json").write_text(text)
    with pytest.raises(DataError, match=r"result\.json"):
        ad.load(saved)


def test_broken_tensors_are_refused(saved):
    path = saved / "tensors.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"tensors\.safetensors"):
        ad.load(saved)
    path.unlink()
    with pytest.raises(DataError, match=r"must be a run directory with result.json and tensors.safetensors"):
        ad.load(saved)


def test_missing_and_misshapen_tensors_are_refused(saved):
    path = saved / "tensors.safetensors"
    tensors = load_file(str(path))
    for bad in ({}, {**tensors, "generators": torch.zeros(2, 2)}, {**tensors, "cosets": torch.zeros(1, 3, 3)}):
        save_file(bad, str(path))
        with pytest.raises(DataError, match="run it again"):
            ad.load(saved)


def test_not_a_directory(tmp_path):
    with pytest.raises(DataError, match="must be a run directory"):
        ad.load(tmp_path / "nowhere")


def test_text_is_a_short_table(found):
    lines = str(found).splitlines()
    assert lines[0].startswith("O(2)") and lines[2].split() == ["breaking", "at", "most", "decision", "why"]
    assert [line.split()[0] for line in lines[3:5]] == ["generator", "coset"] and len(lines) < 12
    assert all(len(line) < 120 for line in lines)


def test_notebook(found):
    shown = found._repr_html_()
    assert "<b>O(2)</b>" in shown and "✓ symmetry" in shown and "<script" not in shown


def test_plots(found, tmp_path):
    figures = found.plot(tmp_path)
    assert {"generators", "cosets", "spectrum"} <= set(figures)
    assert {p.name for p in tmp_path.iterdir()} >= {"generators.svg", "generators.png", "spectrum.svg"}
