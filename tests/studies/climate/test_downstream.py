"""Climate maps on the vertices, scores against every expert, and the comparison on small data."""

import json
import math

import pytest
import torch
from torch import nn
from writers import write_climate, write_map

from atlasd.errors import DataError, InputError
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.runtime.stages import keeping, resuming
from atlasd.studies import find_experiment
from atlasd.studies.climate import downstream
from atlasd.studies.climate.synthetic import synthetic_climate
from atlasd.studies.climate.vertices import VertexMaps, agreement, given_maps, score_maps, synthetic_maps
from atlasd.studies.config import configure

SMALL = {"train": 3, "test": 2, "experts": 2, "rows": 32, "width": 2, "epochs": 2, "seeds": 1, "average": 0.5}


class Fixed(nn.Module):
    """Gives the classes it was told to give."""

    def __init__(self, given):
        super().__init__()
        self.given = given

    def forward(self, x):
        return nn.functional.one_hot(self.given, 3).mT[None].float()


def test_scores_are_means_over_experts_and_then_over_maps():
    given = torch.tensor([0, 0, 1, 2])
    same, other = given, torch.tensor([0, 1, 1, 2])
    maps = VertexMaps(torch.zeros(2, 1, 4), (torch.stack([same, other]), same[None]))
    scores = score_maps(Fixed(given), maps)
    assert scores["iou_bg"] == pytest.approx(((1 + 0.5) / 2 + 1) / 2)
    assert scores["iou_tc"] == pytest.approx(((1 + 0.5) / 2 + 1) / 2)
    assert scores["iou_ar"] == 1
    assert scores["mean_iou"] == pytest.approx((0.875 + 0.875 + 1) / 3)
    assert scores["precision"] == pytest.approx((0.875 + 1 + 1) / 3)
    assert scores["recall"] == pytest.approx((1 + 0.875 + 1) / 3)


def test_experts_are_compared_where_a_map_has_several():
    a, b = torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 2])
    maps = VertexMaps(torch.zeros(2, 1, 4), (torch.stack([a, b]), a[None]))
    assert agreement(maps) == pytest.approx({"iou_bg": 0.5, "iou_tc": 0.5, "iou_ar": 1.0, "mean_iou": 2 / 3})
    assert agreement(VertexMaps(torch.zeros(1, 1, 4), (a[None],))) == {}


def test_maps_from_files_are_those_that_were_written(tmp_path):
    pytest.importorskip("h5netcdf")
    write_climate(tmp_path, train=2, test=1, shape=(32, 48), experts=2)
    found = given_maps(tmp_path, "train", resolution=4, progress=Silent())
    generator = stream(0, "climate", "train", 0)
    made = synthetic_maps(1, resolution=4, generator=generator, symmetry="events", rows=32, experts=2)
    torch.testing.assert_close(found.x[:1], made.x)
    assert torch.equal(found.labels[0], made.labels[0])
    assert found.pairs() == [(0, 0), (0, 1), (1, 0)]


def test_maps_without_a_variable_are_refused(tmp_path):
    pytest.importorskip("h5netcdf")
    drawn = synthetic_climate(1, generator=stream(0, "maps"), shape=(32, 48), variables=("TMQ", "PSL"))
    (tmp_path / "train").mkdir()
    write_map(tmp_path / "train" / "data-1996-01-01-01-1_0.nc", drawn)
    with pytest.raises(DataError, match="must hold the 16 variables of ClimateNet"):
        given_maps(tmp_path, "train", resolution=4, progress=Silent())


def test_standard_maps_have_no_mean_and_unit_spread():
    made = synthetic_maps(2, resolution=4, generator=stream(0, "maps"), symmetry="events", rows=32, experts=1)
    x = made.standardised(made).x
    torch.testing.assert_close(x.mean((0, 2)), torch.zeros(16), atol=1e-3, rtol=0)
    torch.testing.assert_close(x.std((0, 2)), torch.ones(16), atol=1e-3, rtol=0)


def test_both_models_are_compared_and_nothing_is_done_twice(tmp_path):
    config = configure(downstream.CONFIG, SMALL)
    with pytest.raises(KeyboardInterrupt), keeping(tmp_path / "run", ["run"], "1"):
        found, extras = downstream.run(config, 0, Silent())
        raise KeyboardInterrupt
    json.dumps(extras.metrics)
    assert found.group.name == "GL+(2)"
    curved, flat, human = extras.metrics["rows"]
    assert [r["model"] for r in (curved, flat, human)] == ["SO(2)", "GL+(2)", "human"]
    assert (curved["parameters_at_paper_size"], flat["parameters_at_paper_size"]) == (765_945, 112_313)
    assert max(curved["equivariance"], flat["equivariance"]) < 1e-5
    assert all(0 <= r[k] <= 1 for r in (curved, flat) for k in ("iou_bg", "mean_iou", "precision", "recall"))
    assert human["mean_iou"] > 0.6
    assert extras.paper["human"]["mean_iou"] == 0.5026
    assert math.isfinite(extras.metrics["difference"]) and extras.metrics["fewer_parameters"] > 4
    with resuming(), keeping(tmp_path / "run", ["run"], "1"):
        _, again = downstream.run(config, 0, Silent())
    assert again.metrics == extras.metrics


def test_the_papers_settings():
    config = find_experiment("climate-downstream").configure(["preset=paper"])
    assert (config.resolution, config.epochs, config.batch, config.learning_rate) == (6, 20, 4, 1e-3)
    assert not config.own


def test_too_large_a_batch_is_refused():
    with pytest.raises(InputError, match="`batch` must be at most the 6 labelled maps, got 8"):
        downstream.run(configure(downstream.CONFIG, {**SMALL, "batch": 8}), 0, Silent())
