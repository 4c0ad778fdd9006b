"""Skill of class predictors: hard labels, and the probabilities that planting makes of them."""

from dataclasses import replace

import pytest
import torch

from atlasd.data.samples import Samples
from atlasd.geometry.atlas import Atlas
from atlasd.prediction.plants import Planted, draw_plants
from atlasd.prediction.skill import measure_skill
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.climate.second_order import SecondOrderPredictor


def fields():
    x = torch.randn(40, 1, 20, 20, generator=stream(0, "fields"))
    return Samples.check(x, (x[:, 0] > 0).long(), Atlas.at([(10, 10)], in_radius=8, out_radius=5)).standard()


def test_skill_is_the_share_of_the_entropy_explained():
    samples, index = fields(), torch.arange(40)

    def sure(x):
        middle = x[..., 3:-3, 3:-3]
        return torch.cat([-2 * middle.sign(), 2 * middle.sign()], dim=2)

    share = float((samples.y[..., 5:16, 5:16] == 1).double()[20:].mean())
    first = float((samples.y[..., 5:16, 5:16] == 1).double()[:20].mean())
    prior = -(share * torch.tensor(first).log() + (1 - share) * torch.tensor(1 - first).log())
    loss = torch.tensor(-4.0).exp().log1p()
    skill = measure_skill(sure, samples, index[:20], index[20:]).pooled
    assert skill == pytest.approx(float(1 - loss / prior), abs=1e-3)


def test_planted_classes_are_fitted_and_measured():
    samples, index = fields(), torch.arange(40)
    planted = replace(samples, plant=Planted(draw_plants(samples, 1, stream(0, "plants"))[0], 0.5))
    fitted = SecondOrderPredictor(pixels=800).fit(planted, index[:30], index[30:], seed=0, progress=Silent())
    assert fitted(samples.inputs(index[:2])).shape == (2, 1, 2, 11, 11) and -1 < fitted.skill < 1
