"""Scores a discovery against the truth: the group, and the true strength of every breaking."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import Membership
from atlasd.discovery.result import Discovery
from atlasd.errors import InputError
from atlasd.geometry.actions import GridAction, VectorAction
from atlasd.geometry.resample import pixel_grid
from atlasd.limits import TOLERANCE
from atlasd.runtime.random import stream
from atlasd.studies.zoo.system import System

Outcome = Literal[
    "detected", "wrong dimension", "wrong components", "inexact", "missed", "cannot tell", "false discovery", "none",
    "refused", "skipped",
]  # fmt: skip

CLEARLY = 1.25
"""A claim is false where its true strength is more than this times the tolerance."""

SIZES = (0.5, -0.5, 1.0, -1.0)
"""Sizes of a generator of operator norm 1 in standard units at which its true strength is measured."""

_PROBES = {"vector": 4000, "field": 48}


@dataclass(frozen=True)
class Claims:
    """True strengths of all that was claimed.

    Arguments:
        generators: Strength of each direction of the claimed algebra, the worst size counting, `(k,)`. Directions
            are those furthest from the true algebra first.
        elements: Strength of each claimed coset representative but the identity, `(m - 1,)`.
        components: Index of the true component of each claimed coset, -1 where it lies in none.
        angle: Largest principal angle to the truth in degrees, in standard units; `None` where one is trivial.
    """

    generators: Tensor
    elements: Tensor
    components: tuple[int, ...]
    angle: float | None


@dataclass(frozen=True)
class Score:
    """How a discovery compares with the truth.

    Arguments:
        outcome: `detected` has the exact dimension, span and components; `wrong dimension` and `wrong components`
            have too few or too many, all of them true; `inexact` has directions or elements that are nearly
            symmetries and below the tolerance; `missed` and `cannot tell` claim nothing and differ in what they
            say; `false discovery` claims something that is no symmetry; `none` is right on a negative.
        generators: The number of directions claimed falsely.
        elements: The number of coset representatives claimed falsely.
        angle: Largest principal angle to the truth in degrees, where both are there.
        note: What is wrong, in a few words.
    """

    outcome: Outcome
    generators: int = 0
    elements: int = 0
    angle: float | None = None
    note: str = ""


def score_discovery(system: System, found: Discovery, seed: int, tolerance: float = TOLERANCE) -> Score:
    """Compares a discovery with the exact map behind its data.

    Arguments:
        tolerance: The strength up to which a breaking may be called a symmetry.
    """
    claims = check_claims(system, found.group, seed)
    limit = CLEARLY * tolerance
    if system.function is None:
        false = _outside(claims, system)
    else:
        # A map that feels nothing has no strength, and no claim about it is true.
        false = int((~(claims.generators <= limit)).sum()), int((~(claims.elements <= limit)).sum())
    split = _repeated(found.group, claims, system)
    strengths = torch.cat([claims.generators, claims.elements])
    worst = f"true strength {strengths.nan_to_num(nan=1.0).max():.2f}" if len(strengths) else ""
    if any(false) or split:
        note = worst if any(false) else f"{split} components that are one with another"
        return Score("false discovery", false[0], false[1] + split, claims.angle, note)
    outcome = _outcome(system, found, claims)
    return Score(outcome, angle=claims.angle, note=worst if outcome == "inexact" else "")


def check_claims(system: System, group: Group, seed: int) -> Claims:
    """Measures what a group claims on fresh inputs."""
    n = system.size
    root = torch.eye(n, dtype=torch.float64)
    if system.kind == "vector":
        root = standard_root(system.sample(_PROBES["vector"], stream(seed, "score", "units")))
    truth, claimed = (a.adjoint(torch.linalg.inv(root)) for a in (system.truth, group.algebra))
    directions = _worst_first(claimed, truth)
    elements = group.cosets[1:]
    strengths = torch.full((len(directions),), torch.nan, dtype=torch.float64)
    broken = torch.full((len(elements),), torch.nan, dtype=torch.float64)
    if system.function is not None:
        probes = _PROBES[system.kind]
        generator = stream(seed, "score", "inputs")
        if len(directions):
            steps = torch.matrix_exp(directions[:, None] * torch.tensor(SIZES, dtype=torch.float64)[:, None, None])
            steps = root @ steps.flatten(0, 1) @ torch.linalg.inv(root)
            sizes = exact_strength(system, steps, probes, generator).unflatten(0, (-1, len(SIZES)))
            strengths = torch.where(sizes.isnan().all(1), torch.nan, sizes.nan_to_num(nan=0.0).amax(1))
        if len(elements):
            broken = exact_strength(system, elements, probes, generator)
    angle = None
    if claimed.dimension and truth.dimension:
        angle = math.degrees(float(claimed.angles(truth).max()))
    return Claims(strengths, broken, _components(system, group.cosets, truth, root), angle)


def _worst_first(claimed: LieAlgebra, truth: LieAlgebra) -> Tensor:
    """A frame of the claimed algebra whose first directions lie furthest from the truth, of operator norm 1."""
    frame = claimed.frame()
    if len(frame) and truth.dimension:
        rows, known = frame.flatten(1), truth.frame().flatten(1)
        left = torch.linalg.svd(rows - rows @ known.mT @ known).U
        frame = torch.einsum("ab,aij->bij", left, frame)
    return frame / torch.linalg.matrix_norm(frame, ord=2)[:, None, None] if len(frame) else frame


def _components(system: System, cosets: Tensor, truth: LieAlgebra, root: Tensor) -> tuple[int, ...]:
    """Component of the true group for every claimed coset, decided in standard units; -1 outside."""
    inverse = torch.linalg.inv(root)
    given, known = (inverse @ c.double() @ root for c in (cosets, system.elements))
    membership = Membership(truth)
    residuals = membership.residuals(torch.linalg.solve(known[None], given[:, None]))  # (claimed, true)
    nearest = residuals.min(1)
    inside = nearest.values <= 0.25
    return tuple(int(k) if ok else -1 for k, ok in zip(nearest.indices, inside, strict=True))


def _outside(claims: Claims, system: System) -> tuple[int, int]:
    """Numbers of false generators and elements where there is no exact map: what lies outside the true group."""
    beyond = len(claims.generators) - system.truth.dimension
    angled = int(claims.angle is not None and claims.angle > system.angle)
    elements = sum(c < 0 for c in claims.components)
    return max(beyond, angled), elements


def _repeated(group: Group, claims: Claims, system: System) -> int:
    """The number of claimed components that lie in one with another.

    Elements of a continuous group that is not claimed itself count only where the system says so: a half-turn may
    well be shown where rotations by other angles are not.
    """
    if group.dimension != system.truth.dimension and not system.undivided:
        return 0
    inside = [c for c in claims.components if c >= 0]
    return len(inside) - len(set(inside))


def _outcome(system: System, found: Discovery, claims: Claims) -> Outcome:
    group, truth = found.group, system.truth
    components = len(system.elements)
    if not group.dimension and group.components == 1:
        if not truth.dimension and components == 1:
            return "none"
        open_ = any(d.decision in ("cannot tell", "not testable") for d in found.verdict.rejected)
        said = any(word in found.verdict.reason.lower() for word in ("cannot tell", "not testable"))
        return "cannot tell" if said or open_ else "missed"
    if group.dimension > truth.dimension or (claims.angle or 0.0) > system.angle:
        return "inexact"
    if group.dimension < truth.dimension:
        return "wrong dimension"
    if -1 in claims.components:
        return "inexact"
    needed = set(range(components)) - set(system.unreached)
    return "detected" if needed <= set(claims.components) else "wrong components"


_ORDER = 5
_SMALLEST_WINDOW = 3.0


def exact_strength(system: System, g: Tensor, samples: int, generator: torch.Generator) -> Tensor:
    """Strength of the breaking of elements by the exact map, 0 for a symmetry, about 1 for a map that ignores `g`.

    Arguments:
        g: Elements, with shape `(M, n, n)`.
        samples: The number of fresh inputs.

    Returns:
        Amplitudes, with shape `(M,)`; NaN where nothing can be felt, or a transformed field would leave the one drawn.

    Example:
        >>> from atlasd.algebra.lie import LieAlgebra
        >>> norm = System(
        ...     name="norm",
        ...     truth=LieAlgebra(torch.zeros(0, 2, 2)),
        ...     sample=lambda samples, generator: torch.randn(samples, 2, generator=generator),
        ...     function=lambda x: x.norm(dim=-1),
        ... )
        >>> g = torch.tensor([[[0.0, -1.0], [1.0, 0.0]], [[9.0, 0.0], [0.0, 9.0]]])
        >>> [round(s, 1) for s in exact_strength(norm, g, 1000, torch.Generator().manual_seed(0)).tolist()]
        [0.0, 1.0]
    """
    same, other = exact_losses(system, g, samples, generator)
    return (same / other).sqrt()


def exact_losses(
    system: System,
    g: Tensor,
    samples: int,
    generator: torch.Generator,
    *,
    covered: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Numerator and denominator of the squared strength, so that several elements can be pooled.

    Arguments:
        g: Elements, with shape `(M, n, n)`.
        samples: The number of fresh inputs.
        covered: Tells which transformed vectors `(N, *)` count, `(N,)`; all by default. Fields always count.

    Returns:
        Sums over samples of the squared loss through g, and of the same with inputs of other samples, each `(M,)`.
    """
    if system.function is None:
        raise InputError(f"`system` must have an exact map, got {system.name!r}; score its span instead.")
    with torch.no_grad():
        x = (system.probe or system.sample)(samples, generator).double()
        field = system.kind == "field"
        found = _fields(system, x, g.double()) if field else _vectors(system, x, g.double(), covered)
    return found[:, 0], found[:, 1]


def standard_root(x: Tensor) -> Tensor:
    """Symmetric root of the second moments of vectors `(N, n)` or `(N, P, n)`: standard units to those of the data."""
    points = x.double().flatten(0, -2)
    values, vectors = torch.linalg.eigh(points.mT @ points / len(points))
    return vectors @ values.clamp(min=1e-30).sqrt().diag() @ vectors.mT


def standard_size(generators: Tensor, root: Tensor) -> Tensor:
    """Operator norms of generators `(k, n, n)` in standard units, with shape `(k,)`."""
    return torch.linalg.matrix_norm(torch.linalg.solve(root, generators.double() @ root), ord=2)


def _losses(own: Tensor, through: Tensor, spread: Tensor) -> Tensor:
    """Numerator and denominator, `(2,)`, from outputs `(N, outputs, ...)` and those through g, in their own spread."""
    shape = (1, -1) + (1,) * (own.ndim - 2)
    keep = spread > 1e-9 * spread.max()
    own, through = ((z / spread.reshape(shape))[:, keep].flatten(1) for z in (own, through))
    known = through.isfinite().all(1)
    unknown = float((~known).sum())
    own, through = own[known], through[known]
    n = len(own)
    if n < 2 or not own.shape[1]:
        return torch.full((2,), torch.nan if not own.shape[1] or not unknown else 1.0, dtype=torch.float64)
    same = (own - through).square().sum()
    squares = n * (own.square().sum() + through.square().sum())
    other = (squares - 2 * own.sum(0) @ through.sum(0) - same) / (n - 1)
    # Sums of squares cancel to rounding for a map without any spread.
    if other <= 1e-12 * squares / n:
        return torch.full((2,), torch.nan, dtype=torch.float64)
    # Where the map is not defined, nothing is predicted: such a sample counts as one of another sample would.
    lost = unknown * other / n
    return torch.stack([same + lost, other + lost])


def _vectors(system: System, x: Tensor, g: Tensor, covered: Callable[[Tensor], Tensor] | None) -> Tensor:
    action = system.action or VectorAction()
    assert system.function is not None

    def outputs(x: Tensor) -> Tensor:
        assert system.function is not None
        y = system.function(x)
        return y[:, None] if y.ndim == 1 else y

    own = outputs(x)
    spread = own.std(0)
    found = []
    for element in g:
        there = action.on_input(element, x)
        keep = torch.ones(len(x), dtype=torch.bool) if covered is None else covered(there)
        through = action.on_output(torch.linalg.inv(element), outputs(there[keep]))
        found.append(_losses(own[keep], through, spread))
    return torch.stack(found)


def _fields(system: System, x: Tensor, g: Tensor) -> Tensor:
    """As `_vectors`, on a disc about the centre; the pointwise part commutes with everything and is taken off."""
    action = system.action or GridAction()
    assert isinstance(action, GridAction) and system.atlas is not None and system.atlas.radii is not None
    assert system.function is not None
    reach = system.atlas.radii[0] - system.atlas.radii[1]
    half = (min(x.shape[-2:]) - 1) / 2
    y = system.function(x)
    pointwise = action.rho_in is None and action.rho_out is None
    weights = _pointwise(_inside(x, reach), _inside(y, reach)) if pointwise else None

    def beyond(x: Tensor, y: Tensor) -> Tensor:
        return y if weights is None else y - torch.einsum("nfhw,fc->nchw", _powers(x), weights)

    own = beyond(x, y)
    curves, own_curves = _coefficients(x), _coefficients(own)
    spread = _inside(own, reach).std((0, 2, 3))
    if spread.max() <= 1e-6 * _inside(y, reach).std((0, 2, 3)).max():  # pointwise, up to rounding
        return torch.full((len(g), 2), torch.nan, dtype=torch.float64)
    found = []
    for element in g:
        back = torch.linalg.inv(element)
        stretch = float(torch.linalg.matrix_norm(back, ord=2))
        corner = reach * 2**0.5 + 1
        radius = min(float(system.atlas.radii[1] - 1), (half - corner) / stretch - corner)
        if radius < _SMALLEST_WINDOW:
            found.append(torch.full((2,), torch.nan, dtype=torch.float64))
            continue
        wide = int(radius) + reach
        grid = pixel_grid((2 * wide + 1,) * 2, dtype=torch.float64)
        patch = _read(curves, grid @ back.mT).reshape(*x.shape[:2], 2 * wide + 1, 2 * wide + 1)
        if action.rho_in is not None:
            patch = torch.einsum("ij,njhw->nihw", action.rho_in(element), patch)
        inside = (grid.norm(dim=-1) <= radius).reshape(2 * wide + 1, -1)
        through = beyond(patch, system.function(patch))[..., inside]
        moved = _read(own_curves, grid[inside.flatten()] @ back.mT)
        if action.rho_out is not None:
            moved = torch.einsum("ij,njq->niq", action.rho_out(element), moved)
        found.append(_losses(moved, through, spread) / moved.shape[-1])
    return torch.stack(found)


def _inside(x: Tensor, reach: int) -> Tensor:
    """The part of fields that the border does not touch."""
    return x[..., reach : x.shape[-2] - reach, reach : x.shape[-1] - reach]


def _powers(x: Tensor) -> Tensor:
    """Features of a smooth pointwise map: `(N, C, H, W)` to `(N, 1 + 3 C, H, W)`."""
    return torch.cat([torch.ones_like(x[:, :1]), x, x**2, x**3], dim=1)


def _pointwise(x: Tensor, y: Tensor) -> Tensor:
    """Weights of the best pointwise map, with shape `(features, outputs)`."""
    features, targets = (z.movedim(1, -1).flatten(0, -2) for z in (_powers(x), y))
    # One feature may be a multiple of another: the solver must bear that.
    return torch.linalg.lstsq(features.mT @ features, features.mT @ targets, driver="gelsd").solution


def _coefficients(x: Tensor) -> np.ndarray:
    """Spline coefficients of fields `(N, C, H, W)`, with the same shape."""
    flat = x.flatten(0, 1).numpy()
    return np.stack([ndimage.spline_filter(f, order=_ORDER, mode="mirror") for f in flat]).reshape(x.shape)


def _read(coefficients: np.ndarray, points: Tensor) -> Tensor:
    """Fields at offsets `(Q, 2)` from the centre, from their spline coefficients: `(N, C, Q)`."""
    shape = coefficients.shape
    centre = torch.tensor([(s - 1) / 2 for s in shape[-2:]], dtype=torch.float64)
    where = (points + centre).mT.numpy()
    flat = coefficients.reshape(-1, *shape[-2:])
    values = [ndimage.map_coordinates(f, where, order=_ORDER, prefilter=False, mode="mirror") for f in flat]
    return torch.from_numpy(np.stack(values)).reshape(*shape[:2], -1)
