"""The comparison of taggers, on jets small enough for a test."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.known import lorentz, orthogonal
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.result import Discovery, Verdict
from atlasd.errors import DataError, InputError
from atlasd.nn.metric_gnn import minkowski
from atlasd.nn.metrics import save_metric
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.runtime.stages import resuming
from atlasd.studies.jets import downstream as module
from atlasd.studies.record import execute, plan_run

QUICK = ["train=60", "test=60", "constituents=4", "hidden=6", "layers=2", "epochs=2", "elements=2"]


@pytest.fixture
def place(tmp_path):
    """A directory with jets, a discovered Lorentz group and LieGAN's metric."""
    generator = stream(0, "jets")
    p = 10 * torch.randn(120, 5, 3, generator=generator)
    momenta = torch.cat([p.norm(dim=-1, keepdim=True) + 0.1, p], -1)
    total = momenta.sum(1)
    mass = total[:, 0] ** 2 - total[:, 1:].square().sum(-1)
    momenta[::3, 3:] = 0
    np.savez(tmp_path / "jets.npz", momenta=momenta.numpy(), label=(mass > mass.median()).numpy().astype(np.uint8))
    by_hand(lorentz(2)).save(tmp_path / "lorentz")
    save_metric(minkowski() + 0.01, tmp_path / "liegan.json")
    return tmp_path


def by_hand(group):
    return Discovery(group, Verdict(True, "by hand"), (), (), PredictorSummary("none", 1.0, 1, 0.0), {})


def settings(place, *more):
    files = {"jets": "jets.npz", "discovery": "lorentz", "liegan": "liegan.json"}
    return [*QUICK, *(f"{key}={place / name}" for key, name in files.items()), *more]


def test_all_five_and_what_they_are_invariant_to(place):
    plan = plan_run("top-tagging-downstream", settings(place, "seeds=2"), out=place / "run")
    metrics = execute(plan, Silent()).content["metrics"]
    rows = {row["model"]: row for row in metrics["rows"]}
    assert list(rows) == ["LorentzNet", "AtlasGNN", "LieGNN", "LorentzNet (w/o)", "EGNN"]
    assert metrics["metric_cosine"] == pytest.approx(1) and 0.99 < metrics["liegan_cosine"] < 1
    for row in rows.values():
        assert 0 <= row["auroc"] <= 1 and row["auroc_sd"] >= 0 and row["parameters"] > 0
    assert rows["AtlasGNN"]["auroc"] == pytest.approx(rows["LorentzNet"]["auroc"], abs=0.02)  # the exact metric
    assert rows["AtlasGNN"]["paper_auroc"] == 0.9852 and len(metrics["each"]) == 10
    change = {row["model"]: row for row in metrics["equivariance"]}
    for when in ("before", "after"):
        for model in ("LorentzNet", "AtlasGNN"):
            assert change[model][f"found_{when}"] < 1e-6 and change[model][f"lorentz_{when}"] < 1e-6
        for model in rows:
            assert change[model][f"outside_{when}"] > 1e-3
        for model in ("LorentzNet (w/o)", "EGNN", "LieGNN"):
            assert change[model][f"lorentz_{when}"] > 1e-4
    names = {path.name for path in (place / "run").iterdir()}
    assert "result.json" in names and "stages" not in names


def test_a_killed_run_goes_on_where_it_was(place, monkeypatch):
    words = settings(place, "seeds=1")
    measure, done = module._measure, []

    def killed(config, name, *rest):
        if name == "EGNN" and not done.count("killed"):
            done.append("killed")
            raise KeyboardInterrupt
        done.append(name)
        return measure(config, name, *rest)

    monkeypatch.setattr(module, "_measure", killed)
    with pytest.raises(KeyboardInterrupt):
        execute(plan_run("top-tagging-downstream", words, out=place / "run"), Silent())
    assert (place / "run" / "stages" / "manifest.json").is_file() and not (place / "run" / "result.json").exists()
    with resuming():
        recorded = execute(plan_run("top-tagging-downstream", words, out=place / "run"), Silent())
    assert done == ["LorentzNet", "AtlasGNN", "LieGNN", "LorentzNet (w/o)", "killed", "EGNN"]
    again = execute(plan_run("top-tagging-downstream", words, out=place / "other"), Silent())
    for one, other in zip(recorded.content["metrics"]["each"], again.content["metrics"]["each"], strict=True):
        assert {**one, "seconds": 0} == {**other, "seconds": 0}


def test_metrics_are_found_in_the_jets_unless_given(place, monkeypatch):
    """The two searches are replaced by what they would find: here it matters what each is asked, and how often."""
    asked = []

    def discovered(x, y, **options):
        asked.append(("discovery", tuple(x.shape)))
        return by_hand(lorentz(2))

    class Game:
        def __init__(self, **options):
            assert options == {"generators": 7, "steps": 3}

        def find_in_data(self, x, y, **options):
            asked.append(("liegan", (len(x), 1, *x.shape[1:]), int(y.max()) + 1))
            return SimpleNamespace(basis=lorentz(1).algebra.basis)

    monkeypatch.setattr(module, "discover", discovered)
    monkeypatch.setattr(module, "LieGAN", Game)
    words = [w for w in settings(place, "seeds=1", "liegan_steps=3") if w.split("=")[0] not in ("discovery", "liegan")]
    measure = module._measure
    monkeypatch.setattr(module, "_measure", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        execute(plan_run("top-tagging-downstream", words, out=place / "run"), Silent())
    monkeypatch.setattr(module, "_measure", measure)
    with resuming():
        recorded = execute(plan_run("top-tagging-downstream", words, out=place / "run"), Silent())
    # Sixty of the 120 jets are to be tested on, and no search sees them. A discovery goes on from stages of its own.
    first = ("discovery", (60, 5, 4))
    assert asked == [first, ("liegan", (60, 1, 2, 4), 2), first]
    assert recorded.discovery.group.name == "O+(1,3)"
    assert recorded.content["metrics"]["liegan_cosine"] == pytest.approx(1)


def test_nothing_found_means_no_metric(place, monkeypatch):
    nothing = by_hand(Group(LieAlgebra(torch.zeros(0, 4, 4))))
    monkeypatch.setattr(module, "discover", lambda *arguments, **options: nothing)
    words = [w for w in settings(place) if not w.startswith("discovery=")]
    with pytest.raises(DataError, match="no metric: nothing was found in 60 jets"):
        execute(plan_run("top-tagging-downstream", words, out=place / "run"), Silent())


@pytest.mark.parametrize(
    "more, error, message",
    [
        (["train=61"], DataError, "must hold 121 jets, got 120"),
        (["liegan=nowhere.json"], DataError, "JSON file with a metric"),
        (["jets=nowhere.npz"], DataError, "nowhere.npz"),
    ],
)
def test_bad_input(place, more, error, message):
    keys = {m.split("=")[0] for m in more}
    words = [w for w in settings(place) if w.split("=")[0] not in keys]
    with pytest.raises(error, match=message) as caught:
        execute(plan_run("top-tagging-downstream", [*words, *more], out=place / "run"), Silent())
    assert "\n" not in str(caught.value) and not (place / "run").exists()


def test_a_discovery_of_something_else(place):
    by_hand(orthogonal(2)).save(place / "plane")
    words = [w for w in settings(place) if not w.startswith("discovery=")]
    with pytest.raises(DataError, match="symmetry of four-vectors"):
        execute(plan_run("top-tagging-downstream", [*words, f"discovery={place / 'plane'}"]), Silent())


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_no_gpu(place):
    with pytest.raises(InputError, match="device=cpu"):
        execute(plan_run("top-tagging-downstream", settings(place, "device=cuda")), Silent())


def test_the_metric_is_taken_as_it_was_found_or_rounded(place):
    exact = lorentz(2)
    frame = torch.eye(4, dtype=torch.float64) + 0.004
    tilted = Group(
        LieAlgebra(frame @ exact.algebra.basis @ torch.linalg.inv(frame)),
        frame @ exact.cosets @ torch.linalg.inv(frame),
    )
    by_hand(tilted).save(place / "lorentz")
    cosines = []
    for words in (("within=0.05",), ()):
        plan = plan_run("top-tagging-downstream", settings(place, "seeds=1", *words), out=place / f"run{len(words)}")
        metrics = execute(plan, Silent()).content["metrics"]
        cosines.append(metrics["rounded_cosine"])
        rows = {row["model"]: row["auroc"] for row in metrics["rows"]}
        assert (rows["AtlasGNN"] == rows["LorentzNet"]) == bool(words)
    assert cosines[0] == pytest.approx(1, abs=1e-12) and cosines[1] < 0.99999
