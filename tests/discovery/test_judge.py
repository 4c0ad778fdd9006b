"""What is claimed of the generators that passed, and what is withheld."""

import pytest
import torch

from atlasd.discovery.judge import _in_doubt
from atlasd.discovery.result import Direction
from atlasd.discovery.verdict import Evidence


def evidence(first_order):
    draws = torch.zeros(4, dtype=torch.float64)
    return Evidence(0.0, draws, 1.0, 1.0, 0.1, None, torch.zeros(1), first_order=first_order)


def dropped(decision):
    return Direction(error=0.1, upper=0.2, lower=0.01, chance=1.0, tolerance=0.05, decision=decision, reason="")


@pytest.mark.parametrize(
    ("left", "others", "doubt"),
    [
        ([True], ["cannot tell"], True),
        ([True, True], ["broken", "cannot tell"], True),
        ([True, False], ["cannot tell"], False),  # one of them was seen at finite size
        ([True], ["broken"], False),
        ([True], [], False),
    ],
)
def test_derivatives_alone_are_not_believed_beside_a_doubt(left, others, doubt):
    assert _in_doubt([evidence(f) for f in left], [dropped(d) for d in others]) is doubt
