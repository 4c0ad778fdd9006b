"""Standard units: inputs by their second moments, outputs and channels each by their own spread."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from atlasd.errors import InputError
from atlasd.geometry.actions import Action, GridAction, Representation, VectorAction

_RANK = 1e-10
"""Second moment, relative to the largest, below which a direction holds no data and keeps its unit."""

_LEAST = 1e-100
"""Sizes of vectors that can be told from zero when generators are carried back to them."""


@dataclass(frozen=True, eq=False)
class Units:
    """How raw data and standard units are related.

    Arguments:
        frame: For vectors, W with standard vectors `W x`, shape `(n, n)`, or `W (x, 1)`, shape `(n + 1, n + 1)`, where
            they are taken about their mean; for fields the identity, or the same of places in homogeneous coordinates.
        channels: Spread of every channel of input fields, `(C,)`; empty for vectors.
        outputs: Spread of every output, `(O,)`; empty for classes. Where outputs are measured in units of the inputs, a
            matrix S `(O, O)` with raw outputs `S y`.

    Example:
        >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0)).double()
        >>> units = Units.of_vectors(x * torch.tensor([1e-3, 1e3]))
        >>> standard = (x * torch.tensor([1e-3, 1e3])) @ units.frame.mT
        >>> bool(torch.allclose(standard.mT @ standard / 500, torch.eye(2).double()))
        True
    """

    frame: Tensor
    channels: Tensor
    outputs: Tensor

    @classmethod
    def of_vectors(cls, x: Tensor, *, centred: bool = False) -> Units:
        """Units of vectors `(B, n)` or sets `(B, P, n)`.

        Arguments:
            x: The vectors. Tokens of zeros are padding and do not count, unless vectors are centred.
            centred: Whether to measure from the mean of all vectors, in homogeneous coordinates.
        """
        n = x.shape[-1]
        tokens = x.reshape(-1, n).double()
        none = tokens.new_zeros(0)
        if centred:
            mean = tokens.mean(0)
            spread = cls.of_vectors(tokens - mean).frame
            frame = torch.eye(n + 1, dtype=torch.float64)
            frame[:n, :n], frame[:n, n] = spread, -spread @ mean
            return cls(frame, none, none)
        tokens = tokens[(tokens != 0).any(-1)]
        if not len(tokens):
            return cls(torch.eye(n, dtype=torch.float64), none, none)
        largest = tokens.abs().amax(0)
        largest = torch.where(largest > 0, largest, 1.0)
        rms = largest * (tokens / largest).square().mean(0).sqrt()  # squares of 1e-200 would vanish
        rms = torch.where(rms > 0, rms, 1.0)
        if not _LEAST < float(rms.min()) <= float(rms.max()) < 1 / _LEAST:
            raise InputError(
                f"`x` must have sizes between {_LEAST:g} and {1 / _LEAST:g}, got {float(rms.min()):.1g} to "
                f"{float(rms.max()):.1g}; give it in other units."
            )
        z = tokens / rms
        values, vectors = torch.linalg.eigh(z.mT @ z / len(z))
        values = torch.where(values > _RANK * values.max(), values, 1.0)
        return cls((vectors / values.sqrt()) @ vectors.mT @ torch.diag(1 / rms), none, none)

    @classmethod
    def of_fields(cls, x: Tensor) -> Units:
        """Units of fields `(B, C, *S)`."""
        d = x.ndim - 2
        return cls(torch.eye(d, dtype=torch.float64), spreads(x.movedim(1, -1).flatten(0, -2)), torch.zeros(0).double())

    def to_raw(self, matrices: Tensor) -> Tensor:
        """Elements or generators `(*, n, n)` of standard vectors as they act on raw ones."""
        return torch.linalg.solve(self.frame, matrices.double() @ self.frame)

    def to_standard(self, matrices: Tensor) -> Tensor:
        """Elements or generators `(*, n, n)` of raw vectors as they act on standard ones."""
        return self.frame @ torch.linalg.solve(self.frame.mT, matrices.double().mT).mT

    def inputs(self, x: Tensor) -> Tensor:
        """Raw inputs `(B, *)` in standard units, in the same precision."""
        if x.ndim > 3:
            if not len(self.channels):
                return x
            size = self.channels.reshape(-1, *[1] * (x.ndim - 2))
            return (x.double() / size).to(x.dtype)
        n = x.shape[-1]
        shift = self.frame[:n, n] if len(self.frame) > n else 0.0
        return (x.double() @ self.frame[:n, :n].mT + shift).to(x.dtype)

    def raw_inputs(self, x: Tensor) -> Tensor:
        """The opposite of `inputs`, for vectors `(*, n)`."""
        n = x.shape[-1]
        shift = self.frame[:n, n] if len(self.frame) > n else 0.0
        return torch.linalg.solve(self.frame[:n, :n], (x.double() - shift).unsqueeze(-1)).squeeze(-1).to(x.dtype)

    def with_velocities(self, y: Tensor) -> Units:
        """The same units, with outputs `(B, n)` that transform as the inputs do, measured in units of the inputs."""
        n = y.shape[-1]
        linear = self.frame[:n, :n]
        size = (y.double() @ linear.mT).square().mean().sqrt()
        size = torch.where(size > 0, size, 1.0)
        return replace(self, outputs=size * torch.linalg.inv(linear))

    def with_places(self, length: float, dimensions: int) -> Units:
        """The same units, with translations of fields measured in lengths of so many pixels."""
        sizes = torch.tensor([1 / length] * dimensions + [1.0], dtype=torch.float64)
        return replace(self, frame=torch.diag(sizes))

    def targets(self, y: Tensor) -> Tensor:
        """Raw outputs `(B, O, *S)` in standard units, in the same precision."""
        if not len(self.outputs):
            return y
        if self.outputs.ndim == 2:
            return torch.linalg.solve(self.outputs, y.double().mT).mT.to(y.dtype)
        return (y.double() / self.outputs.reshape(-1, *[1] * (y.ndim - 2))).to(y.dtype)

    def raw_targets(self, y: Tensor) -> Tensor:
        """The opposite of `targets`, for outputs `(B, O)`."""
        return (y.double() @ self.outputs.mT if self.outputs.ndim == 2 else y.double() * self.outputs).to(y.dtype)

    def action(self, action: Action) -> Action:
        """The same action on data in standard units."""
        if isinstance(action, GridAction):
            frame = torch.eye(action.dimensions, dtype=torch.float64)  # linear maps of places have no unit
            rho_in = None if action.rho_in is None else InUnits(action.rho_in, frame, self.channels)
            rho_out = None if action.rho_out is None else InUnits(action.rho_out, frame, self.outputs)
            unit = 1 / float(self.frame[0, 0])
            return replace(action, interpolation="spline", rho_in=rho_in, rho_out=rho_out, unit=unit)
        assert isinstance(action, VectorAction)
        rho = action.rho_out
        return replace(action, rho_out=None if rho is None else InUnits(rho, self.frame, self.outputs))


def spreads(rows: Tensor) -> Tensor:
    """Standard deviation of every column of `(M, O)`; 1 for a column without spread."""
    rows = rows.double()
    level = rows.abs().amax(0).clamp_min(1e-300)
    spread = (rows / level).std(0, correction=0) * level
    # Rounding alone leaves about 1e-7 of the level in single precision.
    return torch.where(spread > 1e-6 * level, spread, torch.where(level > 1e-300, level, 1.0))


@dataclass(frozen=True, eq=False)
class InUnits:
    """A representation as it acts on channels in units of their own spread.

    Arguments:
        rho: The representation on raw channels, of raw matrices.
        frame: W of `Units`.
        sizes: Spread of every channel, `(c,)`, or a matrix as in `Units`; empty for none.
    """

    rho: Representation
    frame: Tensor
    sizes: Tensor

    def __call__(self, g: Tensor) -> Tensor:
        raw = torch.linalg.solve(self.frame.to(g.dtype), g @ self.frame.to(g.dtype))
        moved = self.rho(raw)
        if not len(self.sizes):
            return moved
        sizes = self.sizes.to(moved.dtype)
        if sizes.ndim == 2:
            return torch.linalg.solve(sizes, moved @ sizes)
        return moved * sizes / sizes[:, None]
