"""Places inside a chart: inputs beside their place, and plants that change over the chart."""

from __future__ import annotations

__all__ = ["PlacedPlant", "place_length", "with_places"]

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from atlasd.data.samples import Samples
from atlasd.geometry.resample import pixel_grid


def place_length(samples: Samples) -> float:
    """Unit of length of places in pixels: half the radius of the input patches, so that places have spread about 1."""
    radii = samples.atlas.radii
    return max((min(s - 1 for s in samples.x.shape[2:]) / 2 if radii is None else radii[0]) / 2, 0.5)


def with_places(x: Tensor, length: float) -> Tensor:
    """Fields `(B, K, C, *S)` beside themselves times each coordinate of the place, `(B, K, (1 + d) C, *S)`.

    A stencil of these is one whose weights are linear in the place.

    Arguments:
        x: The fields.
        length: Unit of the coordinates, which are measured from the centre.
    """
    shape = tuple(x.shape[3:])
    places = pixel_grid(shape, dtype=x.dtype).mT.unflatten(-1, shape) / length  # (d, *S)
    return torch.cat([x, *(x * place for place in places)], dim=2)


@dataclass(frozen=True, eq=False)
class PlacedPlant:
    """A function of fields times a wave over the chart: no law that is the same everywhere.

    Arguments:
        plant: Fields `(B, K, C, *in)` to fields `(B, K, O, *shape)`.
        wave: Wave vector, `(d,)`.
        phase: Its phase.
        length: Unit of places in pixels.
    """

    plant: Callable[[Tensor], Tensor]
    wave: Tensor
    phase: float
    length: float

    linear = True

    @classmethod
    def draw(cls, plant: Callable[[Tensor], Tensor], samples: Samples, generator: torch.Generator) -> PlacedPlant:
        """A wave about as long as the chart is wide, in a random direction."""
        wave = torch.randn(samples.size, generator=generator, dtype=torch.float64) / samples.size**0.5
        phase = 2 * torch.pi * float(torch.rand(1, generator=generator))
        return cls(plant, wave, phase, place_length(samples))

    def __call__(self, x: Tensor) -> Tensor:
        y = self.plant(x)
        shape = tuple(y.shape[3:])
        wave = torch.cos(pixel_grid(shape, dtype=torch.float64) @ self.wave / self.length + self.phase)
        return y * wave.reshape(shape).to(y.dtype)
