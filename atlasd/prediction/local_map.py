"""The features of a neighbourhood, and the map that is linear in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from atlasd.geometry.resample import convolve
from atlasd.prediction.trivial import centre_crop
from atlasd.runtime.codec import storable


@storable()
@dataclass(frozen=True, eq=False)
class Dictionary:
    """What is formed of a neighbourhood.

    Arguments:
        mean: Mean of every channel, `(C,)`.
        frame: Components of the neighbourhood, each of unit size, `(Z, C, F)`.
        triples: Components whose products of three are formed, `(T, 3)`.
        lines: Components whose fourth and fifth powers are formed, `(L,)`.
        mixtures: Mixtures of components whose absolute values are taken, `(Z, A)`.
        offsets: What is added to the mixtures before, `(A,)`.
        disc: Which pixels of the box belong to the neighbourhood, `(width,) * d`.
        half: Half the width of the box.
    """

    mean: Tensor
    frame: Tensor
    triples: Tensor
    lines: Tensor
    mixtures: Tensor
    offsets: Tensor
    disc: Tensor
    half: int

    names = ("second order", "third order", "second order with kinks", "third order with kinks")

    def features(self, x: Tensor) -> Tensor:
        """Neighbourhoods `(M, C, F)` to features `(M, ...)`: pixels, products of two, of three, absolute values."""
        centred = x - self.mean[:, None]
        z = torch.einsum("mcf,zcf->mz", centred, self.frame)
        i, j = torch.triu_indices(z.shape[1], z.shape[1])
        return torch.cat([centred.flatten(1), z[:, i] * z[:, j], self.powers(z), self.bends(z)], dim=-1)

    def powers(self, z: Tensor) -> Tensor:
        """Products of three components `(*, Z)`, and higher powers of some."""
        i, j, k = self.triples.unbind(-1)
        line = z[..., self.lines]
        square = line * line
        return torch.cat([z[..., i] * z[..., j] * z[..., k], square * square, square * square * line], dim=-1)

    def bends(self, z: Tensor) -> Tensor:
        """Absolute values of mixtures of components `(*, Z)`."""
        return (z @ self.mixtures.to(z.dtype) + self.offsets.to(z.dtype)).abs()

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Numbers of pixels, products of two, products of three, and absolute values."""
        size, channels, pixels = self.frame.shape
        powers = len(self.triples) + 2 * len(self.lines)
        return channels * pixels, size * (size + 1) // 2, powers, self.mixtures.shape[1]

    def columns(self, kind: int) -> Tensor:
        """Places of the features that belong to a kind of `names`."""
        first, second, third, kinks = self.counts
        parts = [torch.arange(first + second)]
        if kind in (1, 3):
            parts.append(first + second + torch.arange(third))
        if kind in (2, 3):
            parts.append(first + second + third + torch.arange(kinks))
        return torch.cat(parts)

    def map(self, solution: Tensor, sums: Any, shape: tuple[int, ...]) -> LocalMap:
        """The map of weights `(K, F + 1, O)` of features in the units of the normal equations."""
        weight = solution[:, :-1] / sums.size[:, None]
        bias = solution[:, -1] - sums.mean @ weight  # (K, O)
        linear, second, cubes, kinks = weight.split(self.counts, dim=1)
        size, channels, _ = self.frame.shape
        charts, outputs = len(weight), weight.shape[-1]
        i, j = torch.triu_indices(size, size)
        form = weight.new_zeros(charts, outputs, size, size)
        form[..., i, j] = second.mT
        stencil = weight.new_zeros(charts, outputs, channels, self.disc.numel())
        stencil[..., self.disc.flatten()] = linear.mT.unflatten(2, (channels, -1))
        bias = bias - torch.einsum("kocf,c->ko", stencil, self.mean)
        return LocalMap(self, stencil.unflatten(3, tuple(self.disc.shape)), bias, form, cubes, kinks, shape)


@storable("dictionary", "stencil", "bias", "form", "cubes", "kinks", "shape")
class LocalMap:
    """Patches `(B, K, C, *in)` to outputs `(B, K, O, *shape)`, without padding.

    Arguments:
        dictionary: What is formed of neighbourhoods.
        stencil: Weights of the pixels, `(K, O, C, *width)`.
        bias: The constant, `(K, O)`.
        form: Weights of products of two components, `(K, O, Z, Z)`.
        cubes: Weights of products of three and of higher powers, `(K, T, O)`.
        kinks: Weights of absolute values, `(K, A, O)`.
        shape: Spatial shape of the outputs.
    """

    def __init__(
        self,
        dictionary: Dictionary,
        stencil: Tensor,
        bias: Tensor,
        form: Tensor,
        cubes: Tensor,
        kinks: Tensor,
        shape: tuple[int, ...],
    ) -> None:
        self.dictionary, self.stencil, self.bias = dictionary, stencil, bias
        self.form, self.cubes, self.kinks, self.shape = form, cubes, kinks, tuple(shape)

    @property
    def need(self) -> tuple[int, ...]:
        """Spatial shape of the inputs that it looks at."""
        return tuple(s + 2 * self.dictionary.half for s in self.shape)

    def narrowed(self, width: int) -> LocalMap:
        """The same for the middle of the outputs, at most so many pixels wide, or one more to keep the centre."""
        shape = tuple(min(s, width + (s - width) % 2) for s in self.shape)
        return LocalMap(self.dictionary, self.stencil, self.bias, self.form, self.cubes, self.kinks, shape)

    def __call__(self, x: Tensor) -> Tensor:
        kind, outputs = x.dtype, self.stencil.shape[1]
        x = centre_crop(x, self.need)
        y = convolve(x, self.stencil, self.bias)
        z = self._components(x)  # (K, B Q, Z)
        # One product for all outputs, then one sum over components for each.
        second = (z @ self.form.movedim(1, 2).flatten(2).to(kind)).unflatten(-1, (outputs, -1)) * z.unsqueeze(-2)
        rest = second.sum(-1)
        if bool(self.cubes.any()):
            rest = rest + self.dictionary.powers(z) @ self.cubes.to(kind)
        if bool(self.kinks.any()):
            rest = rest + self.dictionary.bends(z) @ self.kinks.to(kind)
        return y + rest.unflatten(1, (len(x), *self.shape)).movedim((0, -1), (1, 2))

    def _components(self, x: Tensor) -> Tensor:
        """Components of every neighbourhood, `(K, B Q, Z)`."""
        d = len(self.shape)
        frame, disc = self.dictionary.frame, self.dictionary.disc
        kernel = frame.new_zeros(*frame.shape[:2], disc.numel())
        kernel[..., disc.flatten()] = frame
        centred = x - self.dictionary.mean.reshape(-1, *[1] * d).to(x.dtype)
        z = convolve(centred, kernel.unflatten(2, tuple(disc.shape))[None])
        return z.movedim((1, 2), (0, -1)).flatten(1, -2)
