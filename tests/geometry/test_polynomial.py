"""Flows of polynomial fields, and how they are written."""

import pytest
import torch

import atlasd as ad
from atlasd.errors import InputError
from atlasd.geometry.polynomial import change_coordinates, write_field


def field(rows, size):
    a = torch.zeros(size, size, dtype=torch.float64)
    a[: len(rows)] = torch.tensor(rows, dtype=torch.float64)
    return a


def test_flows_keep_what_the_field_keeps():
    a = field([[0, 0, 2, 0, 0, 0], [0, 0, 0, 3, 0, 0]], 6)
    x = torch.randn(20, 1, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    action = ad.PolynomialAction(degree=2)
    there = action.on_input(0.2 * a, x)
    keep = lambda v: v[..., 0] ** 3 - v[..., 1] ** 2  # noqa: E731
    torch.testing.assert_close(keep(there), keep(x), atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(action.on_input(-0.2 * a, there), x, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(action.on_input((0.2 * a).expand(20, 1, 6, 6), x), there)


def test_affine_fields_flow_as_matrices_do():
    generator = torch.Generator().manual_seed(1)
    a = torch.zeros(3, 3, dtype=torch.float64)
    a[:2] = 0.5 * torch.randn(2, 3, generator=generator, dtype=torch.float64)
    homogeneous = torch.zeros(3, 3, dtype=torch.float64)
    homogeneous[:2, :2], homogeneous[:2, 2] = a[:2, 1:], a[:2, 0]
    x = torch.randn(9, 2, generator=generator, dtype=torch.float64)
    wanted = ad.AffineAction().on_input(torch.matrix_exp(homogeneous), x)
    torch.testing.assert_close(ad.PolynomialAction(degree=1).on_input(a, x), wanted, atol=1e-5, rtol=1e-5)


def test_other_coordinates():
    fields = torch.randn(2, 2, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    linear, shift = torch.tensor([[2.0, 1.0], [0.0, 0.5]]).double(), torch.tensor([0.3, -2.0]).double()
    moved = change_coordinates(fields, linear, shift, 2)
    x = torch.randn(7, 2, dtype=torch.float64)
    u = x @ linear.mT + shift
    action = ad.PolynomialAction(degree=2)
    there = torch.einsum("kij,bj->kbi", fields, action.columns(u))
    here = torch.einsum("kij,bj->kbi", moved, action.columns(x))
    torch.testing.assert_close(here @ linear.mT, there)


def test_writing():
    assert write_field(torch.tensor([[4.0, 0.0, -4.0], [-1.0, 1.0, 0.0]]), 1) == "(4 - 4 y) d/dx + (-1 + x) d/dy"
    assert write_field(torch.tensor([[0.0, 0.0, -1.0], [0.0, 1.0, 0.0]]), 1) == "-y d/dx + x d/dy"
    assert write_field(torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), 1) == "d/dx"
    assert write_field(torch.zeros(2, 3), 1) == "0"


def test_bad_input():
    with pytest.raises(InputError, match="positive integer"):
        ad.PolynomialAction(degree=0)
    with pytest.raises(InputError, match="invariant"):
        ad.PolynomialAction(rho_out=lambda g: g)


def test_terms_are_left_out_by_what_they_do():
    field = torch.zeros(2, 6)
    field[0, 2], field[1, 3], field[1, 0] = 1.0, 1e-9, 1e-4
    assert write_field(field, degree=2) == "y d/dx"
    sizes = torch.tensor([1e-3, 1.0, 1e-3, 1e6, 1.0, 1e-6]).expand(2, -1)  # x is about 1000
    assert write_field(field, degree=2, sizes=sizes) == "y d/dx + 1e-09 x^2 d/dy"
