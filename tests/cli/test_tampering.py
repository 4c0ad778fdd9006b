"""Results that were changed and given a new digest: shown if they have the form of a result, else one line."""

import json
import random

import pytest
import torch
from damage import places
from safetensors.torch import load_file, save_file

import atlasd as ad
from atlasd.cli import main
from atlasd.discovery.digest import digest
from atlasd.discovery.frames import Frames, Picture, Track
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.result import ChartFinding, Discovery, Verdict
from atlasd.errors import DataError
from atlasd.runtime.content import MOST_JSON
from atlasd.runtime.memory import peak_megabytes, reset_peak, resident_megabytes

TURN = torch.tensor([[[0.0, -1.0], [1.0, 0.0]]], dtype=torch.float64)
WRONG = [None, 3, -1.5, "x", [], {}, [[1.0]], True, 10**400, {"a": {"b": []}}, ["x", None]]


def track():
    t = torch.linspace(-1, 1, 3)
    return Track("generator 1", t, torch.eye(2).expand(3, 2, 2), t.abs(), torch.ones(3), torch.ones(3))


@pytest.fixture
def run(tmp_path):
    found = Discovery(
        group=ad.Group(ad.LieAlgebra(TURN)),
        verdict=Verdict(True, "It holds."),
        charts=(ChartFinding((8.0, 8.0), 0.01, False, 0.99),),
        spectrum=(0.001, 0.9),
        predictor=PredictorSummary("stencil", 0.99, 60, 0.1),
        seconds={"search": 1.0},
        frames=Frames((track(),), Picture(torch.zeros(4, 4, dtype=torch.uint8), 0.0, 1.0), (16, 16), (3.0, 2.0)),
    )
    return found.save(tmp_path / "run", "fake", metrics={"angle_deg": 0.5}, command="atlasd run fake")


def redigest(directory, edit):
    content = json.loads((directory / "result.json").read_text())
    edit(content)
    content["digest"] = digest(content, load_file(str(directory / "tensors.safetensors")))
    (directory / "result.json").write_text(json.dumps(content))


def put(content, path, value):
    for key in path[:-1]:
        content = content[key]
    content[path[-1]] = value


def test_wrong_types_with_a_new_digest_are_one_line(run, capsys):
    chance = random.Random(0)
    whole = (run / "result.json").read_text()
    everywhere = list(places(json.loads(whole)))
    statuses = []
    for path in everywhere:
        (run / "result.json").write_text(whole)
        try:
            redigest(run, lambda content, path=path: put(content, path, chance.choice(WRONG)))
        except ValueError:  # a number that no program writes
            continue
        capsys.readouterr()
        statuses.append(main(["report", str(run)]))
        shown = capsys.readouterr().err
        assert statuses[-1] in (0, 2) and "Traceback" not in shown and shown.count("\n") == (statuses[-1] == 2), path
    assert statuses.count(2) > 20 and len(statuses) > 60


@pytest.mark.parametrize("levels", [700, 100_000])
def test_nested_deep(run, capsys, levels):
    content = json.loads((run / "result.json").read_text())
    text = json.dumps(content)[:-1] + ', "deep": ' + "[" * levels + "]" * levels + "}"
    (run / "result.json").write_text(text)
    assert main(["report", str(run)]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "levels" in shown


def test_frames_are_covered_by_the_digest(run, capsys):
    assert ad.load(run).frames is not None
    path = run / "frames.safetensors"
    tensors = load_file(str(path))
    key = next(k for k in tensors if k.endswith("/miss"))
    save_file({**tensors, key: torch.zeros_like(tensors[key])}, str(path))
    assert main(["report", str(run)]) == 2
    assert "frames.safetensors` must be as atlasd wrote it, got another digest; remove it" in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(DataError, match=r"^`[^`]*frames.safetensors` is damaged: [^`]*; remove it to do without"):
        ad.load(run)
    path.unlink()
    assert ad.load(run).frames is None


def test_results_of_the_first_schema_that_cover_no_files_are_read(run):
    redigest(run, lambda content: content.pop("files"))
    assert ad.load(run).frames is not None


def test_large_and_strange_files(run, monkeypatch):
    (run / "result.json").write_text("[" + "[]," * (MOST_JSON >> 5) + "[]]")
    reset_peak()
    before = resident_megabytes()
    with pytest.raises(DataError, match="must have schema"):
        ad.load(run)
    assert peak_megabytes() - before < 1000 * 3 / 32  # a file of the largest size would take less than 1 GB
    monkeypatch.setattr("atlasd.runtime.content.MOST_JSON", 100)
    with pytest.raises(DataError, match="at most 100 bytes"):
        ad.load(run)


def test_lists_without_end(run, capsys):
    chart = {"center": [8.0, 8.0], "error": 0.1, "outlier": False, "skill": 0.9, "reason": ""}
    whole = (run / "result.json").read_text()
    for edit in (
        lambda c: c.update(spectrum=[0.5] * 20_000),
        lambda c: c.update(charts=[chart] * 20_000),
        lambda c: c["metrics"].update(rows=[{"a": 1}] * 20_000),
    ):
        (run / "result.json").write_text(whole)
        redigest(run, edit)
        assert main(["report", str(run)]) == 2
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1 and "at most 10000 entries, got 20000" in shown


def test_rows_that_share_no_column(run, capsys):
    """A table of 300 x 60,000 cells took half a minute and 2.6 GB."""
    redigest(run, lambda c: c["metrics"].update(rows=[{f"{i} {k}": 1 for k in range(200)} for i in range(300)]))
    assert main(["report", str(run)]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "a table of at most 1000000 cells" in shown
