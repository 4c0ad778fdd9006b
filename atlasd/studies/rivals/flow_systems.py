"""Ten flows with noisy velocities, and the affine maps that commute with them (certified symmetry discovery, 2026)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.func import jacrev, vmap

DELTA = 0.05
"""Defect of a claimed generator above which the claim is false."""


Field: TypeAlias = Callable[[Tensor], Tensor]
"""From states `(*, n)` to velocities."""


def _field(rates: Callable[..., tuple[Tensor, ...]]) -> Field:
    """The field of functions of the components."""
    return lambda v: torch.stack(rates(*v.unbind(-1)), dim=-1)


def _top(a: float, b: float, c: float) -> Field:
    return _field(lambda x, y, z: ((b - c) / a * y * z, (c - a) / b * z * x, (a - b) / c * x * y))


SYSTEMS: dict[str, tuple[Field, int, float]] = {
    "hopf": (_field(lambda x, y: (x - y - x * (x * x + y * y), x + y - y * (x * x + y * y))), 2, 1.0),
    "rotation": (_field(lambda x, y: (-y, x)), 2, 1.0),
    "symmetric top": (_top(1.0, 1.0, 2.0), 3, 1.0),
    "ball": (lambda v: v * (1 - v.square().sum(-1, keepdim=True)), 3, 1.0),
    "van der pol": (_field(lambda x, y: (y, -x + y - x * x * y)), 2, 1.0),
    "duffing": (_field(lambda x, y: (y, x - x**3 - y / 5)), 2, 2.0),
    "lotka-volterra": (_field(lambda x, y: (x - x * y, -y + x * y)), 2, 1.0),
    "selkov": (_field(lambda x, y: (0.1 - x + y / 2 + x * x * y, -y / 2 - x * x * y)), 2, 2.0),
    "top": (_top(1.0, 2.0, 3.0), 3, 1.0),
    "lorenz": (_field(lambda x, y, z: (10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z)), 3, 20.0),
}
"""The field, the number of components and the half-width of the box of states of each system."""


def box(n: int, half: float, count: int, seed: int) -> Tensor:
    """States drawn uniformly from a box of half-width `half`, `(count, n)`."""
    drawn = torch.rand(count, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return half * (2 * drawn - 1)


def brackets(field: Field, x: Tensor, generators: Tensor) -> tuple[Tensor, Tensor]:
    """The bracket `DF xi - A F` of homogeneous generators `(k, n + 1, n + 1)` with a flow, and its two parts' size."""
    n = x.shape[1]
    slope, speed = vmap(jacrev(field))(x), field(x)
    xi = torch.einsum("kij,bj->kbi", generators[:, :n, :n], x) + generators[:, None, :n, n]
    first = torch.einsum("bij,kbj->kbi", slope, xi)
    second = torch.einsum("kij,bj->kbi", generators[:, :n, :n], speed)
    size = (first.square().sum(-1).mean(-1) + second.square().sum(-1).mean(-1)).sqrt()
    return first - second, size


def true_generators(name: str) -> Tensor:
    """A basis of the affine symmetries of a flow, without the flow itself: homogeneous, `(k, n + 1, n + 1)`."""
    field, n, half = SYSTEMS[name]
    x = box(n, half, 400, seed=-1 % 2**31) / half
    units = torch.eye((n + 1) ** 2, dtype=torch.float64).reshape(n + 1, n + 1, n + 1, n + 1)[:n].flatten(0, 1)
    scaled = lambda v: field(half * v) / half  # noqa: E731
    rows, _ = brackets(scaled, x, units)
    _, values, right = torch.linalg.svd(rows.flatten(1).mT, full_matrices=False)
    basis = torch.einsum("ku,uij->kij", right[values < 1e-9 * values.max()], units)
    homogeneous = torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
    flow = torch.linalg.lstsq(homogeneous, scaled(x)).solution
    if float((scaled(x) - homogeneous @ flow).norm() / scaled(x).norm()) < 1e-9:
        # The flow is affine, and commutes with itself: it is divided out.
        along = torch.cat([flow.mT, torch.zeros_like(flow.mT[:1])]).flatten()
        rest = torch.linalg.svd((basis.flatten(1) @ along)[None]).Vh[1:]
        basis = torch.einsum("rk,kij->rij", rest, basis)
    scale = torch.ones(n + 1, dtype=torch.float64)
    scale[:n] = half
    return scale[:, None] * basis / scale


def defects(name: str, generators: Tensor, seed: int = 99) -> Tensor:
    """Bracket of homogeneous generators `(k, n + 1, n + 1)` with a flow over the size of its two parts, `(k,)`."""
    field, n, half = SYSTEMS[name]
    rows, size = brackets(field, box(n, half, 2000, seed), generators)
    return rows.square().sum(-1).mean(-1).sqrt() / size.clamp_min(1e-300)


def flow_task(name: str, samples: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """States in a box, and velocities with noise of a share of their root mean square, both `(N, n)`."""
    field, n, half = SYSTEMS[name]
    x = box(n, half, samples, seed)
    y = field(x)
    drawn = torch.randn(y.shape, generator=torch.Generator().manual_seed(seed + 1), dtype=torch.float64)
    return x, y + noise * y.square().mean().sqrt() * drawn
