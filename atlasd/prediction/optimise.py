"""Adam, its cycle of rates, and L-BFGS for many small problems at once; `torch.optim` loads a compiler, for seconds."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

_SECOND, _EPSILON = 0.999, 1e-8
_MEMORY = 20
"""Steps that L-BFGS remembers."""
_HALVINGS = 10


def one_cycle(step: int, total: int, rate: float, rise: float = 0.15) -> tuple[float, float]:
    """Learning rate and momentum of one of `total` steps: the rate rises to `rate` and falls again, momentum opposite.

    Example:
        >>> [round(one_cycle(i, 100, 1.0)[0], 2) for i in (0, 14, 57, 99)]
        [0.04, 1.0, 0.49, 0.0]

    References:
        Smith and Topin, Super-convergence, arXiv:1708.07120 (2017).
    """
    top = max(rise * total - 1, 0.0)
    share, ends = (step / top, (rate / 25, rate)) if step < top else (1.0, (rate, rate))
    momenta = (0.95, 0.85)
    if step > top:
        share, ends, momenta = (step - top) / max(total - 1 - top, 1.0), (rate, rate / 250_000), (0.85, 0.95)
    mix = (1 + math.cos(math.pi * share)) / 2
    return ends[1] + (ends[0] - ends[1]) * mix, momenta[1] + (momenta[0] - momenta[1]) * mix


class Adam:
    """Adam on some tensors.

    References:
        Kingma and Ba, Adam: a method for stochastic optimization, ICLR (2015).
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.tensors, self.count = list(tensors), 0
        self._first = [torch.zeros_like(z) for z in self.tensors]
        self._second = [torch.zeros_like(z) for z in self.tensors]

    @torch.no_grad()
    def step(self, rate: float, momentum: float = 0.9) -> None:
        """Moves all tensors along their gradients, and drops these."""
        self.count += 1
        first, second = 1 - momentum**self.count, 1 - _SECOND**self.count
        for z, mean, square in zip(self.tensors, self._first, self._second, strict=True):
            if z.grad is None:
                continue
            mean.lerp_(z.grad, 1 - momentum)
            square.mul_(_SECOND).addcmul_(z.grad, z.grad, value=1 - _SECOND)
            z.addcdiv_(mean, (square / second).sqrt_().add_(_EPSILON), value=-rate / first)
            z.grad = None


class Descent:
    """L-BFGS with a backtracking search, for one problem in each row of some tensors `(E, *)`, all at once.

    Arguments:
        tensors: What is changed; all have as many rows.
        rows: Number E of problems; with one, tensors have no axis for it.
        losses: Yields parts of the losses `(E,)`, which sum to the whole.

    References:
        Liu and Nocedal, On the limited memory BFGS method for large scale optimization, Math. Programming 45 (1989).
    """

    def __init__(self, tensors: Sequence[Tensor], rows: int, losses: Callable[[], Iterator[Tensor]]) -> None:
        self.tensors, self.rows, self._losses = list(tensors), rows, losses
        self._memory: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=_MEMORY)
        self.point = self._flat([z.detach() for z in self.tensors])
        self._scale = self.point.new_ones(rows, 1)
        self.value, self.slope = self._evaluate(self.point)

    def _flat(self, tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([z.reshape(self.rows, -1) for z in tensors], dim=1)

    def _write(self, point: Tensor) -> None:
        with torch.no_grad():
            sizes = [z.numel() // self.rows for z in self.tensors]
            for z, part in zip(self.tensors, point.split(sizes, dim=1), strict=True):
                z.copy_(part.reshape(z.shape))

    def _evaluate(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Losses `(E,)` and gradients `(E, P)`."""
        self._write(point)
        for z in self.tensors:
            z.grad = None
        total = point.new_zeros(self.rows)
        for value in self._losses():
            value.sum().backward()  # type: ignore[no-untyped-call]
            total = total + value.detach()
        slopes = [torch.zeros_like(z) if z.grad is None else z.grad for z in self.tensors]
        return total, self._flat(slopes)

    def _direction(self) -> Tensor:
        """Minus the gradient, with the curvature of the steps that are remembered taken out."""
        q, shares = -self.slope, []
        for step, change, inverse in reversed(self._memory):
            share = inverse * (step * q).sum(1, keepdim=True)
            q = q - share * change
            shares.append(share)
        q = q * self._scale
        for (step, change, inverse), share in zip(self._memory, reversed(shares), strict=True):
            q = q + step * (share - inverse * (change * q).sum(1, keepdim=True))
        return q if self._memory else q / q.norm(dim=1, keepdim=True).clamp_min(1.0)

    def iterate(self) -> bool:
        """One step of every problem; whether any of them came further."""
        direction = self._direction()
        fall = (direction * self.slope).sum(1)
        size = torch.ones_like(fall)
        for _ in range(_HALVINGS):
            value, slope = self._evaluate(self.point + size[:, None] * direction)
            good = value <= self.value + 1e-4 * size * fall
            if bool(good.all()):
                break
            size = torch.where(good, size, 0.3 * size)
        size = torch.where(good & (fall < 0), size, 0.0)
        kept = (size > 0)[:, None]
        step = size[:, None] * direction
        change = torch.where(kept, slope - self.slope, 0.0)
        product, square = ((change * z).sum(1, keepdim=True) for z in (step, change))
        curved = product > 1e-10 * square
        self._memory.append((step, change, torch.where(curved, 1 / torch.where(curved, product, 1.0), 0.0)))
        self._scale = torch.where(curved, product / torch.where(curved, square, 1.0), self._scale)
        self.point, self.value = self.point + step, torch.where(kept[:, 0], value, self.value)
        self.slope = torch.where(kept, slope, self.slope)
        self._write(self.point)
        return bool(kept.any())
