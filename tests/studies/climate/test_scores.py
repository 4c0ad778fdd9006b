"""Scores of labellings and the loss."""

import pytest
import torch

from atlasd.errors import InputError
from atlasd.studies.climate.vertices import jaccard_loss, segmentation_scores


def test_a_labelling_agrees_with_itself_and_not_with_another():
    labels = torch.tensor([[0, 1, 2, 2], [0, 0, 1, 1]])
    same = segmentation_scores(labels, labels, 3)
    assert same.tolist() == [[1, 1, 1]] * 3
    other = segmentation_scores((labels + 1) % 3, labels, 3)
    assert other[0].tolist() == [0, 0, 0]


def test_scores_by_hand():
    scores = segmentation_scores(torch.tensor([0, 0, 0, 1, 1, 1]), torch.tensor([0, 0, 1, 1, 2, 2]), 3)
    exact = torch.tensor([[2 / 3, 1 / 4, 0], [2 / 3, 1 / 3, torch.nan], [1, 1 / 2, 0]])
    torch.testing.assert_close(scores, exact, equal_nan=True)


def test_a_class_that_neither_has_counts_as_nothing():
    assert segmentation_scores(torch.zeros(4), torch.zeros(4), 2)[0].isnan().tolist() == [False, True]


def test_the_loss_is_one_less_the_mean_iou():
    labels = torch.tensor([[0, 0, 1, 1], [2, 2, 1, 0]])
    given = torch.tensor([[0, 1, 1, 1], [2, 2, 1, 1]])
    sure = 100 * torch.nn.functional.one_hot(given, 3).mT.float()
    torch.testing.assert_close(jaccard_loss(sure, labels), 1 - segmentation_scores(given, labels, 3)[0].mean())


def test_bad_labellings_are_refused():
    with pytest.raises(InputError, match="one shape"):
        segmentation_scores(torch.zeros(3), torch.zeros(4), 2)
    with pytest.raises(InputError, match="below 2, got 2"):
        segmentation_scores(torch.full((3,), 2), torch.zeros(3), 2)
