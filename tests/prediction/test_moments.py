"""Predictors for sets of vectors: they learn forms without assuming one, and do not see order or padding."""

import pytest
import torch

from atlasd.algebra.invariants import metric_cosine
from atlasd.errors import InputError
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.moments import DeepSetsPredictor, MomentNetwork, MomentPredictor, SetNetwork
from atlasd.prediction.train import Schedule

QUICK = Schedule(epochs=20, batch=128, learning_rate=1e-2, patience=20, polish=50)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def networks():
    generator = torch.Generator().manual_seed(1)
    moments = MomentNetwork(4, 2, pools=3, forms=8, hidden=(16,), generator=generator)
    return [moments, SetNetwork(4, 2, inner=(16, 16), hidden=(16,), generator=generator)]


@pytest.mark.parametrize("network", networks(), ids=["moments", "deepsets"])
def test_order_and_padding_do_not_count(network):
    x = normal(5, 1, 6, 4)
    y = network(x)
    assert y.shape == (5, 1, 2)
    torch.testing.assert_close(network(x[:, :, torch.randperm(6)]), y)
    padded = torch.cat([x, torch.zeros(5, 1, 3, 4)], dim=2)
    torch.testing.assert_close(network(padded), y)
    assert network(x[:, :, 0]).shape == (5, 1, 2)  # one vector is a set of one


@pytest.mark.parametrize("network", networks(), ids=["moments", "deepsets"])
def test_all_components_share_one_unit(network):
    x = normal(5, 1, 6, 4)
    y = network(x)
    network.unit.fill_(10.0)
    torch.testing.assert_close(network(10 * x), y)
    network.unit.fill_(1.0)


@pytest.mark.parametrize("network", networks(), ids=["moments", "deepsets"])
def test_gradients_are_finite_at_padding(network):
    x = torch.zeros(2, 1, 3, 4, requires_grad=True)
    network(x).sum().backward()
    assert bool(torch.isfinite(x.grad).all())


@pytest.mark.parametrize("form", [(-1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (2.0, -1.0, 3.0)])
def test_start_finds_the_form_whatever_it_is(form):
    """In closed form, from the targets alone: no metric is built in."""
    x = normal(4000, 1, 2, 3)
    truth = torch.diag(torch.tensor(form))
    y = torch.einsum("bi,ij,bj->b", x[:, 0].sum(1), truth, x[:, 0].sum(1)).asinh()
    network = MomentNetwork(3, 1, pools=1, forms=8, hidden=(4,), generator=torch.Generator().manual_seed(0))
    network.start(x, y[:, None, None], 0, torch.Generator().manual_seed(0))
    found = torch.zeros(3, 3)
    found[tuple(torch.triu_indices(3, 3))] = (network.first @ network.white)[0, :6]  # first-order terms follow
    assert metric_cosine((found + found.mT) / 2, truth) > 0.99


def test_start_finds_nothing_in_noise():
    x, y = normal(4000, 1, 2, 3), normal(4000, 1, 1, seed=3)
    network = MomentNetwork(3, 1, pools=1, forms=8, hidden=(4,), generator=torch.Generator().manual_seed(0))
    network.start(x, y, 0, torch.Generator().manual_seed(0))
    assert float(network.first.abs().max()) < 10  # none was put on the ladder of scales


def test_learns_an_invariant_and_not_noise():
    x = normal(1000, 2, 4)
    total = x.sum(1)
    y = (total[:, 0].square() - total[:, 1:].square().sum(-1)).asinh()
    assert fit_predictor(x, y, predictor=MomentPredictor(schedule=QUICK)).skill > 0.99
    assert fit_predictor(x, y[torch.randperm(1000)], predictor=MomentPredictor(schedule=QUICK)).skill < 0.1


def test_forms_of_two_pools_hold_areas():
    """An area is antisymmetric: the products of two different vectors are all there, and the vectors themselves."""
    network = MomentNetwork(2, 1, pools=2, forms=3, hidden=(4,), generator=torch.Generator().manual_seed(0))
    assert network.products(normal(3, 1, 5, 2)).shape == (3, 1, 3 + 4 + 3 + 4)


def test_classes():
    x = normal(1500, 3, 2)
    y = (x.sum(1).square().sum(-1) > 4).long()
    assert fit_predictor(x, y, predictor=MomentPredictor(schedule=QUICK)).skill > 0.8


def test_deep_sets_learn_a_sum_of_lengths():
    x = normal(1500, 2, 3)
    y = x[..., 1:].norm(dim=-1).sum(-1)
    fitted = fit_predictor(x, y, predictor=DeepSetsPredictor(inner=(32, 32), hidden=(16,), schedule=QUICK))
    assert fitted.skill > 0.97 and fitted.kind == "deep sets 32-32"


def test_bad_input():
    fields = torch.randn(20, 1, 8, 8)
    for recipe, name in ((MomentPredictor(), "MomentPredictor"), (DeepSetsPredictor(), "DeepSetsPredictor")):
        with pytest.raises(InputError, match=f"must not be a {name} for fields"):
            fit_predictor(fields, fields, predictor=recipe)
    with pytest.raises(InputError, match="must be positive"):
        MomentPredictor(pools=0)
    with pytest.raises(InputError, match="must be positive"):
        DeepSetsPredictor(inner=())
