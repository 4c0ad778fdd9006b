"""Random smooth functions that are planted in the targets, also such as change over a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from atlasd.data.samples import Samples
from atlasd.geometry.resample import convolve, pixel_grid
from atlasd.prediction.trivial import centre_crop


def place_length(samples: Samples) -> float:
    """Unit of length of places in pixels: half the radius of the input patches, so that places have spread about 1."""
    radii = samples.atlas.radii
    return max((min(s - 1 for s in samples.x.shape[2:]) / 2 if radii is None else radii[0]) / 2, 0.5)


def place_kinds(dimensions: int) -> int:
    """How many monomials of the place there are up to the second degree."""
    return (dimensions + 1) * (dimensions + 2) // 2


def with_places(x: Tensor, length: float) -> Tensor:
    """Fields `(B, K, C, *S)` times each monomial of the place up to the second degree, `(B, K, place_kinds C, *S)`.

    A stencil of these is one whose weights are quadratic in the place.

    Arguments:
        length: Unit of the coordinates, which are measured from the centre.
    """
    shape = tuple(x.shape[3:])
    places = pixel_grid(shape, dtype=x.dtype).mT.unflatten(-1, shape) / length  # (d, *S)
    i, j = torch.triu_indices(len(shape), len(shape))
    return torch.cat([x, *(x * place for place in (*places, *(places[i] * places[j])))], dim=2)


@dataclass(frozen=True, eq=False)
class PlacedPlant:
    """Functions of fields times waves over the chart: no law that is the same everywhere.

    One for each phase of a wave along each axis: a single wave does not change where it is highest, nor across its
    direction, and whether that is noticed would be an accident of the draw.

    Arguments:
        plants: Fields `(B, K, C, *in)` to fields `(B, K, O, *shape)`.
        length: Unit of places in pixels.
    """

    plants: Sequence[Callable[[Tensor], Tensor]]
    length: float

    linear = True

    @classmethod
    def draw(cls, plant: FieldPlant, samples: Samples) -> PlacedPlant:
        """Waves half as long again as the chart is wide, with a stencil in as many positions."""
        turned = [plant.weights.rot90(k, (-2, -1)) for k in range(2 * samples.size)]
        return cls([replace(plant, weights=w) for w in turned], place_length(samples))

    def __call__(self, x: Tensor) -> Tensor:
        parts = [plant(x) for plant in self.plants]
        shape = tuple(parts[0].shape[3:])
        phase = pixel_grid(shape, dtype=torch.float64).mT / self.length
        waves = torch.cat([phase.cos(), phase.sin()]).unflatten(-1, shape).to(x.dtype)
        return torch.stack([y * wave for y, wave in zip(parts, waves, strict=True)]).sum(0)


_WAVES = 6


@dataclass(frozen=True, eq=False)
class VectorPlant:
    """A sum of a few plane waves of standard vectors: `(B, 1, *in)` to `(B, 1, O)`.

    Of sets, half of the waves are those of every token, summed, and half those of the sum of all tokens.

    Arguments:
        waves: Wave vectors, `(M, n)`.
        phases: `(M,)`.
        amplitudes: `(M, O)`.
    """

    waves: Tensor
    phases: Tensor
    amplitudes: Tensor

    @classmethod
    def draw(
        cls, size: int, outputs: int, generator: torch.Generator, finer: float = 1.0, *, odd: bool = False
    ) -> VectorPlant:
        """Waves about as long as the data are wide, or finer ones, with random phases or odd ones."""
        waves = torch.randn(_WAVES, size, generator=generator, dtype=torch.float64) * (finer / size**0.5)
        phases = 2 * torch.pi * torch.rand(_WAVES, generator=generator, dtype=torch.float64)
        phases = torch.full_like(phases, -torch.pi / 2) if odd else phases
        return cls(waves, phases, torch.randn(_WAVES, outputs, generator=generator, dtype=torch.float64))

    def __call__(self, x: Tensor) -> Tensor:
        if x.ndim == 3:
            values = torch.cos(x.double() @ self.waves.mT + self.phases)
            return (values @ self.amplitudes).to(x.dtype)
        tokens = x.double()
        present = (tokens != 0).any(-1, keepdim=True)
        count = present.sum(2).clamp_min(1) ** 0.5
        each = (torch.cos(tokens @ self.waves.mT + self.phases) * present).sum(2) / count
        total = torch.cos((tokens.sum(2) / count) @ self.waves.mT + self.phases)
        half = _WAVES // 2
        return (torch.cat([each[..., :half], total[..., half:]], dim=-1) @ self.amplitudes).to(x.dtype)


@dataclass(frozen=True, eq=False)
class FormPlant:
    """A bounded function of a random form of the sum of standard vectors: sets `(B, 1, P, n)` to `(B, 1, O)`.

    Arguments:
        forms: Symmetric matrices, `(O, n, n)`.
    """

    forms: Tensor

    @classmethod
    def draw(cls, size: int, outputs: int, generator: torch.Generator) -> FormPlant:
        """Forms without a preferred metric."""
        drawn = torch.randn(outputs, size, size, generator=generator, dtype=torch.float64) / size
        return cls((drawn + drawn.mT) / 2)

    def __call__(self, x: Tensor) -> Tensor:
        tokens = x.double()
        count = (tokens != 0).any(-1, keepdim=True).sum(2).clamp_min(1) ** 0.5
        total = tokens.sum(2) / count
        return torch.tanh(torch.einsum("bki,oij,bkj->bko", total, self.forms, total)).to(x.dtype)


@dataclass(frozen=True, eq=False)
class FieldPlant:
    """A random smooth stencil, or the product of two: fields `(B, K, C, *in)` to `(B, K, O, *shape)`.

    Arguments:
        weights: Stencils, `(1 or 2, O, C, *width)`.
        shape: Spatial shape of the outputs; that of the inputs where they are not larger.
    """

    weights: Tensor
    shape: tuple[int, ...]

    @property
    def linear(self) -> bool:
        """Whether it is one stencil and no product."""
        return len(self.weights) == 1

    @classmethod
    def draw(
        cls, samples: Samples, outputs: int, width: int, *, linear: bool, generator: torch.Generator
    ) -> FieldPlant:
        """Stencils that fade out towards their edge."""
        d, channels = samples.size, samples.x.shape[1]
        line = torch.arange(width, dtype=torch.float64) - width // 2
        square = sum(axis.square() for axis in torch.meshgrid(*[line] * d, indexing="ij"))
        fade = torch.exp(-torch.as_tensor(square) / (2 * (width / 5) ** 2))
        drawn = torch.randn(1 if linear else 2, outputs, channels, *[width] * d, generator=generator).double() * fade
        drawn = drawn / drawn.flatten(2).norm(dim=-1)[(..., *[None] * (d + 1))]
        shape = tuple(samples.targets(torch.arange(1)).shape[-d:])
        return cls(drawn, shape)

    def __call__(self, x: Tensor) -> Tensor:
        width = self.weights.shape[-1]
        need = tuple(s + width - 1 for s in self.shape)
        missing = max(max(want - have for have, want in zip(x.shape[3:], need, strict=True)), 0)
        flat = x.flatten(0, 1)
        if missing:  # the whole field is one chart
            flat = functional.pad(flat, [-(-missing // 2)] * (2 * len(self.shape)), mode="replicate")
        flat = centre_crop(flat, need)
        parts = [convolve(flat[:, None], w[None])[:, 0] for w in self.weights]
        out = parts[0] if len(parts) == 1 else parts[0] * parts[1]
        return out.unflatten(0, x.shape[:2])


@dataclass(frozen=True, eq=False)
class Planted:
    """Targets with a function added: `y + size h(x)`; classes are mixed with the next one by a share that h tells."""

    function: Callable[[Tensor], Tensor]
    size: float

    def __call__(self, x: Tensor, y: Tensor, classes: int) -> Tensor:
        if not classes:
            return y + self.size * self.function(x).to(y.dtype)
        sure = functional.one_hot(y, classes).movedim(-1, 2).to(x.dtype)
        return sure + self.shift(x, sure)

    def shift(self, x: Tensor, sure: Tensor) -> Tensor:
        """How far probabilities `(B, K, classes, *)` are shifted."""
        share = self.size * torch.sigmoid(2 * self.function(x)[:, :, :1].to(sure.dtype))
        return share.clamp(0.0, 1.0) * (sure.roll(1, dims=2) - sure)


def draw_plants(samples: Samples, count: int, generator: torch.Generator) -> list[Callable[[Tensor], Tensor]]:
    """Random functions like those that samples in standard units could hold; on fields linear ones come first."""
    outputs = 1 if samples.classes else samples.outputs
    if not samples.is_field:
        # Maps of sets are often made of forms of pooled vectors, which are even: such a map sees nothing of an odd
        # breaking, as a product of three tokens is. The two are planted apart, since their mean would hide that. Of
        # vectors, a breaking may be of any scale: the finer one is seen less.
        kinds: list[Callable[[int, int, torch.Generator], Callable[[Tensor], Tensor]]]
        if samples.x.ndim == 3:
            kinds = [partial(VectorPlant.draw, odd=True), FormPlant.draw]
        else:
            kinds = [VectorPlant.draw, partial(VectorPlant.draw, finer=2.0)]
        return [kinds[k % 2](samples.size, outputs, generator) for k in range(count)]
    radii = samples.atlas.radii
    width = 5 if radii is None else 2 * max(min(3, radii[0] - radii[1]), 1) + 1
    linear = [True] * -(-count // 2) + [False] * (count // 2)
    return [FieldPlant.draw(samples, outputs, width, linear=kind, generator=generator) for kind in linear]
