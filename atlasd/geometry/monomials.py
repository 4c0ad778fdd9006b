r"""Monomials: their values, their derivatives, and how they are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

import torch
from torch import Tensor

LEAST = 0.005
"""Share of the largest term below which terms are not written."""
_LETTERS = {1: "x", 2: "xy", 3: "xyz"}


@dataclass(frozen=True)
class Monomials:
    r"""All products of at most `degree` of `size` variables, by degree, from 1 on or from a higher one.

    Example:
        >>> Monomials(2, 2).names()
        ['1', 'x', 'y', 'x^2', 'x y', 'y^2']
        >>> Monomials(2, 2, least=2)(torch.tensor([[2.0, 3.0]])).tolist()
        [[4.0, 6.0, 9.0]]
    """

    size: int
    degree: int
    least: int = 0

    @property
    def terms(self) -> list[tuple[int, ...]]:
        r"""Each monomial as the variables it multiplies."""
        return [
            term
            for degree in range(self.least, self.degree + 1)
            for term in combinations_with_replacement(range(self.size), degree)
        ]

    def __len__(self) -> int:
        return len(self.terms)

    def __call__(self, x: Tensor) -> Tensor:
        r"""Values at points `(*, size)`, with shape `(*, m)`."""
        columns: dict[tuple[int, ...], Tensor] = {(): torch.ones_like(x[..., 0])}
        for degree in range(1, self.degree + 1):
            for term in combinations_with_replacement(range(self.size), degree):
                columns[term] = columns[term[:-1]] * x[..., term[-1]]
        terms = self.terms
        return torch.stack([columns[term] for term in terms], dim=-1) if terms else x.new_zeros(*x.shape[:-1], 0)

    def gradients(self, x: Tensor) -> Tensor:
        r"""Derivatives at points `(*, size)`, with shape `(*, m, size)`."""
        lower = Monomials(self.size, max(self.degree - 1, 0))
        values, place = lower(x), {term: k for k, term in enumerate(lower.terms)}
        out = x.new_zeros(*x.shape[:-1], len(self), self.size)
        for k, term in enumerate(self.terms):
            for i in set(term):
                rest = list(term)
                rest.remove(i)
                out[..., k, i] = term.count(i) * values[..., place[tuple(rest)]]
        return out

    def names(self, letters: Sequence[str] | None = None) -> list[str]:
        r"""How the monomials are written, such as `x^2 y`."""
        letters = letters or variables(self.size)
        return [_write(term, letters) for term in self.terms]


def variables(size: int) -> list[str]:
    r"""Letters of `size` variables: x, y, z, or x1, x2, ..."""
    return list(_LETTERS[size]) if size in _LETTERS else [f"x{i + 1}" for i in range(size)]


def _write(term: tuple[int, ...], letters: Sequence[str]) -> str:
    parts = [letters[i] + (f"^{term.count(i)}" if term.count(i) > 1 else "") for i in sorted(set(term))]
    return " ".join(parts) or "1"


def write_sum(coefficients: Sequence[float], names: Sequence[str], least: float = LEAST) -> str:
    r"""A linear combination as a scientist writes it; terms below a share of the largest are left out.

    Example:
        >>> write_sum([2.0, -1.0, 1e-9, 0.5], ["x", "y", "z", "1"])
        '2 x - y + 0.5'
    """
    largest = max((abs(c) for c in coefficients), default=0.0)
    text = ""
    for c, name in zip(coefficients, names, strict=True):
        if abs(c) < least * largest or not c:
            continue
        number = f"{abs(c):.3g}"
        word = number if name == "1" else name if number == "1" else f"{number} {name}"
        sign = ("-" if c < 0 else "") if not text else (" - " if c < 0 else " + ")
        text += sign + word
    return text or "0"
