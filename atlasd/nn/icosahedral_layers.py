"""Layers on icosahedral grids that commute with its rotations and with every choice of frames."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from atlasd.errors import InputError
from atlasd.nn.icosahedron import IcosahedralGrid, icosahedral_grid

_VERTICES = 512
"""Vertices whose rings are laid out together."""


class HexConv(nn.Module):
    r"""A convolution with hexagonal kernels of 7 weights: the vertex itself and its six neighbours.

    The kernel is laid down in all six orientations, so that no choice of frames matters:
    :math:`y_o(v) = \sum_{i, j} w_{i - o, j - o} x_i(v_j) + w_{i - o, c} x_i(v)`, with directions brought from each
    neighbour along the edge. *Scalar* fields `(B, C, N)` have no orientation; *regular* fields `(B, C, 6, N)` have a
    value for each. A scalar output is the mean over the six. From scalars to scalars only the centre and the mean of
    the ring are left of the 7 weights: that is computed directly, and is exactly the same.

    At the twelve corners, where there are five neighbours, rings count 6/5 and regular fields are averaged over
    orientations: nothing else commutes with a rotation by 72 degrees there.

    Arguments:
        in_channels: Fields that come in.
        out_channels: Fields that go out.
        resolution: Of the grid that comes in.
        stride: 2 gives values on the coarser grid only.
        flat: One weight for all seven places: kernels that no linear motion of the plane turns into others.
        own: Whether the vertex itself counts otherwise than its ring in a flat kernel, by one number for each channel
            that comes in. What is done to single values commutes with every transformation.
        in_field: `scalar` or `regular`.
        out_field: `scalar` or `regular`.
        bias: Whether a number is added to each channel.
        generator: The source of the first weights.

    Example:
        >>> layer = HexConv(2, 3, resolution=2, stride=2, generator=torch.Generator().manual_seed(0))
        >>> layer(torch.ones(1, 2, 162)).shape
        torch.Size([1, 3, 42])
        >>> layer.weight.shape
        torch.Size([3, 2, 1, 7])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        resolution: int,
        stride: int = 1,
        flat: bool = False,
        own: bool = False,
        in_field: Literal["scalar", "regular"] = "scalar",
        out_field: Literal["scalar", "regular"] = "scalar",
        bias: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        _check(resolution, stride, in_field, out_field)
        self.resolution, self.stride, self.flat = resolution, stride, flat
        self.in_field, self.out_field = in_field, out_field
        places = 6 if in_field == "regular" else 1
        # On smooth fields a flat kernel adds up seven times the same: it starts smaller, and as large in what it gives.
        bound = math.sqrt(3 / ((49 if flat else 7) * places * in_channels))
        shape = (out_channels, in_channels, places, 1 if flat else 7)
        self.weight = nn.Parameter((2 * torch.rand(shape, generator=generator) - 1) * bound)
        if own and not flat:
            raise InputError("`own` must be False unless `flat`, got True; other kernels have a weight for the centre.")
        # Of seven weights drawn alike, the centre is so much larger than the mean of the ring.
        self.own = nn.Parameter(math.sqrt(6) * torch.randn(in_channels, generator=generator)) if own else None
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(B, C, N)` or `(B, C, 6, N)` to `(B, C', N')` or `(B, C', 6, N')`."""
        grid = icosahedral_grid(self.resolution)
        _check_field(x, grid, self.weight.shape[1], self.in_field)
        y = self._scalars(x, grid) if self.in_field == self.out_field == "scalar" else self._oriented(x, grid)
        # In place: a sum beside what is summed would take the memory of the output twice.
        return y if self.bias is None else y.add_(self.bias.reshape(-1, *[1] * (y.ndim - 2)))

    def extra_repr(self) -> str:
        outgoing, incoming, _, weights = self.weight.shape
        return f"{incoming}, {outgoing}, resolution={self.resolution}, stride={self.stride}, weights={weights}"

    def _kernel(self) -> Tensor:
        kernel = self.weight.expand(*self.weight.shape[:3], 7)
        return (
            kernel if self.own is None else torch.cat([kernel[..., :1] * self.own[:, None, None], kernel[..., 1:]], -1)
        )

    def _scalars(self, x: Tensor, grid: IcosahedralGrid) -> Tensor:
        """The mean over orientations, without laying them out."""
        around = gathered(x, "ring", self.resolution, self.stride)
        here = x[..., : _outgoing(grid, self.stride)]
        if self.flat:
            here = here if self.own is None else here * self.own[:, None]
            return torch.einsum("oc,bcn->bon", self.weight[:, :, 0, 0], here + around)
        centre, ring = self.weight[:, :, 0, 0], self.weight[:, :, 0, 1:].mean(-1)
        return torch.einsum("oc,bcn->bon", torch.cat([centre, ring], 1), torch.cat([here, around], 1))

    def _oriented(self, x: Tensor, grid: IcosahedralGrid) -> Tensor:
        x = x[:, :, None] if self.in_field == "scalar" else x
        kernel = self._turned()
        if self.out_field == "scalar":
            kernel = kernel.mean(2, keepdim=True)
        y: Tensor = _Rings.apply(x, kernel, grid, _outgoing(grid, self.stride))
        return y if self.out_field == "regular" else y[:, :, 0]

    def _turned(self) -> Tensor:
        """The kernel in its six orientations, with shape `(C', C, 6, 7, R)`."""
        kernel = self._kernel()
        turned = []
        for o in range(6):
            ring = kernel[..., 1:].roll(o, -1)
            every = torch.cat([kernel[..., :1], ring], -1)
            turned.append(every.roll(o, 2) if every.shape[2] == 6 else every)
        return torch.stack(turned, 2).transpose(-1, -2)  # (C', C, 6, R, 7) to (C', C, 6, 7, R)


class HexUpsample(nn.Module):
    """Brings scalars to the next finer grid by linear interpolation: a new vertex has the mean of its edge's ends.

    Arguments:
        resolution: Of the grid that comes in.
    """

    def __init__(self, *, resolution: int) -> None:
        super().__init__()
        icosahedral_grid(resolution + 1)
        self.resolution = resolution

    def forward(self, x: Tensor) -> Tensor:
        """Maps `(B, C, N)` to `(B, C, N')`."""
        _check_field(x, icosahedral_grid(self.resolution), None, "scalar")
        return torch.cat([x, gathered(x, "middle", self.resolution + 1, 1)], -1)


def gathered(x: Tensor, what: str, resolution: int, stride: int) -> Tensor:
    """Weighted sums over vertices, `(B, C, N)` to `(B, C, N')`: a sparse matrix is the fastest way there is."""
    matrix = _matrix(what, resolution, stride, x.dtype, x.device)
    rows = torch.sparse.mm(matrix, x.flatten(0, 1).mT)
    return rows.mT.unflatten(0, x.shape[:2])


@lru_cache(maxsize=64)
def _matrix(what: str, resolution: int, stride: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    grid = icosahedral_grid(resolution)
    if what == "middle":
        assert grid.coarser is not None
        index, weight = grid.parents, torch.full(grid.parents.shape, 0.5, dtype=torch.float64)
        columns = len(grid.coarser)
    else:
        size = _outgoing(grid, stride)
        index, weight, columns = grid.neighbours[:size], grid.shares[:size], len(grid)
    rows = torch.arange(len(index))[:, None].expand_as(index)
    there = weight.reshape(-1) > 0
    places = torch.stack([rows.reshape(-1), index.reshape(-1)])[:, there]
    values = weight.reshape(-1)[there].to(dtype)
    matrix = torch.sparse_coo_tensor(places, values, (len(index), columns), check_invariants=False)
    return matrix.coalesce().to(device)


class _Rings(torch.autograd.Function):
    """Kernels on rings, which take 42 numbers for each of a field: laid out for some vertices at a time, both ways.

    At the twelve corners, what comes in and what goes out is the same in all orientations. Nothing is kept but the
    inputs.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, kernel: Tensor, grid: IcosahedralGrid, size: int) -> Tensor:
        """Maps `(B, C, R, N)` to `(B, C', O, size)` by kernels `(C', C, O, 7, R)`."""
        ctx.save_for_backward(x, kernel)
        ctx.grid, ctx.size = grid, size
        y = x.new_empty(len(x), len(kernel), kernel.shape[2], size)
        for rows in torch.arange(size).split(_VERTICES):
            ring = _Ring(grid, rows, x)
            y[..., rows] = torch.einsum("dcopr,bcrnp->bdon", kernel, ring.levelled(x.flatten(2)[..., ring.index]))
        y[..., :12] = y[..., :12].mean(2, keepdim=True)
        return y

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, kernel = ctx.saved_tensors
        to_x, to_kernel = torch.zeros_like(x, memory_format=torch.contiguous_format), torch.zeros_like(kernel)
        for rows in torch.arange(ctx.size).split(_VERTICES):
            ring, part = _Ring(ctx.grid, rows, x), grad[..., rows]
            part[..., rows < 12] = part[..., rows < 12].mean(2, keepdim=True)
            near = ring.levelled(x.flatten(2)[..., ring.index])
            to_kernel += torch.einsum("bdon,bcrnp->dcopr", part, near)
            del near
            back = ring.levelled(torch.einsum("dcopr,bdon->bcrnp", kernel, part))
            to_x.flatten(2).index_add_(2, ring.index.flatten(), back.flatten(2))
        return to_x, to_kernel, None, None


class _Ring:
    """Where the values of some vertices and their rings stand in `(B, C, R * N)`: `index` `(R, rows, 7)`."""

    def __init__(self, grid: IcosahedralGrid, rows: Tensor, x: Tensor) -> None:
        orientations = x.shape[2]
        places = torch.cat([rows[:, None], grid.neighbours[rows]], 1)  # (rows, 7)
        turns = torch.cat([0 * rows[:, None], grid.turns[rows]], 1)
        ahead = (torch.arange(orientations)[:, None, None] + turns) % orientations
        self.index = (ahead * len(grid) + places).to(x.device)
        self.share = torch.cat([torch.ones(len(rows), 1), grid.shares[rows]], 1).to(x)
        self.corners = tuple((places < 12).nonzero().to(x.device).mT)

    def levelled(self, near: Tensor) -> Tensor:
        """Values `(B, C, R, rows, 7)` by their shares, those of corners the same in all orientations; in place."""
        there = (..., *self.corners)
        near[there] = near[there].mean(2, keepdim=True)
        return near.mul_(self.share)


def _outgoing(grid: IcosahedralGrid, stride: int) -> int:
    if stride == 1:
        return len(grid)
    assert grid.coarser is not None
    return len(grid.coarser)


def _check(resolution: int, stride: int, *fields: str) -> None:
    if stride not in (1, 2):
        raise InputError(f"`stride` must be 1 or 2, got {stride}; put layers of stride 2 after each other.")
    icosahedral_grid(resolution)
    if stride == 2 and resolution == 0:
        raise InputError("`resolution` must be at least 1 for stride 2, got 0; there is no coarser grid.")
    for field in fields:
        if field not in ("scalar", "regular"):
            raise InputError(f"`in_field` and `out_field` must be 'scalar' or 'regular', got {field!r}.")


def _check_field(x: Tensor, grid: IcosahedralGrid, channels: int | None, field: str) -> None:
    wanted = ["B", "C" if channels is None else channels, *([6] if field == "regular" else []), len(grid)]
    if x.ndim != len(wanted) or any(isinstance(w, int) and w != s for w, s in zip(wanted, x.shape, strict=False)):
        raise InputError(
            f"`x` must have shape ({', '.join(map(str, wanted))}) on a grid of resolution {grid.resolution}, "
            f"got {tuple(x.shape)}; `IcosahedralProjection` brings maps to it."
        )
