"""Icosahedral grids: points on the sphere that all look alike but for twelve, nested one in the next."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from atlasd.errors import InputError

_LARGEST = 9


@dataclass(frozen=True, eq=False)
class IcosahedralGrid:
    r"""The corners of an icosahedron whose edges were halved `resolution` times, pushed out to the unit sphere.

    The :math:`10 \cdot 4^r + 2` vertices are numbered so that those of the coarser grid come first: every second
    vertex is the beginning of the list. All but the first twelve have six neighbours.

    Every vertex has a frame: the direction to its neighbour 0. Direction j + 1 lies next to j, counter-clockwise seen
    from outside, and a coarse vertex has the same six directions in every finer grid. The twelve corners have five
    neighbours; their sixth is the vertex itself, with share 0.

    Arguments:
        resolution: How often edges were halved, r.
        points: Unit vectors of the vertices, with shape `(N, 3)`, float64.
        faces: Vertices of the triangles, counter-clockwise, `(20 * 4**r, 3)`; 4f to 4f + 3 are parts of the coarser f.
        neighbours: The ring around each vertex, with shape `(N, 6)`.
        parents: The two ends of the edges that the last halving divided, `(N - M, 2)`, for the vertices from M on.
        coarser: The grid before the last halving, of M vertices; none for `resolution` 0.

    Example:
        >>> grid = icosahedral_grid(2)
        >>> grid
        IcosahedralGrid(resolution=2, vertices=162)
        >>> grid.coarser
        IcosahedralGrid(resolution=1, vertices=42)
    """

    resolution: int
    points: Tensor
    faces: Tensor
    neighbours: Tensor
    parents: Tensor
    coarser: IcosahedralGrid | None

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        return f"IcosahedralGrid(resolution={self.resolution}, vertices={len(self)})"

    @cached_property
    def shares(self) -> Tensor:
        """Weight of each neighbour in a sum over a ring of six, with shape `(N, 6)`: 1, and 6/5 around a corner."""
        shares = torch.ones(len(self), 6, dtype=torch.float64)
        shares[:12] = 6 / 5
        shares[:12, 5] = 0.0
        return shares

    @cached_property
    def turns(self) -> Tensor:
        """How frames differ: direction i at a vertex is direction `i + turns[v, j]` at its neighbour j; `(N, 6)`.

        The edge between two vertices is straight: ahead at one end is away from the other. Next to a corner the six
        directions do not close up; fields are the same in all directions there, so that it does not matter.
        """
        back = self.neighbours[self.neighbours] == torch.arange(len(self))[:, None, None]  # (N, 6, 6)
        return (back.int().argmax(-1) + 3 - torch.arange(6)) % 6

    @cached_property
    def rotations(self) -> Tensor:
        """The 60 rotations of the icosahedron, with shape `(60, 3, 3)`, the identity first."""
        return _rotations()

    def permutation(self, rotation: Tensor) -> Tensor:
        """Where a rotation of the icosahedron takes each vertex, with shape `(N,)`."""
        if self.coarser is None:
            return (self.points @ rotation.to(self.points).mT @ self.points.mT).argmax(-1)
        coarse = self.coarser.permutation(rotation)
        ends = coarse[self.parents].sort(-1).values
        halved = len(self.coarser) * self.parents[:, 0] + self.parents[:, 1]  # rises: see `_refine`
        new = torch.searchsorted(halved, len(self.coarser) * ends[:, 0] + ends[:, 1])
        return torch.cat([coarse, len(self.coarser) + new])

    def rotate(self, x: Tensor, rotation: Tensor) -> Tensor:
        """Turns a field with a rotation of the icosahedron: its value at v is then found at R v.

        Arguments:
            x: Scalars `(B, C, N)`, or values for each direction `(B, C, 6, N)`, which turn with the frames.
            rotation: One of `rotations`.
        """
        moved = self.permutation(rotation)
        if x.ndim == 4:
            ahead = moved[self.neighbours[:, 0]]  # where direction 0 has gone
            shift = (self.neighbours[moved] == ahead[:, None]).int().argmax(-1)  # (N,)
            source = (torch.arange(6)[:, None] - shift) % 6  # (6, N)
            x = x.gather(2, source.to(x.device).expand(*x.shape))
        out = torch.empty_like(x)
        out[..., moved.to(x.device)] = x
        return out


@lru_cache(maxsize=_LARGEST + 1)
def icosahedral_grid(resolution: int) -> IcosahedralGrid:
    """The grid of a resolution; made once.

    Example:
        >>> [len(icosahedral_grid(r)) for r in range(4)]
        [12, 42, 162, 642]
    """
    if not 0 <= resolution <= _LARGEST:
        raise InputError(f"`resolution` must be from 0 to {_LARGEST}, got {resolution}; the paper's is 6.")
    if resolution == 0:
        return _icosahedron()
    return _refine(icosahedral_grid(resolution - 1))


def _icosahedron() -> IcosahedralGrid:
    golden = (1 + math.sqrt(5)) / 2
    signs = [(a, b) for a in (1.0, -1.0) for b in (golden, -golden)]
    points = torch.tensor([p for a, b in signs for p in ((0.0, a, b), (a, b, 0.0), (b, 0.0, a))], dtype=torch.float64)
    points = points / points.norm(dim=-1, keepdim=True)
    near = points @ points.mT > 0.4  # neighbours have cosine 1 / sqrt(5)
    faces = []
    for a in range(12):
        for b in range(a + 1, 12):
            for c in range(b + 1, 12):
                if near[a, b] and near[b, c] and near[a, c]:
                    outside = torch.linalg.det(points[[a, b, c]]) > 0
                    faces.append([a, b, c] if outside else [a, c, b])
    triangles = torch.tensor(faces)
    ahead = torch.zeros(12, 3, dtype=torch.float64)
    for corners in triangles.tolist():
        ahead[corners[0]] = points[corners[1]]
        ahead[corners[1]] = points[corners[2]]
        ahead[corners[2]] = points[corners[0]]
    rings = _rings(points, triangles, ahead)
    return IcosahedralGrid(0, points, triangles, rings, torch.zeros(0, 2, dtype=torch.long), None)


def _refine(coarse: IcosahedralGrid) -> IcosahedralGrid:
    """Halves every edge: a face becomes its three corners and its middle."""
    size = len(coarse)
    a, b, c = coarse.faces.unbind(-1)
    edges = torch.stack([torch.stack(e, -1).sort(-1).values for e in ((a, b), (b, c), (c, a))])  # (3, F, 2)
    keys, index = torch.unique(size * edges[..., 0] + edges[..., 1], return_inverse=True)  # keys rise
    parents = torch.stack([keys // size, keys % size], -1)
    middle = coarse.points[parents].sum(1)
    points = torch.cat([coarse.points, middle / middle.norm(dim=-1, keepdim=True)])
    ab, bc, ca = (size + index).unbind(0)
    parts = ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))
    faces = torch.stack([torch.stack(p, -1) for p in parts], 1).reshape(-1, 3)
    # Halving an edge keeps its direction: frames go on, and new ones look to an end of their edge.
    ahead = torch.cat([coarse.points[coarse.neighbours[:, 0]], coarse.points[parents[:, 0]]])
    return IcosahedralGrid(coarse.resolution + 1, points, faces, _rings(points, faces, ahead), parents, coarse)


def _rings(points: Tensor, faces: Tensor, ahead: Tensor) -> Tensor:
    """Neighbours of every vertex, counter-clockwise from the one towards `ahead`."""
    edges = torch.cat([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]])  # each direction once
    here, there = edges.unbind(-1)
    up = points[here]
    along = torch.linalg.cross(torch.linalg.cross(up, ahead[here]), up)
    side = torch.linalg.cross(up, along)
    angle = torch.atan2((points[there] * side).sum(-1), (points[there] * along).sum(-1)) % (2 * math.pi)
    angle[angle > 2 * math.pi - 0.1] = 0.0  # rounding below zero
    order = torch.argsort(here + angle / 7)
    here, there = here[order], there[order]
    first = torch.searchsorted(here, torch.arange(len(points)))
    rings = torch.arange(len(points))[:, None].repeat(1, 6)
    rings[here, torch.arange(len(here)) - first[here]] = there
    return rings


def _rotations() -> Tensor:
    """One rotation for each directed edge: that which takes the first to it."""
    grid = icosahedral_grid(0)
    frames = []
    for v in range(12):
        for n in grid.neighbours[v, :5].tolist():
            up = grid.points[v]
            along = grid.points[n] - (grid.points[n] @ up) * up
            along = along / along.norm()
            frames.append(torch.stack([up, along, torch.linalg.cross(up, along)], -1))
    every = torch.stack(frames)
    return every @ every[0].mT
