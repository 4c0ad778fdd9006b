"""The experiments on functions measure distances from the exact group."""

import math
from dataclasses import replace

import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.known import dihedral, trivial
from atlasd.discovery.discover import TOLERANCE
from atlasd.discovery.result import Direction, Verdict
from atlasd.errors import InputError
from atlasd.prediction.neural import MLPPredictor
from atlasd.runtime.progress import Silent
from atlasd.studies.config import configure, parse_settings
from atlasd.studies.toys import arctan, d4
from atlasd.studies.toys import run as toys
from atlasd.studies.toys.functions import toys as all_toys


@pytest.fixture
def answer(monkeypatch, discovery):
    """Lets `discover` give a group back, and keeps what it was asked."""
    calls = {}

    def give(group, errors=()):
        cosets = tuple(Direction(e, e, e, 1.0, 1.0, "symmetry", "", 0.2) for e in errors)
        found = replace(discovery, group=group, verdict=Verdict(True, "", cosets=cosets))

        def pretend(x, y=None, **options):
            calls.update(x=x, y=y, **options)
            return found

        monkeypatch.setattr(toys, "discover", pretend)
        return calls

    return give


def _turn(degrees):
    c, s = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


def test_d4_in_degrees(answer):
    noisy = dihedral(4).cosets @ _turn(1.5)
    noisy[0] = torch.eye(2)
    calls = answer(Group(trivial(2), noisy, tolerance=0.2))
    _, extras = d4.run(d4.CONFIG(), 0, Silent())
    assert extras.metrics["elements"] == extras.metrics["distinct"] == 8
    assert extras.metrics["largest_error_deg"] == pytest.approx(1.5)
    assert calls["x"].shape == (2000, 2) and calls["y"] is None
    assert calls["function"](torch.tensor([[3.0, -4.0]])) == 7
    assert (calls["cosets"].starts, calls["cosets"].top, calls["tolerance"]) == (64, 64, TOLERANCE)


def test_d4_with_the_settings_of_the_paper(answer):
    calls = answer(dihedral(4))
    d4.run(configure(d4.CONFIG, {"preset": "paper"}), 0, Silent())
    assert (calls["cosets"].method, calls["cosets"].starts, calls["cosets"].top) == ("gradient", 256, 128)


def test_arctan_reports_the_half_turn_with_its_strength(answer):
    answer(Group(trivial(2), torch.stack([torch.eye(2).double(), _turn(178.0)])), (0.0, 0.03))
    _, extras = arctan.run(arctan.CONFIG(), 0, Silent())
    metrics = extras.metrics
    assert metrics["identity"] and metrics["half_turn"]
    assert metrics["half_turn_deg"] == pytest.approx(2.0) and metrics["half_turn_strength"] == 0.03


def test_arctan_without_the_half_turn(answer):
    answer(Group(trivial(2), torch.stack([torch.eye(2).double(), _turn(90.0)])))
    _, extras = arctan.run(arctan.CONFIG(), 0, Silent())
    assert extras.metrics["half_turn"] is False and extras.metrics["half_turn_deg"] is None


@pytest.mark.parametrize("name", [each.name for each in all_toys() if each.name != "xyz"])  # slow to name
def test_every_toy_can_be_asked(answer, name):
    truth = {each.name: each for each in all_toys()}[name].group
    calls = answer(truth)
    _, extras = toys.run(parse_settings(toys.CONFIG, [f"name={name}"]), 0, Silent())
    assert extras.metrics["group"] == extras.metrics["truth"]
    assert extras.metrics["angle_deg"] == pytest.approx(0, abs=1e-6)
    assert len(calls["x"]) == 2000


def test_a_fitted_predictor_in_place_of_the_oracle(answer):
    calls = answer(dihedral(4))
    d4.run(parse_settings(d4.CONFIG, ["predictor=mlp", "samples=50"]), 0, Silent())
    assert calls["y"].shape == (50,) and isinstance(calls["predictor"], MLPPredictor)


def test_unknown_toy():
    with pytest.raises(InputError, match=r"`name` must be one of d4, .*, got 'so33', did you mean 'so3'"):
        parse_settings(toys.CONFIG, ["name=so33"])


@pytest.mark.parametrize(("tolerance", "name"), [(0.1, "trivial"), (0.35, "C2")])
def test_the_tolerance_decides_about_the_half_turn(tolerance, name):
    """It breaks by about a quarter: half of the usual tolerance is clearly less, and a larger one clearly more."""
    found, extras = arctan.run(parse_settings(arctan.CONFIG, [f"tolerance={tolerance}"]), 0, Silent())
    assert found.group.name == name and extras.metrics["half_turn"] == (name == "C2")
    others = [d.decision for d in found.verdict.rejected]
    assert name == "C2" or "broken" in others
