"""Charts that stand apart are set aside worst first."""

import pytest
import torch

from atlasd.discovery.spectral import _worst


@pytest.mark.parametrize(
    ("lone", "errors", "expected"),
    [
        ([True, True, False], [0.12, 0.5, 0.08], [False, True, False]),  # bent by the second, the first misses too
        ([True, True, False], [0.3, 0.5, 0.08], [True, True, False]),
        ([False, True, False], [0.9, 0.2, 0.1], [False, True, False]),  # a poor predictor explains the first
        ([False, False, False], [0.9, 0.2, 0.1], [False, False, False]),
    ],
)
def test_worst(lone, errors, expected):
    assert _worst(torch.tensor(lone), torch.tensor(errors).log()).tolist() == expected
