"""Neural predictors: best weights kept, seeded, and alone in their randomness."""

import pytest
import torch

from atlasd.data.samples import Samples, split_indices
from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.networks import VectorMLP
from atlasd.prediction.neural import ConvPredictor, MLPPredictor
from atlasd.prediction.train import Job, Schedule, fit_networks, loss_per_chart, standardise
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream

QUICK = Schedule(epochs=40, batch=8, learning_rate=2e-2, patience=40)
CONV = ConvPredictor(hidden=6, depth=2, schedule=QUICK)
MLP = MLPPredictor(hidden=(24, 24), schedule=Schedule(epochs=40, batch=32, learning_rate=1e-2, patience=40, polish=50))


@pytest.fixture(scope="module")
def vectors():
    x = torch.randn(400, 3, generator=stream(0, "vectors"))
    return x, x.square().sum(-1)


@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_convolutions_learn_a_stencil(rough, two_charts, stencil_map, residual, smooth):
    recipe = ConvPredictor(hidden=6, depth=2, residual=residual, smooth=smooth, schedule=QUICK)
    fitted = fit_predictor(rough, stencil_map(rough), atlas=two_charts, predictor=recipe)
    assert fitted.skill > 0.5 and fitted.reach == pytest.approx(2 * 2**0.5)
    assert fitted(two_charts.input_patches(rough[:3])).shape == (3, 2, 1, 9, 9)


def test_convolutions_in_space():
    x = torch.randn(40, 1, 9, 9, 9, generator=stream(0, "space"))
    atlas = Atlas.at([(4, 4, 4)], in_radius=4, out_radius=2)
    fitted = fit_predictor(x, x.roll(1, -1) - x.roll(1, -2), atlas=atlas, predictor=CONV)
    assert fitted.skill > 0.3 and fitted(atlas.input_patches(x[:2])).shape == (2, 1, 1, 5, 5, 5)


def test_perceptron_learns_a_norm(vectors):
    fitted = fit_predictor(*vectors, predictor=MLP)
    assert fitted.skill > 0.9 and fitted.kind == "MLP 24-24"
    assert fitted(vectors[0][:5, None]).shape == (5, 1, 1)


def test_perceptron_on_sets_and_classes():
    x = torch.randn(400, 2, 2, generator=stream(0, "sets"))
    y = ((x[:, 0] * x[:, 1]).sum(-1) > 0).long()
    fitted = fit_predictor(x, y, predictor=MLP)
    assert fitted.classes == 2 and fitted.skill > 0.3
    probability = fitted.outputs(x[:7, None])
    torch.testing.assert_close(probability.sum(-1), torch.ones(7, 1))


def test_classes_of_pixels(rough, two_charts, stencil_map):
    fitted = fit_predictor(rough, (stencil_map(rough) > 0).long(), atlas=two_charts, predictor=CONV)
    assert fitted.skill > 0.3
    assert fitted.outputs(two_charts.input_patches(rough[:3])).shape == (3, 2, 2, 9, 9)


@pytest.mark.parametrize("output", ["constant", "noise"])
def test_no_skill_where_there_is_nothing_to_learn(vectors, output):
    x, y = vectors
    y = torch.ones_like(y) if output == "constant" else torch.randn(y.shape, generator=stream(1, "noise"))
    assert fit_predictor(x, y, predictor=MLP).skill < 0.1


def test_identity_of_a_field_needs_no_skill(rough, two_charts):
    assert fit_predictor(rough, rough, atlas=two_charts, predictor=CONV).skill < 0.01


def test_early_stopping_keeps_the_best_weights():
    x = torch.randn(60, 3, generator=stream(0, "few"))
    y = x[:, 0] + torch.randn(60, generator=stream(1, "noise"))
    samples = Samples.check(x, y)
    train, held_out, _ = split_indices(60, stream(0, "split"))
    network = VectorMLP(3, 1, hidden=(64, 64), generator=stream(0, "weights"))
    schedule = Schedule(epochs=200, batch=8, learning_rate=2e-2, patience=6)
    curves = fit_networks([network], [Job(samples, train, held_out)], schedule, seed=0, progress=Silent())
    assert len(curves["held_out"]) == len(curves["train"]) < 200
    best = min(range(len(curves["held_out"])), key=curves["held_out"].__getitem__)
    assert best == len(curves["held_out"]) - 1 - schedule.patience
    unit = standardise(network, samples, train)
    loss = loss_per_chart(network(samples.inputs(held_out)), samples.targets(held_out), 0, None) / unit
    assert loss.mean().item() == pytest.approx(curves["held_out"][best], rel=1e-5)
    assert not network.training and not any(p.requires_grad for p in network.parameters())


def test_networks_fitted_together_are_those_fitted_alone(vectors):
    x, y = vectors
    samples = Samples.check(x, y)
    halves = torch.arange(len(x)).chunk(2)
    jobs = [Job(samples, half[40:], half[:40]) for half in halves]
    recipe = MLPPredictor(hidden=(16, 16), schedule=Schedule(epochs=6, batch=32, learning_rate=1e-2))
    together = recipe.fit_many(jobs, seed=0, progress=Silent())
    alone = [recipe.fit(samples, j.train, j.held_out, seed=0, progress=Silent()) for j in jobs]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one(x[:20, None]), other(x[:20, None]), atol=1e-3, rtol=1e-2)
    assert not torch.allclose(together[0](x[:20, None]), together[1](x[:20, None]), atol=1e-3)


@pytest.mark.parametrize("kind", ["vectors", "fields"])
def test_deterministic_and_free_of_the_global_seed(kind, vectors, rough, two_charts, stencil_map):
    if kind == "vectors":
        (x, y), options, probe = vectors, {"predictor": MLP}, vectors[0][:9, None]
    else:
        x, y, options = rough, stencil_map(rough), {"predictor": CONV, "atlas": two_charts}
        probe = two_charts.input_patches(rough[:9])
    torch.manual_seed(1)
    first = fit_predictor(x, y, seed=3, **options)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    again = fit_predictor(x, y, seed=3, **options)
    assert torch.equal(torch.get_rng_state(), state), "fitting must not draw from the global generator"
    assert torch.equal(first(probe), again(probe)) and first.skill == again.skill
    assert not torch.equal(first(probe), fit_predictor(x, y, seed=4, **options)(probe))


def test_double_precision_data_are_fitted(vectors):
    fitted = fit_predictor(vectors[0].double(), vectors[1].double(), predictor=MLP)
    assert fitted.skill > 0.9 and fitted(vectors[0].double()[:3, None]).dtype == torch.float64


@pytest.mark.parametrize(
    ("data", "recipe", "atlas", "message"),
    [
        ("vectors", CONV, None, "must not be a ConvPredictor for vectors; use MLPPredictor"),
        ("fields", MLP, None, "must not be an MLPPredictor for fields; use StencilPredictor or ConvPredictor"),
        ("fields", CONV, None, "`atlas` must be given for a ConvPredictor"),
        ("fields", CONV, Atlas.at([(8, 8)], 5, 5), "`in_radius` must exceed `out_radius`"),
    ],
)
def test_wrong_kind(data, recipe, atlas, message, rough, vectors):
    x, y = vectors if data == "vectors" else (rough, rough)
    with pytest.raises(InputError, match=message):
        fit_predictor(x, y, predictor=recipe, atlas=atlas)
