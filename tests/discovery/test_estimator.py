"""The estimator in the manner of scikit-learn, the fitted map, and the logger."""

import logging

import numpy as np
import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError


@pytest.fixture(scope="module")
def ring():
    x = np.random.default_rng(0).normal(size=(400, 2))
    return x, (x**2).sum(1)


@pytest.fixture(scope="module")
def fitted(ring):
    return ad.SymmetryDiscovery(random_state=1).fit(*ring)


def test_finds_and_predicts(fitted, ring):
    assert fitted.symmetric_ and fitted.group_.name == "O(2)" and fitted.n_features_in_ == 2
    assert fitted.score(*ring) > 0.999 and fitted.predict(ring[0]).shape == (400,)


def test_parameters_can_be_read_and_set():
    made = ad.SymmetryDiscovery(tolerance=0.1)
    assert made.get_params() == {"cosets": True, "random_state": 0, "rho_out": "auto", "tolerance": 0.1}
    assert repr(made) == "SymmetryDiscovery(tolerance=0.1)"
    assert made.set_params(cosets=False).cosets is False
    with pytest.raises(ValueError, match="`coset` must be one of cosets"):
        made.set_params(coset=1)


def test_errors_in_the_words_of_others(fitted, ring):
    with pytest.raises(ValueError, match="X has 3 features"):
        fitted.predict(np.zeros((5, 3)))
    with pytest.raises(ValueError, match="contains NaN"):
        ad.SymmetryDiscovery().fit(np.full((40, 2), np.nan), np.zeros(40))
    with pytest.raises(ValueError, match=r"1 sample\(s\) of 2 feature\(s\) .* minimum of 20 is required"):
        ad.SymmetryDiscovery().fit(ring[0][:1], ring[1][:1])
    with pytest.raises(ValueError, match="requires y"):
        ad.SymmetryDiscovery().fit(ring[0], None)
    with pytest.raises(Exception, match="not fitted yet"):
        ad.SymmetryDiscovery().predict(ring[0])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_agrees():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    few = (
        "n_features_in_after_fitting",
        "estimators_nan_inf",
        "regressor_multioutput",
        "regressors_no_decision_function",
    )
    small = {f"check_{name}": "fits fewer samples than are enough" for name in few}
    failed = checks.check_estimator(ad.SymmetryDiscovery(cosets=False), expected_failed_checks=small, on_fail=None)
    assert [c["check_name"] for c in failed if c["status"] == "failed"] == []


def test_the_fitted_map_in_raw_units():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)).double() * torch.tensor([1.0, 100.0])
    y = 1000 * (x / torch.tensor([1.0, 100.0])).square().sum(-1)
    found = ad.discover(x, y, progress=False, cosets=False)
    assert torch.allclose(found.predictor(x[:5])[:, 0], y[:5], rtol=1e-3)
    assert torch.equal(found.predictor(x[:5].numpy().astype(">f8")), found.predictor(x[:5]))
    with pytest.raises(InputError, match=r"shape of what was fitted, \(N, 2\), got \(2,\)"):
        found.predictor(x[0])


def test_the_fitted_map_is_not_in_files(tmp_path, ring):
    found = ad.discover(*ring, progress=False, cosets=False)
    found.save(tmp_path)
    with pytest.raises(InputError, match="from a file"):
        ad.load(tmp_path).predictor(torch.zeros(1, 2))


def test_the_fitted_map_of_fields(waves):
    x = waves(40, (19, 19), length=8.0)
    found = ad.discover(x, x.roll(1, -1), atlas=ad.Atlas.at([(9, 9)], 8, 4), progress=False, cosets=False)
    assert torch.allclose(found.predictor(x[:3]), x.roll(1, -1)[:3, None, :, 5:14, 5:14], atol=0.05)
    assert torch.equal(found.predictor(x[:3, 0]), found.predictor(x[:3]))


def test_everything_said_is_logged(caplog):
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.DEBUG, logger="atlasd"):
        ad.discover(x, function=lambda p: p * p.norm(dim=-1, keepdim=True), progress=False, cosets=False)
    assert any("targets as" in record.message for record in caplog.records)
    assert any(record.message.startswith("search: ") for record in caplog.records)
