"""What the verdict says where nothing was found: that depends on how good the predictor is."""

import pytest
import torch

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.discovery.conclude import conclude
from atlasd.discovery.judge import Judged
from atlasd.discovery.search import Found
from atlasd.discovery.verdict import Gates

NOTHING = torch.zeros(0, 2, 2, dtype=torch.float64)


@pytest.mark.parametrize(
    "skill, smallest, words",
    [
        (0.58, 0.65, "Cannot tell: the predictor leaves 42% of the map unexplained"),
        (0.99, 0.65, "No symmetry"),
        (0.99, 0.015, "Cannot tell"),
    ],
)
def test_a_weak_predictor_does_not_say_that_there_is_none(skill, smallest, words):
    judged = Judged(LieAlgebra(NOTHING), [], [], [], torch.ones(1))
    group = Group(LieAlgebra(NOTHING), torch.eye(2, dtype=torch.float64)[None])
    verdict = conclude(Gates(skill=skill, testable=1.0), judged, group, [], [], Found(NOTHING, (smallest, 0.9)))
    assert not verdict.symmetric and verdict.reason.startswith(words)
