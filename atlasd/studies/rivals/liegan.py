"""LieGAN: generators whose motions a discriminator cannot tell from the data, as a search beside ours."""

from __future__ import annotations

__all__ = ["LieGAN"]

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.discovery.problem import Problem
from atlasd.discovery.search import Found
from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, VectorAction
from atlasd.geometry.atlas import Atlas
from atlasd.runtime.progress import Progress, Silent
from atlasd.runtime.random import stream
from atlasd.studies.rivals.adversarial import FieldDiscriminator, Game, VectorDiscriminator, play


@dataclass(frozen=True, kw_only=True)
class LieGAN(Game):
    r"""Generators B such that :math:`(gx, gy)`, with :math:`g = \exp(\sum_i w_i B_i)`, has the distribution of (x, y).

    It looks at the data and at no predictor, and asks for more than a symmetry of the map: the inputs must be
    spread along the orbits as well. It answers with as many generators as it was given, whether or not they are
    symmetries, and its elements are exponentials: components of determinant -1, parity among them, are out of reach.

    Arguments:
        width: Width of the discriminator; 32 is used on fields if it is left out, 128 on vectors.
        samples: The most samples looked at; `None` for all.
        pixels: Fields are averaged over blocks to at most this many pixels on a side before they are moved.
        threshold: Norm below which a generator counts as absent.

    Example:
        >>> LieGAN(generators=7).published().discriminator_rate
        0.0002

    References:
        Yang, Walters, Dehmamy and Yu, Generative adversarial symmetry discovery (2023).
    """

    width: int | None = None
    samples: int | None = None
    pixels: int = 32
    threshold: float = 0.01

    def published(self) -> LieGAN:
        """The same with the learning rates and weights that were published; slower to settle."""
        return replace(self, generator_rate=1e-3, discriminator_rate=2e-4, growth=1e-2, similarity=1e-2)

    def find(self, problem: Problem, *, seed: int, progress: Progress) -> Found:
        """Plays the game on the data of the problem."""
        index = torch.arange(len(problem.samples))[: self.samples]
        generator = stream(seed, "liegan", "game")
        weights = stream(seed, "liegan", "discriminator")
        n = problem.size
        span = torch.eye(n * n).reshape(n * n, n, n)
        data = _FieldData(problem, index, self.pixels) if problem.is_field else _VectorData(problem, index)
        kind = FieldDiscriminator if problem.is_field else VectorDiscriminator
        width = self.width or (32 if problem.is_field else 128)
        judge: nn.Module = kind(*data.channels, width=width, generator=weights)
        return self.found(
            *play(self, data.pairs, index, data.move, judge, span, generator=generator, progress=progress)
        )

    def find_in_data(
        self,
        x: Any,
        y: Any,
        *,
        atlas: Atlas | None = None,
        action: Action | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> Found:
        """Plays the game without a predictor, for those who want no verdict; generators act on the data as given.

        Arguments:
            x: Inputs, as for `atlasd.discover`.
            y: Targets.
            atlas: Charts; the whole field by default.
            action: How matrices transform inputs and outputs; outputs are invariant by default.
            seed: Seed of every random stream.
            progress: Progress display.
        """
        samples = Samples.check(x, y, atlas, minimum=20)
        problem = Problem(
            functions=(_unasked,),
            fold=torch.zeros(len(samples), dtype=torch.long),
            action=action or (GridAction(dimensions=samples.size) if samples.is_field else VectorAction()),
            samples=samples.plain(),
            known=False,
            classes=samples.classes,
        )
        return self.find(problem, seed=seed, progress=progress or Silent())

    def found(self, basis: Tensor, curves: dict[str, tuple[float, ...]]) -> Found:
        """What is claimed: every generator that has not collapsed."""
        kept = basis[basis.flatten(1).norm(dim=1) >= self.threshold]
        lost = len(basis) - len(kept)
        notes = (f"{lost} of {len(basis)} generators collapsed to zero",) if lost else ()
        return Found(kept, curves=curves, notes=notes, fixed=True)


def _unasked(x: Tensor) -> Tensor:
    raise AssertionError("LieGAN looks at data alone")


class _VectorData:
    """Vectors in one unit, outputs in units of their spread."""

    def __init__(self, problem: Problem, index: Tensor) -> None:
        self._problem = problem
        some = index[:4096]
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

    def __init__(self, problem: Problem, index: Tensor, pixels: int) -> None:
        self._problem = problem
        x, y = problem.patches(index[:64]).float(), problem.labels(index[:64]).float()
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
