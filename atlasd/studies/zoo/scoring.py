"""Scores a discovery against the truth: is anything claimed that is not there, and is all of the group found?"""

from __future__ import annotations

__all__ = ["Claims", "Outcome", "Score", "check_claims", "score_discovery"]

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from atlasd.algebra.group import Group
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import Membership
from atlasd.discovery.result import Discovery
from atlasd.runtime.random import stream
from atlasd.studies.zoo.strength import exact_strength, standard_root
from atlasd.studies.zoo.system import System

Outcome = Literal[
    "detected", "wrong dimension", "wrong components", "inexact", "missed", "cannot tell", "false discovery", "none",
    "refused", "skipped",
]  # fmt: skip

TOLERANCE = 0.2
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
        system: The truth.
        found: The answer.
        seed: Seed of the inputs on which claims are checked.
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
