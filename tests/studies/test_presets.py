"""`preset=paper` of every experiment makes searches and predictors that carry the paper's numbers."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from atlasd.algebra.known import lorentz
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.gradient import GradientSearch
from atlasd.limits import TOLERANCE
from atlasd.nn.metric_gnn import minkowski
from atlasd.prediction.neural import ConvPredictor, MLPPredictor
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.climate import downstream as sphere_networks
from atlasd.studies.climate import run as climate
from atlasd.studies.climate.cgnet import CGNetPredictor
from atlasd.studies.climate.run import PUBLISHED
from atlasd.studies.config import configure
from atlasd.studies.digits import downstream as digit_networks
from atlasd.studies.digits import run as sphere_mnist
from atlasd.studies.digits.segment import SegmentPredictor
from atlasd.studies.heat import run as heat
from atlasd.studies.jets import downstream as taggers
from atlasd.studies.jets import run as top_tagging
from atlasd.studies.networks import given_discovery, weight_count
from atlasd.studies.toys import arctan, d4
from atlasd.studies.toys import run as toys

PAPER = {"preset": "paper"}


class Asked(Exception):
    """Carries what a run hands to `discover`."""


@pytest.fixture
def handed(monkeypatch):
    """From an experiment and a small number of samples, the search, cosets and predictor that its run hands over."""

    def ask(module, **few):
        def discover(*_, **options):
            raise Asked(options)

        monkeypatch.setattr(module, "discover", discover)
        config = configure(module.CONFIG, {**PAPER, **few})
        with pytest.raises(Asked) as caught:
            module.run(config, 0, Silent())
        options = caught.value.args[0]
        assert options["device"] == config.device and options["tolerance"] == config.tolerance
        return options["search"], options["cosets"], options["predictor"]

    return ask


def as_published(search: GradientSearch) -> bool:
    """Whether a search has none of our aids: the sum over charts in raw units, growth by the norm, and no more."""
    plain = (search.charts, search.units, search.clip, search.anneal) == ("sum", "raw", "norm", False)
    return plain and search.push == search.average == 0 and not search.robust and not search.held_out


def trained_as_published(predictor) -> bool:
    schedule = predictor.schedule
    return schedule.constant and schedule.patience is None and (schedule.batch, schedule.learning_rate) == (16, 1e-3)


def test_heat(handed):
    config = configure(heat.CONFIG, PAPER)
    search, cosets, predictor = handed(heat, samples=8, steps=2)
    assert isinstance(search, GradientSearch) and as_published(search) and search.tandem and search.regardless
    assert (search.generators, search.growth, search.growth_limit, search.loss) == (1, 0.1, 1.0, "mae")
    assert (search.epochs, search.batch, search.learning_rate, search.spread) == (10, 16, 1e-3, 1.0)
    assert cosets == CosetSearch.published() and (cosets.starts, cosets.top, cosets.epochs) == (16, 8, 10)
    assert isinstance(predictor, ConvPredictor) and trained_as_published(predictor)
    assert (predictor.hidden, predictor.depth, predictor.kernel) == (16, 4, 3)
    assert not predictor.residual and not predictor.smooth
    assert (predictor.schedule.epochs, predictor.schedule.loss) == (10, "mae")
    assert config.samples == 10_000 and config.steps == 50


def test_heat_ablations():
    config = configure(heat.CONFIG, {**PAPER, "normalize": False, "clip": "entries", "similarity": "cosine"})
    assert not heat._cosets(config).normalize and heat._cosets(config).regardless
    assert heat._search(config).clip == "entries" and heat._search(config).similarity == "cosine"
    whole = configure(heat.CONFIG, {**PAPER, "window": "patch"})
    assert heat._search(whole).window == heat._cosets(whole).window == "patch"
    for module in (heat, sphere_mnist, climate):
        assert module._search(configure(module.CONFIG, {**PAPER, "pooled": "mean"})).charts == "mean"
    assert heat._cosets(configure(heat.CONFIG, {**PAPER, "pooled": "mean"})).charts == "mean"
    before = configure(heat.CONFIG, {**PAPER, "tandem": False})
    assert not heat._search(before).tandem and as_published(heat._search(before))


def test_jets(handed, monkeypatch):
    config = configure(top_tagging.CONFIG, PAPER)
    jets = torch.ones(4, 2, 4), torch.tensor([0, 1, 0, 1])
    monkeypatch.setattr(top_tagging, "load_jets", lambda *_, **__: jets)
    search, cosets, predictor = handed(top_tagging)
    assert isinstance(search, GradientSearch) and as_published(search) and not search.tandem
    assert (search.generators, search.growth, search.growth_limit, search.weight) == (7, 1.0, None, 0.1)
    assert (search.epochs, search.learning_rate, search.spread, search.loss) == (10, 1e-3, 1.0, "cross_entropy")
    assert (cosets.starts, cosets.top, cosets.epochs, cosets.loss) == (64, 16, 3, "cross_entropy")
    assert cosets.regardless and cosets.normalize and cosets.learning_rate == 1e-3
    assert isinstance(predictor, MLPPredictor) and trained_as_published(predictor)
    assert predictor.hidden == (512, 512) and predictor.relu and predictor.schedule.epochs == 10
    assert config.samples is None and config.constituents == 30
    assert top_tagging._cosets(configure(top_tagging.CONFIG, {**PAPER, "top": 5})).top == 5
    assert not top_tagging._cosets(configure(top_tagging.CONFIG, {**PAPER, "normalize": False})).normalize


def test_digits(handed, monkeypatch):
    config = configure(sphere_mnist.CONFIG, PAPER)
    few = sphere_mnist.SphereDigits(*[torch.zeros(2, 1, 60, 120)] * 5)
    monkeypatch.setattr(sphere_mnist, "sphere_mnist", lambda *_, **__: few)
    search, cosets, predictor = handed(sphere_mnist)
    assert cosets is False
    _, mirrors, _ = handed(sphere_mnist, cosets=True, normalize=False)
    assert mirrors == CosetSearch.published(loss="cross_entropy", epochs=20, normalize=False)
    assert isinstance(search, GradientSearch) and as_published(search) and search.tandem
    assert (search.generators, search.growth, search.growth_limit) == (1, 0.35, 1.0)
    assert (search.epochs, search.batch, search.learning_rate, search.loss) == (20, 16, 1e-3, "cross_entropy")
    assert isinstance(predictor, SegmentPredictor) and trained_as_published(predictor)
    assert predictor.widths == (32, 64, 64, 64) and not predictor.skips and predictor.background_weight == 0.1
    assert predictor.schedule.epochs == 20 and config.samples == 10_000 and config.rotate == 60


def test_climate(handed):
    search, cosets, predictor = handed(climate, samples=30, rows=64)
    assert cosets is False and configure(climate.CONFIG, PAPER).units == "published"
    mirrors = climate.mirror_search(configure(climate.CONFIG, {**PAPER, "cosets": True}), 30)
    assert mirrors == CosetSearch.published(loss="cross_entropy", epochs=30)
    assert isinstance(search, GradientSearch) and as_published(search) and search.tandem
    assert (search.generators, search.growth, search.growth_limit, search.weight) == (4, 5.0, 1.0, 0.05)
    assert (search.epochs, search.batch, search.learning_rate, search.loss) == (30, 16, 1e-3, "cross_entropy")
    assert isinstance(predictor, CGNetPredictor) and trained_as_published(predictor)
    assert predictor.schedule.epochs == 30 and predictor.background_weight == 1.0


def test_climate_in_the_units_of_the_published_code():
    assert PUBLISHED == {
        "TMQ": (19.22, 15.82), "U850": (1.553, 8.298), "V850": (0.254, 6.232), "PSL": (100_814.0, 1461.0),
    }  # fmt: skip


def test_networks_of_the_downstream_studies():
    plan = digit_networks._plan(configure(digit_networks.CONFIG, PAPER))
    assert tuple(plan.channels) == (1, 32, 32, 64, 64, 64, 32, 32, 32, 32, 16, 16, 11)
    assert (tuple(plan.dilated), plan.halve, plan.cycle) == ((5, 6, 7, 8), False, False)
    assert (plan.epochs, plan.learning_rate, plan.background) == (100, 1e-3, 0.005)

    config = configure(taggers.CONFIG, PAPER)
    makers = taggers._networks(config, given_discovery(lorentz(2), "given", 0, None), minkowski())
    for make in makers.values():
        network = make(stream(0))
        assert (len(network.blocks), network.head.in_features, network.dropout) == (6, 72, 0.2)
    assert (config.batch, config.epochs, config.learning_rate, config.weight_decay) == (32, 35, 3e-4, 0.01)

    config = configure(sphere_networks.CONFIG, PAPER)
    assert (config.batch, config.epochs, config.learning_rate, config.seeds) == (4, 20, 1e-3, 10)
    sizes = {name: weight_count(sphere_networks._network(name, config, 0)) for name in ("SO(2)", "GL+(2)")}
    assert sizes == {"SO(2)": 765_945, "GL+(2)": 111_321}


def test_charts_of_climate_by_name():
    code, text = (climate.climate_atlas((768, 1152), name) for name in ("code", "text"))
    assert [c.center for c in code.charts] == [(269, 576), (346, 576), (422, 576), (499, 576)]
    assert {c.center[0] for c in text.charts} == {384}
    columns = [c.center[1] for c in text.charts]
    assert all(0 < b - a < 2 * 200 for a, b in pairwise(columns))  # they overlap
    text.check(torch.Size([768, 1152]))


@pytest.mark.parametrize(("module", "starts", "top"), [(d4, 256, 128), (arctan, 48, 24)])
def test_functions(module, starts, top, monkeypatch):
    def discover(*_, **options):
        raise Asked(options)

    monkeypatch.setattr(toys, "discover", discover)
    with pytest.raises(Asked) as caught:
        module.run(configure(module.CONFIG, PAPER), 0, Silent())
    cosets = caught.value.args[0]["cosets"]
    assert cosets == CosetSearch.published(starts=starts, top=top, epochs=20)
    assert (cosets.starts, cosets.top, cosets.normalize, cosets.regardless) == (starts, top, True, True)


@pytest.mark.parametrize("module", [heat, top_tagging, sphere_mnist, climate, d4, arctan])
def test_one_tolerance_and_a_device_everywhere(module):
    config = configure(module.CONFIG, PAPER)
    assert config.tolerance == TOLERANCE and config.device == "cpu"
    assert replace(config, device="cuda").device == "cuda"


def test_the_usual_presets_keep_our_aids():
    assert heat._search(configure(heat.CONFIG, {"search": "gradient"})).robust
    assert not heat._cosets(configure(heat.CONFIG, {"cosets": "gradient"})).regardless
    assert math.isclose(top_tagging._search(configure(top_tagging.CONFIG, {"search": "gradient"})).growth, 0.05)
