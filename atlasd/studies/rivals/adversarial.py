"""The game of LieGAN: a generator of group elements against a discriminator of data."""

from __future__ import annotations

__all__ = ["Coefficients", "FieldDiscriminator", "Game", "Pairs", "VectorDiscriminator", "play"]

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from atlasd.algebra.basis import cosine_similarity
from atlasd.errors import InputError
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.progress import Progress

Coefficients: TypeAlias = Literal["normal", "uniform", "integers"]
Pairs: TypeAlias = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Indices `(B,)` to inputs and outputs as the discriminator is to see them, before they are moved."""
_SETTLE = 0.8


class VectorDiscriminator(nn.Module):
    """A perceptron on inputs and outputs together."""

    def __init__(self, inputs: int, outputs: int, *, width: int, generator: torch.Generator) -> None:
        super().__init__()
        widths = [(inputs + outputs, width), (width, width), (width, 1)]
        self.layers = nn.ModuleList(skip_init(nn.Linear, a, b) for a, b in widths)
        _start_small(self.layers, generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-odds that pairs are data, with shape `(B,)`."""
        z = torch.cat([x.flatten(1), y.flatten(1)], dim=1)
        for layer in self.layers[:-1]:
            z = functional.leaky_relu(layer(z), 0.2)
        return self.layers[-1](z).squeeze(1)


class FieldDiscriminator(nn.Module):
    """Convolutions with stride 2 on the channels of both fields together, then a mean over what is left.

    Outputs smaller than inputs are put in the middle, with zeros around. With `disc`, only a disc is looked at:
    corners that a turn brings in from outside would give every motion away.
    """

    def __init__(self, inputs: int, outputs: int, *, width: int, generator: torch.Generator, disc: bool = True) -> None:
        super().__init__()
        self.disc = disc
        widths = [inputs + outputs, width // 2, width, width]
        self.layers = nn.ModuleList(skip_init(nn.Conv2d, a, b, 5, stride=2, padding=2) for a, b in pairwise(widths))
        self.last = nn.ModuleList([skip_init(nn.Linear, width, 1)])
        _start_small(self.layers, generator)
        _start_small(self.last, generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Log-odds that pairs are data, with shape `(B,)`."""
        pads = [p for a, b in zip(reversed(x.shape[2:]), reversed(y.shape[2:]), strict=True) for p in _around(a - b)]
        z = torch.cat([x, functional.pad(y, pads)], dim=1)
        if self.disc:
            z = z * _disc(tuple(x.shape[2:]))
        for layer in self.layers:
            z = functional.leaky_relu(layer(z), 0.2)
        return self.last[0](z.mean((-1, -2))).squeeze(1)


def _start_small(layers: nn.ModuleList, generator: torch.Generator) -> None:
    """Weights and offsets between plus and minus 1 / sqrt(inputs): a discriminator that starts sharp, stays wrong."""
    with torch.no_grad():
        for layer in layers:
            bound = 1 / math.sqrt(layer.get_parameter("weight")[0].numel())
            for value in layer.parameters():
                value.copy_((2 * torch.rand(value.shape, generator=generator) - 1) * bound)


def _disc(shape: tuple[int, ...]) -> Tensor:
    distance = pixel_grid(shape).norm(dim=-1).reshape(shape)
    return ((min(shape) / 2 - 1) - distance).clamp(0.0, 1.0)


def _around(room: int) -> tuple[int, int]:
    return room // 2, room - room // 2


@dataclass(frozen=True, kw_only=True)
class Game:
    """How the two are trained.

    Arguments:
        generators: The number of generators.
        coefficients: How w is drawn: `normal`, `uniform`, or `integers` for discrete subgroups.
        spread: Standard deviation, half width, or largest integer of w.
        growth: Weight of the cosine between data and moved data, which keeps g away from the identity.
        similarity: Weight of the cosines between generators.
        steps: Steps of each side, unless `epochs` is given.
        epochs: Passes over the data.
        batch: Samples in a step.
        generator_rate: Learning rate of the generators.
        discriminator_rate: Learning rate of the discriminator.
        start: Size of the entries that the generators start from.
    """

    generators: int = 1
    coefficients: Coefficients = "normal"
    spread: float = 1.0
    growth: float = 1.0
    similarity: float = 0.1
    steps: int = 1500
    epochs: int | None = None
    batch: int = 512
    generator_rate: float = 3e-3
    discriminator_rate: float = 2e-3
    start: float = 0.2

    def __post_init__(self) -> None:
        if self.generators < 1:
            raise InputError(f"`generators` must be at least 1, got {self.generators}.")
        if self.coefficients not in ("normal", "uniform", "integers"):
            raise InputError(f"`coefficients` must be 'normal', 'uniform' or 'integers', got {self.coefficients!r}.")
        for name in ("steps", "batch", "spread", "generator_rate", "discriminator_rate", "start"):
            if getattr(self, name) <= 0:
                raise InputError(f"`{name}` must be positive, got {getattr(self, name)}; leave it at its default.")

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Coefficients of the generators for `count` samples, with shape `(count, k)`.

        Normal with standard deviation `spread`, uniform between `-spread` and `spread`, or whole numbers between
        them: whole multiples of one generator make a discrete subgroup.
        """
        shape = (count, self.generators)
        if self.coefficients == "normal":
            return self.spread * torch.randn(shape, generator=generator)
        if self.coefficients == "uniform":
            return self.spread * (2 * torch.rand(shape, generator=generator) - 1)
        most = max(int(self.spread), 1)
        return torch.randint(-most, most + 1, shape, generator=generator).float()


def play(
    game: Game,
    pairs: Pairs,
    index: Tensor,
    move: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
    discriminator: nn.Module,
    span: Tensor,
    *,
    generator: torch.Generator,
    progress: Progress,
) -> tuple[Tensor, dict[str, tuple[float, ...]]]:
    """Trains both sides, one step each in turn.

    Arguments:
        game: The settings.
        pairs: Reads samples.
        index: The samples that may be read.
        move: Moves inputs and outputs by group elements `(B, n, n)`.
        discriminator: Gives log-odds for pairs.
        span: Matrices `(m, n, n)` whose combinations the generators may be.
        generator: The source of randomness.
        progress: Progress display.

    Returns:
        The generators, averaged over the last steps, `(k, n, n)` in float64, and the curves of both losses.
    """
    count = game.steps if game.epochs is None else max(game.epochs * len(index) // game.batch, 1)
    weights = (game.start * torch.randn(game.generators, len(span), generator=generator)).requires_grad_()
    against = torch.optim.Adam(discriminator.parameters(), lr=game.discriminator_rate)
    towards = torch.optim.Adam([weights], lr=game.generator_rate)
    rates = ((against, game.discriminator_rate), (towards, game.generator_rate))
    settled: list[Tensor] = []
    curves: dict[str, list[float]] = {"discriminator": [], "generator": [], "weakest generator": []}

    def basis() -> Tensor:
        return torch.einsum("km,mij->kij", weights, span.float())

    def fake(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        w = game.draw(len(x), generator)
        return move(torch.matrix_exp(torch.einsum("bk,kij->bij", w, basis())), x, y)

    def some() -> tuple[Tensor, Tensor]:
        return pairs(index[torch.randint(len(index), (game.batch,), generator=generator)])

    for step in progress.track(range(count), "adversarial training", total=count):
        for optimizer, rate in rates:
            # Both rates fall along a cosine: without it the two sides circle around each other.
            optimizer.param_groups[0]["lr"] = rate * max(0.5 * (1 + math.cos(math.pi * step / count)), 0.02)
        x, y = some()
        with torch.no_grad():
            moved = fake(x, y)
        loss = _log_loss(discriminator(x, y), 1.0) + _log_loss(discriminator(*moved), 0.0)
        against.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        against.step()

        x, y = some()
        moved = fake(x, y)
        fooled = _log_loss(discriminator(*moved), 1.0)
        # Moved data must not stay what they were, nor generators repeat each other.
        same = functional.cosine_similarity(moved[0].flatten(1), x.flatten(1), dim=1).mean()
        total = fooled + game.growth * same
        if game.generators > 1:
            total = total + game.similarity * cosine_similarity(basis())
        towards.zero_grad()
        total.backward()
        towards.step()
        with torch.no_grad():
            now = basis().double()
        curves["discriminator"].append(float(loss.detach()))
        curves["generator"].append(float(fooled.detach()))
        curves["weakest generator"].append(float(now.flatten(1).norm(dim=1).min()))
        if step >= int(_SETTLE * count):  # the mean of the last steps carries less of the noise of the game
            settled.append(now)
    return torch.stack(settled).mean(0), {k: tuple(v) for k, v in curves.items()}


def _log_loss(logits: Tensor, target: float) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))
