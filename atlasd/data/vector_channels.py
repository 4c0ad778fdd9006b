"""Channels that are components of one vector, such as the two winds: found by name, and how matrices mix them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.errors import InputError


@dataclass(frozen=True)
class Mixing:
    """The representation of 2 x 2 matrices on channels some of which are components of vectors.

    Arguments:
        channels: Number of channels.
        pairs: Channels `(along the columns, along the rows)` of each vector, such as (eastward, northward).
        rows_up: Whether the row component points to growing row numbers.

    Example:
        >>> rotation = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
        >>> Mixing(3, ((0, 1),))(rotation).int().tolist()
        [[0, 1, 0], [-1, 0, 0], [0, 0, 1]]
    """

    channels: int
    pairs: tuple[tuple[int, int], ...]
    rows_up: bool = True

    def __call__(self, g: Tensor) -> Tensor:
        """Matrices `(*, 2, 2)` to `(*, c, c)`."""
        fixed = torch.eye(self.channels, dtype=g.dtype)
        parts = torch.zeros(self.channels, self.channels, dtype=g.dtype)
        for column, row in self.pairs:
            fixed[column, column] = fixed[row, row] = 0.0
            place = torch.zeros(self.channels, 2, dtype=g.dtype)
            place[row, 0] = 1.0 if self.rows_up else -1.0
            place[column, 1] = 1.0
            parts = parts + place @ g @ place.mT
        return fixed + parts


def find_pairs(names: Sequence[str], asked: str) -> tuple[tuple[int, int], ...]:
    """Pairs of channels that are components of one vector.

    Arguments:
        names: Names of the channels.
        asked: `auto` to go by names (u and v, vx and vy), `none`, or pairs such as `u,v;bx,by`.
    """
    position = {n: k for k, n in enumerate(names)}
    if asked == "none":
        return ()
    if asked != "auto":
        pairs = []
        for part in asked.split(";"):
            pair = tuple(n.strip() for n in part.split(","))
            if len(pair) != 2 or not all(pair):
                raise InputError(f"--vectors must be auto, none or pairs such as 'u,v', got {asked!r}.")
            if any(n in position for n in pair) and not all(n in position for n in pair):
                raise InputError(f"--vectors must name both components on one side, got {part!r} and {list(names)}.")
            if all(n in position for n in pair):
                pairs.append((position[pair[0]], position[pair[1]]))
        return tuple(pairs)
    lower = {n.lower(): k for n, k in position.items()}
    found = []
    for name, k in lower.items():
        for pattern, other in ((r"u(\d*|_.*|a|as|wnd|\d+m)", "v"), (r"(.*)x", None)):
            match = re.fullmatch(pattern, name)
            if match:
                partner = "v" + name[1:] if other else name[:-1] + "y"
                if partner in lower and partner != name and (other or match[1]):
                    found.append((k, lower[partner]))
                    break
    return tuple(found)
