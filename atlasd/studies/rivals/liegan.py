"""LieGAN: generators whose transformations a discriminator cannot tell from the data, as a search beside ours."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import skip_init

from atlasd.algebra.basis import cosine_similarity
from atlasd.data.samples import Samples
from atlasd.discovery.problem import Problem, Proposal
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.resample import pixel_grid
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream

_SETTLE = 0.8
"""Share of the steps before those whose mean is the answer."""
_COLLAPSED = 0.01
"""Norm below which a generator counts as absent."""


@dataclass(frozen=True, kw_only=True)
class LieGAN:
    r"""Generators B such that :math:`(gx, gy)`, with :math:`g = \exp(\sum_i w_i B_i)`, has the distribution of (x, y).

    It looks at the data and at no predictor, and asks for more than a symmetry of the map: the inputs must be
    spread along the orbits as well. It answers with as many generators as it was given, whether or not they are
    symmetries, and its elements are exponentials: components of determinant -1, parity among them, are out of reach.

    Arguments:
        coefficients: How w is drawn: `normal`, or `integers` for discrete subgroups.
        spread: Standard deviation or largest integer of w.
        growth: Weight of the cosine between data and transformed data, which keeps g away from the identity.
        similarity: Weight of the cosines between generators.
        generator_rate: Learning rate of the generators.
        discriminator_rate: Learning rate of the discriminator.
        start: Size of the entries that the generators start from.
        width: Width of the discriminator; 32 is used on fields if it is left out, 128 on vectors.
        pixels: Fields are averaged over blocks to at most this many pixels on a side before they are transformed.

    Example:
        >>> LieGAN(generators=7).published().discriminator_rate
        0.0002

    References:
        Yang, Walters, Dehmamy and Yu, Generative adversarial symmetry discovery (2023).
    """

    generators: int = 1
    coefficients: Literal["normal", "integers"] = "normal"
    spread: float = 1.0
    growth: float = 1.0
    similarity: float = 0.1
    steps: int = 1500
    batch: int = 512
    generator_rate: float = 3e-3
    discriminator_rate: float = 2e-3
    start: float = 0.2
    width: int | None = None
    pixels: int = 32

    def __post_init__(self) -> None:
        if self.generators < 1:
            raise InputError(f"`generators` must be at least 1, got {self.generators}.")
        if self.coefficients not in ("normal", "integers"):
            raise InputError(f"`coefficients` must be 'normal' or 'integers', got {self.coefficients!r}.")
        for name in ("steps", "batch", "spread", "generator_rate", "discriminator_rate", "start"):
            if getattr(self, name) <= 0:
                raise InputError(f"`{name}` must be positive, got {getattr(self, name)}; leave it at its default.")

    def published(self) -> LieGAN:
        """The same with the learning rates and weights that were published; slower to settle."""
        return replace(self, generator_rate=1e-3, discriminator_rate=2e-4, growth=1e-2, similarity=1e-2)

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Proposal:
        """Plays the game on the data of the problem."""
        n = problem.size
        data = _FieldData(problem, self.pixels) if problem.is_field else _VectorData(problem)
        kind = FieldDiscriminator if problem.is_field else VectorDiscriminator
        width = self.width or (32 if problem.is_field else 128)
        judge: nn.Module = kind(*data.channels, width=width, generator=stream(seed, "liegan", "discriminator"))
        span = torch.eye(n * n).reshape(n * n, n, n)
        return self.play(data.pairs, len(problem.samples), data.move, judge, span, seed=seed, progress=progress)

    def find_in_data(
        self, x: Any, y: Any, *, action: Action | None = None, seed: int = 0, progress: Progress | None = None
    ) -> Proposal:
        """Plays the game without a predictor, for those who want no verdict; generators act on the data as given.

        Outputs are invariant, and fields are seen as a whole, unless `action` says otherwise.
        """
        samples = Samples.check(x, y, minimum=20)
        problem = Problem(
            functions=(_unasked,),
            fold=torch.zeros(len(samples), dtype=torch.long),
            action=action or (GridAction(dimensions=samples.size) if samples.is_field else VectorAction()),
            samples=samples.plain(),
            known=False,
            classes=samples.classes,
        )
        return self.find(problem, seed=seed, progress=progress or Silent())

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Coefficients of the generators for `count` samples, with shape `(count, k)`.

        Normal with standard deviation `spread`, or whole numbers up to it: whole multiples of one generator make a
        discrete subgroup.
        """
        shape = (count, self.generators)
        if self.coefficients == "normal":
            return self.spread * torch.randn(shape, generator=generator)
        most = max(int(self.spread), 1)
        return torch.randint(-most, most + 1, shape, generator=generator).float()

    def play(
        self,
        pairs: Callable[[Tensor], tuple[Tensor, Tensor]],
        samples: int,
        move: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]],
        discriminator: nn.Module,
        span: Tensor,
        *,
        seed: int,
        progress: Progress,
    ) -> Proposal:
        """Trains both sides, one step each in turn; claims every generator that has not collapsed.

        Arguments:
            pairs: Indices `(B,)` to inputs and outputs as the discriminator is to see them.
            move: Transforms inputs and outputs by group elements `(B, n, n)`.
            span: Matrices `(m, n, n)` whose combinations the generators may be.

        Returns:
            The generators, averaged over the last steps, and the curves of both losses.
        """
        generator = stream(seed, "liegan", "game")
        weights = (self.start * torch.randn(self.generators, len(span), generator=generator)).requires_grad_()
        against = torch.optim.Adam(discriminator.parameters(), lr=self.discriminator_rate)
        towards = torch.optim.Adam([weights], lr=self.generator_rate)
        rates = ((against, self.discriminator_rate), (towards, self.generator_rate))
        settled: list[Tensor] = []
        curves: dict[str, list[float]] = {"discriminator": [], "generator": [], "weakest generator": []}

        def basis() -> Tensor:
            return torch.einsum("km,mij->kij", weights, span.float())

        def fake(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            w = self.draw(len(x), generator)
            return move(torch.matrix_exp(torch.einsum("bk,kij->bij", w, basis())), x, y)

        def some() -> tuple[Tensor, Tensor]:
            return pairs(torch.randint(samples, (self.batch,), generator=generator))

        for step in progress.track(range(self.steps), "adversarial training", total=self.steps):
            for optimizer, rate in rates:
                # Both rates fall along a cosine: without it the two sides circle around each other.
                optimizer.param_groups[0]["lr"] = rate * max(0.5 * (1 + math.cos(math.pi * step / self.steps)), 0.02)
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
            total = fooled + self.growth * same
            if self.generators > 1:
                total = total + self.similarity * cosine_similarity(basis())
            towards.zero_grad()
            total.backward()
            towards.step()
            with torch.no_grad():
                now = basis().double()
            curves["discriminator"].append(float(loss.detach()))
            curves["generator"].append(float(fooled.detach()))
            curves["weakest generator"].append(float(now.flatten(1).norm(dim=1).min()))
            if step >= int(_SETTLE * self.steps):  # the mean of the last steps carries less of the noise of the game
                settled.append(now)
        basis_found = torch.stack(settled).mean(0)
        kept = basis_found[basis_found.flatten(1).norm(dim=1) >= _COLLAPSED]
        lost = len(basis_found) - len(kept)
        notes = (f"{lost} of {self.generators} generators collapsed to zero",) if lost else ()
        return Proposal(kept, curves={k: tuple(v) for k, v in curves.items()}, notes=notes, fixed=True)


def _log_loss(logits: Tensor, target: float) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, target))


def _unasked(x: Tensor) -> Tensor:
    raise AssertionError("LieGAN looks at data alone")


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
    corners that a rotation brings in from outside would give every transformation away.
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


class _VectorData:
    """Vectors in one unit, outputs in units of their spread."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        some = torch.arange(len(problem.samples))[:4096]
        x, y = problem.patches(some), problem.labels(some).float()
        self._unit = float(x.std().clamp_min(1e-30))
        self._shift, self._scale = y.mean(0), y.std(0).clamp_min(1e-6)
        self.channels = (x[0].numel(), y[0].numel())

    def pairs(self, part: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self._problem.patches(part), self._problem.labels(part).float()
        return x[:, 0].float() / self._unit, ((y - self._shift) / self._scale)[:, 0]

    def move(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        action = self._problem.action
        y = y * self._scale[0] + self._shift[0]
        return action.on_input(g, x), (action.on_output(g, y) - self._shift[0]) / self._scale[0]


class _FieldData:
    """Fields in units of their spread, averaged over blocks; charts are samples of their own."""

    def __init__(self, problem: Problem, pixels: int) -> None:
        self._problem = problem
        some = torch.arange(len(problem.samples))[:64]
        x, y = problem.patches(some).float(), problem.labels(some).float()
        if problem.size != 2:
            raise InputError(f"`search` LieGAN knows fields of 2 axes, got {problem.size}; use SpectralSearch.")
        self._block = -(-max(x.shape[-2:]) // pixels)
        axes = (0, 1, 3, 4)
        self._x = (x.mean(axes), x.std(axes).clamp_min(1e-6))
        self._y = (y.mean(axes), y.std(axes).clamp_min(1e-6))
        self.channels = (x.shape[2], y.shape[2])

    def pairs(self, part: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self._problem.patches(part).float(), self._problem.labels(part).float()
        return self._small(x, *self._x), self._small(y, *self._y)

    def move(self, g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        action = self._problem.action
        return action.on_input(g, x), action.on_output(g, y)

    def _small(self, z: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        z = (z - mean[:, None, None]) / scale[:, None, None]
        return functional.avg_pool2d(z.flatten(0, 1), self._block) if self._block > 1 else z.flatten(0, 1)
