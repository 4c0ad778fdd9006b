"""Sensitivity by injection: what a refitted map shows of a planted breaking, and where it does not know."""

import math

import torch

from atlasd.discovery.decide import Recovery, Sensitivity
from atlasd.discovery.prepare import prepare
from atlasd.discovery.residual import Residual
from atlasd.discovery.verdict import Judge
from atlasd.runtime.progress import Silent
from atlasd.runtime.random import stream
from atlasd.studies.zoo.field_systems import blur, draw_waves, field_atlas, plane_waves
from atlasd.studies.zoo.foreign import foreign_fields


def sensitivity(ratio: float) -> Recovery:
    """Under an eighth of a rotation, of fields that vary `ratio` times less along columns and are blurred."""
    wave, phase, height = draw_waves(240, stream(1, "waves"))
    x = plane_waves(wave * torch.tensor([1.0, 1 / ratio]), phase, height, 48)
    problem, _ = prepare(x, blur(x, 2.0), atlas=field_atlas(), seed=0, progress=Silent())
    residual = Residual(problem, problem.pick(96))  # also where no data are
    weights = torch.ones(problem.charts, dtype=torch.float64)
    rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64) * (math.pi / 4)
    return Sensitivity(problem, residual, 0.2, weights, Silent())(torch.matrix_exp(torch.stack([rotation, -rotation])))


def test_a_map_is_known_where_transformed_inputs_are_like_the_data():
    recovery = sensitivity(1.0)
    assert recovery.share > 0.9
    assert recovery.beyond < 0.02
    assert recovery.growth < 0.5


def test_stripes_do_not_determine_the_map_for_rotated_stripes():
    recovery = sensitivity(20.0)
    assert recovery.share < 0.9
    assert recovery.beyond > 0.2
    assert recovery.growth > 3


def test_a_breaking_that_data_hardly_feel_may_grow_beyond_where_they_are():
    """Stripes cover a small step along an ellipse only: a breaking of 6 % there is one of 84 % over all angles."""
    system = next(s for s in foreign_fields(951) if s.name == "stripes_control")
    x, y = system.data(300, stream(951, "zoo", "data", system.name))
    problem, _ = prepare(x, y, atlas=system.atlas, seed=951, progress=Silent())
    found = Judge(problem, 0.2, seed=951, progress=Silent()).generators(
        torch.tensor([[[-0.147, -0.212], [0.979, 0.107]]], dtype=torch.float64)
    )
    direction = found[0].direction
    assert direction.upper < 0.2 < direction.lower * 5
    assert direction.decision == "cannot tell" and "over a quarter turn" in direction.reason
