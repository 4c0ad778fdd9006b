"""Monomials know their derivatives and their names."""

import torch
from torch.func import jacrev, vmap

from atlasd.geometry.monomials import Monomials, write_sum


def test_values_and_gradients():
    x = torch.randn(5, 3, dtype=torch.float64)
    library = Monomials(3, 3)
    assert len(library) == 20 and library(x).shape == (5, 20)
    torch.testing.assert_close(library.gradients(x), vmap(jacrev(library))(x))
    powers = torch.stack([x[:, list(term)].prod(-1) for term in library.terms], dim=-1)
    torch.testing.assert_close(library(x), powers)


def test_names():
    assert Monomials(4, 1, least=1).names() == ["x1", "x2", "x3", "x4"]
    assert Monomials(2, 3, least=3).names(["q", "p"]) == ["q^3", "q^2 p", "q p^2", "p^3"]
    assert write_sum([-1.0, 0.0, 2.5], ["x", "y", "1"]) == "-x + 2.5"
    assert write_sum([0.0], ["x"]) == "0"
