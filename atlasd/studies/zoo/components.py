"""Components of the true groups of the zoo: one element of each, the identity first."""

from __future__ import annotations

__all__ = ["alone", "conjugated", "signed_permutations", "signs"]

from itertools import permutations

import torch
from torch import Tensor


def alone(n: int) -> Tensor:
    """The identity as the only component, with shape `(1, n, n)`."""
    return torch.eye(n, dtype=torch.float64)[None]


def signs(*rows: str) -> Tensor:
    """Diagonal matrices of signs, with shape `(m, n, n)`.

    Example:
        >>> signs("++", "+-")[1].tolist()
        [[1.0, 0.0], [0.0, -1.0]]
    """
    return torch.tensor([[1.0 if c == "+" else -1.0 for c in row] for row in rows], dtype=torch.float64).diag_embed()


def signed_permutations() -> Tensor:
    """Permutations of three coordinates with an even number of signs, with shape `(24, 3, 3)`."""
    orders = torch.eye(3, dtype=torch.float64)[torch.tensor(list(permutations(range(3))))]
    return (orders[:, None] @ signs("+++", "+--", "-+-", "--+")).flatten(0, 1)


def conjugated(components: Tensor, frame: Tensor) -> Tensor:
    """The components `(m, n, n)` in another basis, `frame c frame^-1`."""
    moved = frame @ components @ torch.linalg.inv(frame)
    return torch.cat([alone(len(frame)), moved[1:]])
