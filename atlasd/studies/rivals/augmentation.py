"""Augmentation learning: a distribution over given generators, learned with a network that is averaged over it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from atlasd.runtime.random import stream


@dataclass(frozen=True, kw_only=True)
class AugmentationLearning:
    r"""Learns how far inputs may be moved along each of given generators, as Augerino does.

    A perceptron f is trained on inputs moved by :math:`g = \exp(\sum_i \epsilon_i w_i G_i)`, with :math:`\epsilon`
    uniform between -1 and 1, and the widths w are trained with it: the loss falls with them only where moving
    costs nothing, and a reward for large widths keeps them from vanishing. Generators are given; combinations of them
    are not looked for.

    Arguments:
        reward: Weight of the norm of the widths.
        start: Width that all start from.
        threshold: Width, in radians or factors of e, from which on a generator is claimed.

    References:
        Benton, Finzi, Izmailov and Wilson, Learning invariances in neural networks from training data (2020).
    """

    reward: float = 0.01
    start: float = 0.3
    rate: float = 3e-3
    steps: int = 2000
    batch: int = 256
    hidden: int = 64
    threshold: float = 0.1

    def find(
        self, x: Tensor, y: Tensor, generators: Tensor, *, seed: int, output: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        """The generators that are claimed `(j, n, n)`, and all widths `(k,)`.

        Arguments:
            x: Inputs `(N, n)`.
            y: Targets `(N,)` or `(N, O)`.
            generators: What may be mixed, `(k, n, n)`.
            output: How elements `(B, n, n)` transform targets, `(B, O, O)`; targets are invariants by default.
        """
        draw = stream(seed, "augmentation")
        x, y = x.float(), y.float().reshape(len(x), -1)
        unit = x.std().clamp_min(1e-30)
        # One unit for all outputs that transform together.
        shift, scale = (0.0, y.std()) if output else (y.mean(0), y.std(0))
        y = (y - shift) / torch.as_tensor(scale).clamp_min(1e-30)
        network = perceptron(x.shape[1], self.hidden, y.shape[1], draw)
        raw = torch.full((len(generators),), self.start).expm1().log().requires_grad_()
        rates: list[dict[str, Any]] = [{"params": network.parameters()}, {"params": [raw], "lr": 3 * self.rate}]
        optimizer = torch.optim.Adam(rates, lr=self.rate)
        given = generators.float()
        for _ in range(self.steps):
            index = torch.randint(len(x), (self.batch,), generator=draw)
            widths = functional.softplus(raw)
            noise = (2 * torch.rand(self.batch, len(given), generator=draw) - 1) * widths
            g = torch.matrix_exp(torch.einsum("bk,kij->bij", noise, given))
            said = network((g @ x[index][..., None])[..., 0] / unit)
            meant = y[index] if output is None else (output(g) @ y[index][..., None])[..., 0]
            loss = functional.mse_loss(said, meant) - self.reward * widths.norm()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        widths = functional.softplus(raw).detach().double()
        return generators[widths >= self.threshold].double(), widths


def perceptron(inputs: int, hidden: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    """Two hidden layers, started from a given source of randomness."""
    layers: list[nn.Module] = []
    sizes = (inputs, hidden, hidden, outputs)
    for a, b in pairwise(sizes):
        linear = skip_init(nn.Linear, a, b)
        with torch.no_grad():
            for value in linear.parameters():
                value.copy_((2 * torch.rand(value.shape, generator=generator) - 1) / a**0.5)
        layers += [linear, nn.SiLU()]
    return nn.Sequential(*layers[:-1])
