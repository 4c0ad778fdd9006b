"""Adam, its cycle and L-BFGS against problems with known answers, and against torch's own."""

import pytest
import torch

from atlasd.prediction.optimise import Adam, Descent, one_cycle


@pytest.mark.parametrize("rows", [1, 3])
def test_every_row_reaches_its_own_minimum(rows):
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(rows, 6, 6, generator=generator, dtype=torch.float64)
    curve, wanted = root.mT @ root + torch.eye(6), torch.randn(rows, 6, generator=generator, dtype=torch.float64)
    point = torch.zeros(rows, 6, dtype=torch.float64, requires_grad=True)

    def losses():
        away = point - wanted
        for share in (0.25, 0.75):
            yield share * torch.einsum("ei,eij,ej->e", away, curve, away)

    descent = Descent([point], rows, losses)
    for _ in range(60):
        descent.iterate()
    torch.testing.assert_close(point.detach(), wanted, atol=1e-6, rtol=0)
    torch.testing.assert_close(descent.value, torch.zeros(rows, dtype=torch.float64), atol=1e-9, rtol=0)


def test_a_step_that_does_not_lower_the_loss_is_not_taken():
    point = torch.zeros(1, 2, requires_grad=True)

    def losses():
        yield point.square().sum(1)

    descent = Descent([point], 1, losses)
    assert not descent.iterate()
    assert torch.equal(point.detach(), torch.zeros(1, 2))


def test_adam_with_its_cycle_is_that_of_torch():
    start = torch.randn(5, generator=torch.Generator().manual_seed(0))
    ours, theirs = start.clone().requires_grad_(), start.clone().requires_grad_()
    optimiser, reference = Adam([ours]), torch.optim.Adam([theirs], lr=0.1)
    cycle = torch.optim.lr_scheduler.OneCycleLR(reference, 0.1, total_steps=40, pct_start=0.15)
    for step in range(40):
        ours.cos().sum().backward()
        optimiser.step(*one_cycle(step, 40, 0.1))
        reference.zero_grad()
        theirs.cos().sum().backward()
        reference.step()
        if step < 39:
            cycle.step()
    torch.testing.assert_close(ours.detach(), theirs.detach())
