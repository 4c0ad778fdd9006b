r"""Functions of the plane from which kernels are made, and how a group moves them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.discovery.residual import scaled
from atlasd.geometry.resample import pixel_grid
from atlasd.nn.groups import square_root

_STEP = 0.25
"""Distance in pixels of the radii at which functions are compared."""


@dataclass(frozen=True)
class Motion:
    r"""A linear map T of functions :math:`b_j`, by its inner products; their span need not be closed under T.

    Arguments:
        gram: :math:`\langle T b_i, T b_j \rangle`, with shape `(f, f)`.
        cross: :math:`\langle b_i, T b_j \rangle`, with shape `(f, f)`.
    """

    gram: Tensor
    cross: Tensor


@dataclass(frozen=True)
class Motions:
    """Orthonormal functions and what the group does to them.

    Arguments:
        at_pixels: Values at the pixels of the kernel, with shape `(pixels, f)`.
        generators: First-order motions :math:`-\\nabla b \\cdot A p`, for generators of unit norm.
        elements: Motions :math:`b(g^{-1} p)` by every coset but the identity.
        ties: Combinations of functions that must vanish besides, with shape `(t, f)`.
    """

    at_pixels: Tensor
    generators: tuple[Motion, ...]
    elements: tuple[Motion, ...]
    ties: Tensor

    @property
    def count(self) -> int:
        """Number of functions f."""
        return int(self.at_pixels.shape[1])

    def closed(self) -> bool:
        """Whether the group is finite and moves the functions among themselves, without stretching them."""
        still = torch.eye(self.count, dtype=torch.float64)
        parts = [part for m in self.elements for part in (m.gram, m.cross.mT @ m.cross)]
        return not self.generators and not len(self.ties) and all(torch.allclose(p, still, atol=1e-9) for p in parts)

    def blocks(self) -> list[Tensor]:
        """Sets of functions that no motion mixes, each by its indices."""
        mixed = self.ties.mT.abs() @ self.ties.abs()
        for motion in (*self.generators, *self.elements):
            mixed = mixed + motion.gram.abs() + motion.cross.abs() + motion.cross.abs().mT
        count, labels = connected_components((mixed > 1e-9).numpy(), directed=False)
        return [torch.from_numpy(labels == i).nonzero()[:, 0] for i in range(count)]

    def restrict(self, block: Tensor) -> Motions:
        """The same for some of the functions."""

        def part(motion: Motion) -> Motion:
            return Motion(motion.gram[block][:, block], motion.cross[block][:, block])

        generators, elements = (tuple(part(m) for m in ms) for ms in (self.generators, self.elements))
        return Motions(self.at_pixels[:, block], generators, elements, self.ties[:, block])

    def fingerprint(self) -> Tensor:
        """Two sets of functions that move alike have the same."""
        parts = [self.ties.mT @ self.ties]
        parts += [part for m in (*self.generators, *self.elements) for part in (m.gram, m.cross)]
        return torch.stack(parts)


def pixel_motions(group: Group, size: tuple[int, int]) -> Motions | None:
    """The pixels themselves as functions; `None` unless the group is finite and maps every pixel to a pixel."""
    pixels = pixel_grid(size, dtype=torch.float64)
    if group.dimension and len(pixels) > 1:
        return None
    elements = []
    for g in group.cosets[1:]:
        distance = torch.cdist(pixels @ g.mT, pixels)
        if not bool((distance.min(1).values < 1e-6).all()):
            return None
        permutation = torch.zeros(len(pixels), len(pixels), dtype=torch.float64)
        permutation[distance.argmin(1), torch.arange(len(pixels))] = 1.0
        elements.append(Motion(permutation.mT @ permutation, permutation))
    # One pixel is the fixed point of every matrix.
    still = Motion(torch.zeros(1, 1, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64))
    return Motions(
        torch.eye(len(pixels), dtype=torch.float64),
        (still,) * group.dimension,
        tuple(elements),
        torch.zeros(0, len(pixels), dtype=torch.float64),
    )


def polar_motions(group: Group, size: int, form: Tensor | None) -> Motions:
    r"""Rings one pixel apart, each with the frequencies that its pixels can tell apart.

    Arguments:
        size: Width of the kernel in pixels.
        form: The scalar product that the group keeps: rings are its ellipses, the largest inscribed in the window.
            `None` for a group that keeps none: rings then cover the corners and go on outside, since no bounded
            set is left alone; the centre pixel is tied to the mean of the first ring, by continuity.
    """
    half = (size - 1) / 2
    compact = form is not None
    stretch = torch.eye(2, dtype=torch.float64)
    if form is not None:
        # An ellipse p.Q p = r^2 reaches r sqrt(Q^-1_ii) along axis i: the largest must not leave the window.
        stretch = square_root(form) * torch.linalg.inv(form).diagonal().max().sqrt()
    inner = half % 1
    centres = torch.arange(inner, half + 0.5 if compact else math.sqrt(2) * half + 1, 1.0, dtype=torch.float64)
    functions = _rings(centres, compact, most=None if compact else int(2 * (inner or 1.0)))
    points, weights = _samples(centres, compact)  # in stretched coordinates
    values = functions(points, None)
    root = _inverse_root((values.mT * weights) @ values)

    def compare(moved: Tensor) -> Motion:
        moved = moved @ root
        return Motion((moved.mT * weights) @ moved, ((values @ root).mT * weights) @ moved)

    back = torch.linalg.inv(stretch)
    flows = [points @ (stretch @ a @ back).mT for a in scaled(group.algebra.frame())]
    generators = [compare(-functions(points, flow)) for flow in flows]
    elements = [compare(functions(points @ torch.linalg.inv(stretch @ g @ back).mT, None)) for g in group.cosets[1:]]
    ties = torch.zeros(0, len(root), dtype=torch.float64)
    if not compact and inner == 0:
        angle = torch.arange(8, dtype=torch.float64) * math.pi / 4
        ring = functions(torch.stack([angle.cos(), angle.sin()], dim=1), None).mean(0)
        ties = (functions(points.new_zeros(1, 2), None) - ring) @ root
    at_pixels = functions(pixel_grid((size, size), dtype=torch.float64) @ stretch.mT, None) @ root
    return Motions(at_pixels, tuple(generators), tuple(elements), ties)


def _rings(centres: Tensor, compact: bool, most: int | None) -> Callable[[Tensor, Tensor | None], Tensor]:
    """Tents in the radius times cosines and sines of the angle, `(Q, 2)` to `(Q, f)`.

    With a flow `(Q, 2)`, their derivatives along it: written out, since torch's forward derivatives load its compiler.
    """

    def functions(points: Tensor, flow: Tensor | None) -> Tensor:
        centre = points.square().sum(-1) < 1e-18
        # At the centre there is no angle: only what does not depend on it has a value there.
        safe = torch.where(centre[:, None], torch.ones_like(points), points)
        radius = torch.where(centre, 0.0, safe.norm(dim=-1))
        angle = torch.atan2(safe[:, 1], safe[:, 0])
        outward, turning = torch.zeros_like(radius), torch.zeros_like(radius)
        if flow is not None:
            outward = torch.where(centre, 0.0, (safe * flow).sum(-1) / safe.norm(dim=-1))
            crossed = safe[:, 0] * flow[:, 1] - safe[:, 1] * flow[:, 0]
            turning = torch.where(centre, 0.0, crossed / safe.square().sum(-1))
        columns = []
        for i, c in enumerate(centres.tolist()):
            distance = radius - c
            if i == 0:
                distance = distance.clamp_min(0.0)
            if not compact and i == len(centres) - 1:
                distance = distance.clamp_max(0.0)
            tent = (1 - distance.abs()).clamp_min(0.0)
            slope = -distance.sign() * (tent > 0) * outward
            columns.append(tent if flow is None else slope)
            for m in range(1, (int(2 * c) if most is None else min(most, int(2 * c))) + 1):
                cos, sin = (torch.where(centre, 0.0, wave) for wave in ((m * angle).cos(), (m * angle).sin()))
                if flow is None:
                    columns += [tent * cos, tent * sin]
                else:
                    columns += [slope * cos - m * turning * tent * sin, slope * sin + m * turning * tent * cos]
        return torch.stack(columns, dim=1)

    return functions


def _samples(centres: Tensor, compact: bool) -> tuple[Tensor, Tensor]:
    """Points `(Q, 2)` at which functions are compared, and their areas `(Q,)`."""
    first, last = float(centres[0]), float(centres[-1])
    # Where no scalar product is kept, kernels are functions of the direction, which the centre pixel cannot show.
    start, end = (0.0, last + 1) if compact else (max(first, 1.0 - first), max(last, 1.0))
    radii = torch.arange(start + _STEP / 2, end, _STEP, dtype=torch.float64)
    count = 8 * math.ceil(last + 1) + 8
    angles = 2 * math.pi * (torch.arange(count, dtype=torch.float64) + 0.3) / count
    directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    points = (radii[:, None, None] * directions).flatten(0, 1)
    weights = (radii * _STEP * 2 * math.pi / count)[:, None].expand(-1, count).flatten()
    if not compact and first == 0:
        points, weights = torch.cat([points.new_zeros(1, 2), points]), torch.cat([weights.new_ones(1), weights])
    return points, weights


def _inverse_root(gram: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(gram)
    return (vectors / values.clamp_min(1e-12 * float(values[-1])).sqrt()) @ vectors.mT
