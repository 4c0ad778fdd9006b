"""Cross-fitting, standard units, closed forms and plants: what the verdict stands on."""

import pytest
import torch

import atlasd as ad
from atlasd.data.samples import Samples
from atlasd.data.units import Units
from atlasd.prediction.crossfit import cross_fit
from atlasd.prediction.forms import FormPredictor
from atlasd.prediction.plants import Planted, draw_plants
from atlasd.prediction.train import Schedule
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream

QUICK = ad.MLPPredictor(hidden=(16,), schedule=Schedule(epochs=20, batch=32, learning_rate=2e-2))


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=stream(seed, "crossfit"))


def test_every_sample_is_held_out_of_its_own_predictor():
    x = normal(90, 2)
    samples = Samples.check(x, x[:, 0]).standard()
    fits = cross_fit(QUICK, samples, [], seed=0, progress=Silent())
    assert fits.fold.bincount().tolist() == [30, 30, 30] and len(fits.members) == 3
    # A sample whose label is wrong by far changes the predictors of the other folds, and not its own.
    wrong = x[:, 0].clone()
    wrong[0] += 100.0
    plain = FormPredictor(degree=1, widths=(), ridges=(1e-9,))
    spoiled = Samples.check(x, wrong).standard()
    again = cross_fit(plain, spoiled, [], seed=0, progress=Silent())
    told = torch.stack([m.function(spoiled.inputs(torch.arange(90))).flatten() for m in again.members])
    likeness = torch.corrcoef(torch.cat([x[None, :, 0], told.float()]))[0, 1:]
    mine = int(again.fold[0])
    assert likeness[mine] > 0.9999 and all(likeness[k] < 0.9999 for k in range(3) if k != mine)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e12])
def test_standard_units_do_not_know_raw_ones(scale):
    x = normal(300, 3).double()
    one, other = (Samples.check(x * s, x.square().sum(-1) * s).standard() for s in (1.0, scale))
    index = torch.arange(5)
    torch.testing.assert_close(one.inputs(index), other.inputs(index))
    torch.testing.assert_close(one.targets(index), other.targets(index))


def test_matrices_go_to_standard_units_and_back():
    units = Units.of_vectors(normal(200, 3) @ torch.diag(torch.tensor([1e-3, 1.0, 1e3])))
    a = normal(4, 3, 3, seed=1).double()
    torch.testing.assert_close(units.to_raw(units.to_standard(a)), a, rtol=1e-6, atol=1e-6)


def test_a_polynomial_is_fitted_exactly_and_noise_is_not():
    x = normal(200, 3)
    exact = ad.fit_predictor(x, x[:, 0] * x[:, 1] - x[:, 2] ** 3, predictor=FormPredictor())
    assert exact.skill > 0.9999 and exact.kind.startswith("polynomial")
    assert ad.fit_predictor(x, normal(200, seed=2), predictor=FormPredictor()).skill < 0.2


def test_what_is_planted_is_what_is_added():
    x = normal(50, 2)
    samples = Samples.check(x, x[:, 0]).standard()
    (plant,) = draw_plants(samples, 1, stream(0, "plant"))
    index = torch.arange(50)
    planted = Samples(**{**samples.__dict__, "plant": Planted(plant, 0.5)})
    torch.testing.assert_close(
        planted.targets(index) - samples.targets(index), 0.5 * plant(samples.inputs(index)), atol=1e-5, rtol=1e-4
    )


def test_planted_classes_are_probabilities():
    x = normal(50, 2)
    samples = Samples.check(x, (x[:, 0] > 0).long()).standard()
    (plant,) = draw_plants(samples, 1, stream(0, "plant"))
    p = Samples(**{**samples.__dict__, "plant": Planted(plant, 0.5)}).targets(torch.arange(50))
    assert p.shape == (50, 1, 2) and bool((p >= 0).all()) and torch.allclose(p.sum(-1), torch.ones(50, 1))
