"""Symmetries of a flow: maps that take the solutions of a differential equation to solutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Literal

import torch
from torch import Tensor

from atlasd.algebra.basis import standard_form
from atlasd.algebra.group import Group
from atlasd.algebra.group_names import spoken
from atlasd.algebra.lie import LieAlgebra
from atlasd.data.cleaning import whole_tensor
from atlasd.data.units import Units
from atlasd.discovery.conserved import Conserved, find_conserved
from atlasd.discovery.cosets import CosetSearch
from atlasd.discovery.discover import discover
from atlasd.discovery.result import Discovery
from atlasd.discovery.vector_fields import FieldDiscovery, flow_among
from atlasd.errors import InputError
from atlasd.geometry.actions import AffineAction, VectorAction, as_inputs, linear_part
from atlasd.geometry.polynomial import PolynomialAction
from atlasd.limits import TOLERANCE
from atlasd.prediction.forms import FormPredictor
from atlasd.prediction.predictor import PredictorSpec
from atlasd.runtime.progress import Progress, Silent

_BEYOND = 0.1
"""Share of the flow beside all brackets below which it is made of them: noise."""


@dataclass(frozen=True, kw_only=True)
class FlowPredictor(FormPredictor):
    """Regression in closed form with many folds, which cost nothing there: each fit sees nearly all states."""

    folds: int = 10


@dataclass(frozen=True, eq=False)
class FlowDiscovery:
    """The answer of `atlasd.discover_flow`.

    Arguments:
        symmetries: Affine or linear maps that commute with the flow, the flow itself divided out.
        trivial: The generator of the flow where it is itself of that kind, `(n, n)`; `None` where it is not.
        conserved: Functions that are constant along the flow.
        reason: What was concluded about conserved quantities, in one sentence.
    """

    symmetries: Discovery
    trivial: Tensor | None
    conserved: tuple[Conserved, ...]
    reason: str

    group = property(attrgetter("symmetries.group"), doc="The group of symmetries.")
    algebra = property(attrgetter("symmetries.algebra"), doc="Its continuous part.")
    verdict = property(attrgetter("symmetries.verdict"), doc="Whether to believe the symmetries.")

    def __str__(self) -> str:
        return "\n".join([str(self.symmetries), self.reason, *(f"  {c}" for c in self.conserved)])


def discover_flow(
    x: Any,
    dx: Any = None,
    *,
    after: Any = None,
    action: Literal["affine", "linear"] | PolynomialAction = "affine",
    predictor: PredictorSpec | None = None,
    cosets: CosetSearch | bool | None = None,
    degree: int | None = None,
    functions: Mapping[str, Callable[[Tensor], Tensor]] | None = None,
    tolerance: float = TOLERANCE,
    seed: int = 0,
    progress: Progress | bool = False,
    names: Sequence[str] | None = None,
) -> FlowDiscovery:
    r"""Finds the maps that commute with a flow, and the functions that it conserves.

    A map g with linear part L commutes with :math:`\dot x = F(x)` if :math:`F(g x) = L F(x)`. For a map to the next
    state the same holds of the step from one state to the next. A flow commutes with itself: where it is affine, it is
    found, and divided out.

    Arguments:
        x: States, `(N, n)`.
        dx: Their velocities, `(N, n)`.
        after: The next states, `(N, n)`, in place of velocities.
        action: Which maps are looked at: affine or linear ones, or those along polynomial fields of states.
        predictor: How the flow is learned; in closed form by default.
        cosets: How the discrete part is searched for; `False` for the continuous part alone.
        degree: Highest degree of the monomials of conserved quantities; chosen from the number of states by default, 0
            for none.
        functions: Further functions of states `(N, n)` that conserved quantities may be made of, by name.
        tolerance: The largest strength of a breaking that counts as a symmetry.
        seed: Seed of every random stream.
        progress: Whether to show progress, or a progress display.
        names: Names of the components of states, for formulas.

    Example:
        >>> x = 2 * torch.rand(300, 2, generator=torch.Generator().manual_seed(0)) - 1
        >>> r = x.square().sum(-1, keepdim=True)
        >>> found = discover_flow(x, x - r * x + torch.stack([-x[:, 1], x[:, 0]], dim=-1))
        >>> found.group.name, len(found.conserved)
        ('SO(2)', 0)
    """
    states, speeds = _checked(x, dx, after)
    if names is not None and len(names) != states.shape[1]:
        raise InputError(f"`names` must name each of the {states.shape[1]} components of states, got {len(names)}.")
    found = discover(
        states, speeds, action=_maps(action), predictor=predictor or FlowPredictor(), cosets=cosets,
        tolerance=tolerance, seed=seed, progress=progress,
    )  # fmt: skip
    found, trivial = _without_flow(found, states, speeds)
    found = found if names is None else replace(found, config={**found.config, "axes": list(names)})
    shown = progress if not isinstance(progress, bool) else Silent()
    # From one state to the next, the gradient half-way tells the change, of quadratic functions exactly.
    middle = states if after is None else states + speeds / 2
    conserved, reason = find_conserved(
        middle, speeds, predictor=predictor or FlowPredictor(), degree=degree, functions=functions or {},
        tolerance=tolerance, seed=seed, progress=shown, letters=names,
    )  # fmt: skip
    return FlowDiscovery(found, trivial, conserved, reason)


def _maps(action: Literal["affine", "linear"] | PolynomialAction) -> VectorAction:
    """How the maps that are looked at transform states and velocities."""
    if isinstance(action, PolynomialAction):
        return replace(action, velocities=True)
    if action not in ("affine", "linear"):
        raise InputError(f"`action` must be 'affine', 'linear' or a PolynomialAction, got {action!r}.")
    return AffineAction(rho_out=linear_part) if action == "affine" else VectorAction(rho_out=as_inputs)


def _quotient(basis: Tensor, flow: Tensor, rows: Tensor) -> Tensor | None:
    """Generators `(k - 1, n, n)` that span `basis` modulo the flow, which commutes with all of them.

    Any subspace that holds all brackets is an ideal. `None` where the flow is itself made of brackets.

    Arguments:
        basis: The generators found, `(k, n, n)`.
        flow: The flow as a combination of them, `(k,)`.
        rows: What each does to the states, `(k, M)`.
    """
    inside = LieAlgebra(basis).derived_series()[:2][-1].basis  # all of it, where brackets give all of it back
    made = torch.linalg.lstsq(basis.flatten(1).mT, inside.flatten(1).mT).solution
    brackets, along = rows.mT @ made, flow @ rows
    beyond = along - brackets @ torch.linalg.lstsq(brackets, along[:, None]).solution[:, 0]
    if float(beyond.norm()) < _BEYOND * float(along.norm()):
        return None
    return torch.einsum("rk,kij->rij", torch.linalg.svd((rows @ beyond)[None]).Vh[1:], basis)


def _checked(x: Any, dx: Any, after: Any) -> tuple[Tensor, Tensor]:
    """States and velocities as tensors of one shape."""
    if (dx is None) == (after is None):
        raise InputError("`dx` or `after` must be given, and not both; pass velocities, or next states.")
    try:
        states, other = whole_tensor(x, "x"), whole_tensor(dx if after is None else after, "dx")
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"`x` and `dx` must be arrays of numbers: {error}") from error
    if states.ndim != 2 or states.shape != other.shape:
        raise InputError(
            f"`x` and `dx` must have one shape (N, n), got {tuple(states.shape)} and {tuple(other.shape)}; "
            "one row for each state."
        )
    states = states.double()
    speeds = other.double() if after is None else other.double() - states
    if not bool(speeds.any()):
        raise InputError("`dx` must not be zero everywhere: every map commutes with a flow that stands still.")
    return states, speeds


def _without_flow(found: Discovery, x: Tensor, dx: Tensor) -> tuple[Discovery, Tensor | None]:
    """The discovery without the flow itself, and its generator, where the flow is one of those found."""
    basis, n = found.algebra.basis, x.shape[1]
    if not len(basis) or isinstance(found, FieldDiscovery):  # of those, it is divided out already
        return found, None
    one = x if basis.shape[-1] == n else torch.cat([x, torch.ones_like(x[:, :1])], dim=1)
    fields = torch.einsum("kij,bj->kbi", basis[:, :n], one)  # what each generator does to every state
    spread = dx.std(0).clamp_min(1e-300)
    rows, flow = (fields / spread).flatten(1), (dx / spread).flatten()
    mix = flow_among(rows, flow, max(1.0 - found.predictor.skill, 0.0))
    if mix is None:
        return found, None
    generator = torch.einsum("k,kij->ij", mix, basis)
    rest = _quotient(basis, mix, rows)
    if rest is None:
        note = " Note: the flow itself is one of them, and cannot be split off."
        verdict = replace(found.verdict, reason=found.verdict.reason + note)
        return replace(found, verdict=verdict), generator
    units = Units.of_vectors(x, centred=found.group.affine)
    standard = Group(units.to_standard(standard_form(rest)), units.to_standard(found.cosets), affine=found.group.affine)
    group = standard.conjugate(torch.linalg.inv(units.frame))
    # Each is a combination of generators that were judged: the worst of them bounds it.
    directions = (max(found.verdict.directions, key=lambda d: d.upper),) * len(rest)
    if group.dimension or group.components > 1:
        said = f"The flow commutes with {spoken(group.name)}, and with itself: it is affine."
    elif still := [d for d in found.verdict.rejected if d.decision == "cannot tell"]:
        said = f"Cannot tell: the flow commutes with itself, it is affine, and of others {still[0].reason}."
    else:
        said = "No symmetry but the flow itself, which is affine."
    verdict = replace(
        found.verdict,
        symmetric=bool(group.dimension or group.components > 1),
        reason=said,
        directions=directions,
    )
    return replace(found, group=group, verdict=verdict), generator
