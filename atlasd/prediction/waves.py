"""Waves that are left in the errors of a regression: a function of one direction that smooth features cannot follow."""

from __future__ import annotations

__all__ = ["strongest_wave"]

import torch
from torch import Tensor

from atlasd.limits import CLEAR

_STARTS, _KEPT = 256, 24
_FINEST = 5.0
"""The shortest waves that are looked for, in radians for each unit of the inputs' spread."""


def strongest_wave(x: Tensor, errors: Tensor, generator: torch.Generator) -> Tensor | None:
    r"""The wave vector `(D,)` at which errors have most power, where that is no accident; otherwise `None`.

    The power is :math:`|\sum_m e_m \exp(i k x_m)|^2 / \sum_m e_m^2`. In units of the spread of the inputs it falls as
    :math:`\exp(-|k - q|^2)` around its maximum at q, so that half of the gradient of its logarithm leads there.

    Arguments:
        x: Inputs, `(M, D)`.
        errors: `(M, O)`.
        generator: For the starts.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(1000, 3, generator=generator, dtype=torch.float64)
        >>> wave = strongest_wave(x, torch.sin(x @ x.new_tensor([2.0, -2.0, 1.0]))[:, None], generator)
        >>> (wave * wave[0].sign()).round().tolist()
        [2.0, -2.0, 1.0]
    """
    spread = x.std(0).clamp_min(1e-300)
    x = (x - x.mean(0)) / spread
    scaled = errors / errors.square().sum(0).sqrt().clamp_min(1e-300)
    waves = torch.randn(_STARTS, x.shape[1], generator=generator, dtype=x.dtype)
    length = _FINEST * torch.rand(_STARTS, 1, generator=generator, dtype=x.dtype)
    waves = length * waves / waves.norm(dim=1, keepdim=True)
    for count, steps in ((_STARTS, 3), (_KEPT, 12)):
        waves = waves[_power(x, scaled, waves)[0].argsort(descending=True)[:count]]
        for _ in range(steps):
            power, slope = _power(x, scaled, waves)
            waves = waves + slope / (2 * power.clamp_min(1e-300))[:, None]
            waves = waves * (2 * _FINEST / waves.norm(dim=1, keepdim=True).clamp_min(1e-300)).clamp_max(1.0)
    power, _ = _power(x, scaled, waves)
    best = int(power.argmax())
    return waves[best] / spread if float(power[best]) >= CLEAR**2 + errors.shape[1] else None


def _power(x: Tensor, errors: Tensor, waves: Tensor) -> tuple[Tensor, Tensor]:
    """Power `(S,)` of errors `(M, O)` at waves `(S, D)`, and its gradient `(S, D)`."""
    phase = waves @ x.mT  # (S, M)
    even, odd = phase.cos(), phase.sin()
    real, imaginary = even @ errors, odd @ errors  # (S, O)
    power = real.square() + imaginary.square()
    # d real = -sum e x sin, d imaginary = sum e x cos, summed over outputs.
    pull = imaginary @ errors.mT * even - real @ errors.mT * odd  # (S, M)
    return power.sum(1), 2 * pull @ x
