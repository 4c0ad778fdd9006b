"""`fit_predictor` chooses a kind that has skill."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.fit import fit_predictor
from atlasd.prediction.predictor import FittedPredictor, PredictorSpec
from atlasd.prediction.stencil import StencilPredictor


def test_a_linear_map_gets_a_stencil(rough, two_charts, stencil_map):
    fitted = fit_predictor(rough, stencil_map(rough), atlas=two_charts)
    assert "stencil" in fitted.kind and fitted.skill > 0.99 and fitted.samples == 36


@pytest.mark.slow
def test_a_map_that_is_not_linear_gets_products(rough, two_charts):
    fitted = fit_predictor(rough, rough.roll(1, -1) * rough.roll(1, -2), atlas=two_charts)
    assert "order" in fitted.kind and "stencil" not in fitted.kind


def test_vectors_get_the_cheapest_kind_that_explains_them():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    assert "polynomial" in fit_predictor(x, x[:, 0]).kind
    assert fit_predictor(x, x.norm(dim=-1)).skill > 0.9


def test_a_chart_over_an_obstacle_does_not_hide_the_others(rough, stencil_map):
    y = stencil_map(rough)
    y[..., 12:] = 1.0
    atlas = Atlas.at([(8, 6), (13, 6), (11, 17)], in_radius=5, out_radius=3)
    fitted = fit_predictor(rough, y, atlas=atlas)
    assert fitted.skill > 0.9 and fitted.chart_skill[2] < 0.1


def test_targets_are_needed(rough):
    with pytest.raises(InputError, match="`y` must be given to fit a predictor"):
        fit_predictor(rough, None)


def test_any_recipe_will_do(rough, stencil_map):
    class Mine:
        def fit(self, samples, train, held_out, *, seed, progress):
            assert not set(train.tolist()) & set(held_out.tolist())
            return FittedPredictor(lambda x: x, "mine", 0.5, torch.tensor([0.5]), 0.0)

    assert isinstance(Mine(), PredictorSpec) and isinstance(StencilPredictor(), PredictorSpec)
    assert fit_predictor(rough, rough, predictor=Mine()).kind == "mine"
