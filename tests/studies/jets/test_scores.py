"""Scores with exact answers."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.runtime.random import stream
from atlasd.studies.jets.train import accuracy, auroc, background_rejection

LABEL = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0])


def test_perfect_reversed_and_constant():
    best = LABEL * 2.0 - 1
    assert auroc(best, LABEL) == 1 and auroc(-best, LABEL) == 0 and auroc(0 * best, LABEL) == 0.5
    assert accuracy(best, LABEL) == 1 and accuracy(-best, LABEL) == 0
    assert background_rejection(best, LABEL, 0.5) == 8  # none passes: half an event
    assert background_rejection(0 * best, LABEL, 0.5) == 1


def test_area_is_the_share_of_ordered_pairs():
    score = torch.randn(300, generator=stream(0, "scores")).round(decimals=1)
    label = torch.randint(2, (300,), generator=stream(0, "labels"))
    score += label
    a, b = score[label == 1][:, None], score[label == 0][None]
    pairs = ((a > b).double() + 0.5 * (a == b).double()).mean()
    assert auroc(score, label) == pytest.approx(float(pairs), abs=1e-12)


def test_rejection_counts_at_the_cut():
    score = torch.tensor([9.0, 7.0, 5.0, 3.0, 8.0, 6.0, 4.0, 2.0])
    assert background_rejection(score, LABEL, 0.25) == 8
    assert background_rejection(score, LABEL, 0.5) == 4
    assert background_rejection(score, LABEL, 0.51) == 2
    assert background_rejection(score, LABEL, 1.0) == pytest.approx(4 / 3)
    ten = torch.cat([torch.arange(10.0), torch.tensor([6.5, 5.5])])
    assert background_rejection(ten, (torch.arange(12) < 10).long(), 0.3) == 4  # 3 of 10, not 4


@pytest.mark.parametrize(
    "score, label, message",
    [
        (torch.ones(3), torch.ones(2), "one shape"),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([0, 1]), "finite"),
        (torch.ones(2), torch.ones(2), "both 1 and 0"),
    ],
)
def test_bad_input(score, label, message):
    with pytest.raises(InputError, match=message):
        auroc(score, label)


def test_bad_efficiency():
    with pytest.raises(InputError, match="`efficiency`"):
        background_rejection(torch.ones(8), LABEL, 0.0)
