"""Metrics in files and run directories."""

import json

import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.invariants import metric_cosine
from atlasd.algebra.known import lorentz, sl, so
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.learned import PredictorSummary
from atlasd.discovery.result import Discovery, Verdict
from atlasd.errors import DataError, InputError
from atlasd.nn.metric_gnn import minkowski
from atlasd.nn.metrics import algebra_metric, load_metric, save_metric
from atlasd.runtime.random import stream


def discovery(group):
    return Discovery(group, Verdict(True, "by hand"), (), (), PredictorSummary("none", 1.0, 1, 0.0), {})


def test_from_a_file(tmp_path):
    form = 3 * minkowski().double()
    assert torch.equal(load_metric(save_metric(form, tmp_path / "m.json")), form)


def test_from_a_run(tmp_path):
    discovery(lorentz(2)).save(tmp_path)
    assert metric_cosine(load_metric(tmp_path), minkowski()) == pytest.approx(1)


def test_a_run_that_found_nothing(tmp_path):
    discovery(Group(LieAlgebra(torch.zeros(0, 4, 4)))).save(tmp_path)
    with pytest.raises(DataError, match="found generators, got none"):
        load_metric(tmp_path)


def test_a_run_without_one_form(tmp_path):
    discovery(Group(sl(3))).save(tmp_path)
    with pytest.raises(DataError, match="must preserve exactly one form"):
        load_metric(tmp_path)


def test_an_uncertain_form_is_refused():
    """Noise of 3 % leaves no doubt which form is kept; noise of a quarter does."""
    frame, noise = so(1, 3).frame(), torch.randn(6, 4, 4, generator=stream(1, "noise"), dtype=torch.float64)
    assert metric_cosine(algebra_metric(LieAlgebra(frame + 0.03 * noise)).form, minkowski()) > 0.99
    with pytest.raises(InputError, match=r"its form from others|exactly one form"):
        algebra_metric(LieAlgebra(frame + 0.25 * noise))


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "run directory or a JSON file"),
        ("[1]", 'under "metric"'),
        (json.dumps({"form": 1}), 'under "metric"'),
        (json.dumps({"metric": [[1, 2], [3]]}), 'under "metric"'),
        (json.dumps({"metric": [[1, 1], [-1, 0]]}), "symmetric"),
        (json.dumps({"metric": [1, 2]}), r"shape \(n, n\)"),
        ("[" * 5000 + "]" * 5000, "levels"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "m.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        load_metric(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(DataError, match="run directory or a JSON file"):
        load_metric(tmp_path / "missing.json")


@pytest.mark.parametrize("algebra", [so(3), so(1, 3)], ids=str)
def test_units_of_the_coordinates_make_no_form_degenerate(algebra):
    change = torch.diag(torch.logspace(0, 1, algebra.size, dtype=torch.float64))
    turned = torch.linalg.qr(torch.randn(algebra.size, algebra.size, generator=stream(0), dtype=torch.float64)).Q
    change = change @ turned
    found = algebra_metric(algebra.conjugate(change)).form
    back = torch.linalg.inv(change)
    truth = minkowski().double() if algebra.size == 4 else torch.eye(3, dtype=torch.float64)
    assert abs(float(metric_cosine(found, back.mT @ truth @ back))) > 0.9999
