"""Linear maps and translations act on vectors and sets."""

import torch

import atlasd as ad
from atlasd.data.units import Units
from atlasd.geometry.actions import linear_part


def elements(count, n, seed=0):
    a = torch.zeros(count, n + 1, n + 1, dtype=torch.float64)
    a[:, :n] = torch.randn(count, n, n + 1, generator=torch.Generator().manual_seed(seed)).double()
    return a


def test_products_act_one_after_the_other():
    action = ad.AffineAction()
    g, h = torch.matrix_exp(0.3 * elements(2, 3))
    for shape in ((5, 3), (5, 1, 3), (5, 1, 4, 3)):
        x = torch.randn(shape, dtype=torch.float64)
        torch.testing.assert_close(action.on_input(g @ h, x), action.on_input(g, action.on_input(h, x)))


def test_one_element_for_each_sample():
    g = torch.matrix_exp(0.3 * elements(5, 2))
    x = torch.randn(5, 4, 2, dtype=torch.float64)
    together = ad.AffineAction().on_input(g, x)
    torch.testing.assert_close(
        together, torch.stack([ad.AffineAction().on_input(a, b) for a, b in zip(g, x, strict=True)])
    )


def test_first_order():
    a, x = elements(1, 2)[0], torch.randn(6, 2, dtype=torch.float64)
    action = ad.AffineAction(rho_out=linear_part)
    step = (action.on_input(torch.matrix_exp(1e-6 * a), x) - x) / 1e-6
    torch.testing.assert_close(step, action.input_generator(a, x), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(action.output_generator(a, x), x @ a[:2, :2].mT)


def test_units_about_the_mean():
    x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0)) @ torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    x = x.double() + torch.tensor([100.0, -7.0])
    units = Units.of_vectors(x, centred=True)
    z = units.inputs(x)
    torch.testing.assert_close(z.mean(0), torch.zeros(2).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(z.mT @ z / 400, torch.eye(2).double())
    torch.testing.assert_close(units.raw_inputs(z), x)
    shift = torch.eye(3).double()
    shift[0, 2] = 5.0
    moved = ad.AffineAction().on_input(units.to_standard(shift), z)
    torch.testing.assert_close(units.raw_inputs(moved), x + torch.tensor([5.0, 0.0]))
