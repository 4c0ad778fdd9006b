r"""Full names of groups: the name of the algebra and what the other components do."""

from __future__ import annotations

__all__ = ["identify_group", "name_group"]

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from atlasd.algebra.finite import FiniteGroup
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.nearest import gap, orthogonal_form, orthogonal_parts
from atlasd.errors import InputError
from atlasd.runtime.text import counted

if TYPE_CHECKING:
    from atlasd.algebra.group import Group
    from atlasd.algebra.identify import Identification

Evidence: TypeAlias = dict[str, Any]

_CONNECTED = {
    "so": "SO",
    "sl": "SL",
    "gl": "GL+",
    "sp": "Sp",
    "u": "U",
    "su": "SU",
    "euclidean": "SE",
    "affine": "Aff+",
    "scaling": "R+",
}
# What a second component of negative determinant makes of it.
_DOUBLED = {"so": "O", "sl": "SL+-", "gl": "GL", "euclidean": "E", "affine": "Aff"}
_SUMMAND = re.compile(r"([a-z]+)\(([0-9,]+)\)")


def identify_group(group: Group, algebra_identification: Identification) -> Identification:
    r"""Names a group whose algebra has been identified.

    Returns:
        The same identification with the name of the group, and the evidence of its components among the
        invariants.
    """
    name, evidence = name_group(group, algebra_identification.name)
    return replace(algebra_identification, name=name, invariants=algebra_identification.invariants | evidence)


def name_group(group: Group, algebra_name: str) -> tuple[str, Evidence]:
    r"""Names a group from the name of its algebra.

    Arguments:
        group: The group.
        algebra_name: The name of its algebra, such as "so(1,3)+R"; unused where the group is finite.

    Returns:
        The name and a dictionary with what it rests on.

    Example:
        >>> from atlasd.algebra.known import lorentz
        >>> name_group(lorentz(2), "so(1,3)")[0]
        'O+(1,3)'
    """
    determinants = torch.linalg.det(group.cosets)
    evidence: Evidence = {
        "algebra": algebra_name if group.dimension else "trivial",
        "components": group.components,
        "component_group": group.component_group,
        "determinants": [round(value, 6) for value in determinants.tolist()],
    }
    if not group.dimension:
        name, more = _finite_name(group, determinants)
        return name, evidence | more
    if algebra_name.startswith("unknown"):
        return f"unknown (dim {group.dimension}, {counted(group.components, 'component')})", evidence
    if "not closed" in group.component_group:
        return f"unknown ({algebra_name}, {counted(group.components, 'component')}, not closed)", evidence
    if group.components == 1:
        return _connected_name(algebra_name), evidence
    if algebra_name.startswith("scaling") and "+" not in algebra_name:
        # What normalises a scaling commutes with it, and no finite group acts on it otherwise: the product is direct.
        return f"{group.component_group}x{_connected_name(algebra_name)}", evidence
    full_name, more = _several_name(group, algebra_name)
    return full_name or f"{algebra_name}, {counted(group.components, 'component')}", evidence | more


def _finite_name(group: Group, determinants: Tensor) -> tuple[str, Evidence]:
    if group.components == 1:
        return "trivial", {}
    try:
        finite = FiniteGroup(group.cayley)
    except InputError:
        return f"unknown (dim 0, {counted(group.components, 'component')})", {}
    rotations = int((determinants > 0).sum())
    evidence: Evidence = {
        "element_orders": dict(sorted(Counter(finite.orders).items())),
        "abelian": finite.abelian,
        "centre": len(finite.centre),
        "rotations": rotations,
        "reversing": group.components - rotations,
        "correction": group.correction,
    }
    if group.components == 2:
        evidence["kind"] = "half turn" if rotations == 2 else _kind_of_reversal(group.cosets[1])
    return finite.name, evidence


def _kind_of_reversal(g: Tensor) -> str:
    # A reflection turns one direction over, so its trace is n - 2.
    n = g.shape[-1]
    return "reflection" if abs(float(g.trace()) - (n - 2)) < 0.5 else "inversion"


def _connected_name(algebra_name: str) -> str:
    if algebra_name == "scaling":
        return "R+"
    factors = []
    for summand in algebra_name.split("+"):
        match = _SUMMAND.fullmatch(summand)
        if summand == "R":
            factors.append("R+")
        elif match and match[1] in _CONNECTED:
            factors.append(f"{_CONNECTED[match[1]]}{'+' if ',' in match[2] else ''}({match[2]})")
        else:
            return f"exp({algebra_name})"
    return "x".join(factors)


def _several_name(group: Group, algebra_name: str) -> tuple[str | None, Evidence]:
    r"""The name where one simple summand, with or without scalings, fixes what the cosets may be."""
    plain, scaled = algebra_name.removesuffix("+R"), algebra_name.endswith("+R")
    match = _SUMMAND.fullmatch(plain)
    if match is None or match[1] not in _DOUBLED:
        return None, {}
    family, argument = match.groups()
    cosets = group.membership.framed(group.cosets)
    if scaled or family == "gl":
        roots = torch.linalg.det(cosets).abs() ** (1 / group.size)
        cosets = cosets / roots[:, None, None]
    tail = "xR+" if scaled else ""
    if family != "so":
        double = group.components == 2 and bool(torch.linalg.det(cosets[1]) < 0)
        acts_fully = family in ("euclidean", "affine") or int(argument) == group.size
        return (f"{_DOUBLED[family]}({argument}){tail}" if double and acts_fully else None), {}
    acting = _acting_block(group, cosets, scaled)
    if acting is None:
        return None, {}
    frame, blocks = acting
    form = orthogonal_form(frame.numpy())
    if form is None:
        return None, {}
    left_over, oriented = orthogonal_parts(blocks.numpy(), *form)
    signs = form[1].tolist()
    evidence: Evidence = {"metric_gap": float(gap(left_over).max())}
    if evidence["metric_gap"] > group.tolerance:
        return None, evidence
    if "," not in argument:
        reflects = group.components == 2 and not oriented[1].all()
        return (f"O({argument}){tail}" if reflects else None), evidence
    # The part with fewer directions is time; in the frame of the form it may carry either sign.
    time_first = signs.count(-1.0) <= signs.count(1.0)
    patterns = [tuple(bool(value) for value in (row if time_first else row[::-1])) for row in oriented]
    evidence["keeps_time_and_space"] = patterns
    equal = signs.count(-1.0) == signs.count(1.0)
    return (f"{name}({argument}){tail}" if (name := _orientation(patterns, equal)) else None), evidence


def _orientation(patterns: list[tuple[bool, ...]], equal: bool) -> str | None:
    r"""The letter part of the name of a group with the given actions on (time, space)."""
    found, distinct = set(patterns), len(set(patterns)) == len(patterns)
    if not distinct:
        return None
    if len(found) == 4:
        return "O"
    if found == {(True, True), (False, False)}:
        return "SO"
    if found == {(True, True), (True, False)} and not equal:
        return "O+"
    return None


def _acting_block(group: Group, cosets: Tensor, scaled: bool) -> tuple[Tensor, Tensor] | None:
    r"""The algebra `(k, m, m)` and cosets `(c, m, m)` on the directions that the algebra moves.

    Both in the frame of `group.membership`. `None` where a coset mixes these with the directions at rest, or moves
    the latter.
    """
    n = group.size
    identity = torch.eye(n, dtype=torch.float64)
    frame = LieAlgebra(group.membership.framed(group.algebra.frame())).frame()
    if scaled:
        frame = frame - frame.diagonal(dim1=-2, dim2=-1).mean(dim=-1)[:, None, None] * identity
        rows = torch.linalg.svd(frame.flatten(1), full_matrices=False).Vh[: len(frame) - 1]
        frame = rows.unflatten(1, (n, n))
    # The size m of the algebra follows from its dimension m (m - 1) / 2.
    m = round((1 + (1 + 8 * len(frame)) ** 0.5) / 2)
    if m == n:
        return frame, cosets
    moved = torch.linalg.svd(frame.transpose(0, 1).flatten(1)).U[:, :m]
    at_rest = torch.linalg.svd(frame.flatten(0, 1)).Vh[m:].mT
    change = torch.cat([moved, at_rest], dim=1)
    cosets = torch.linalg.solve(change, cosets @ change)
    outside = cosets - torch.block_diag(torch.zeros(m, m, dtype=torch.float64), identity[m:, m:])
    outside[:, :m, :m] = 0
    if float(outside.abs().max()) > group.tolerance:
        return None
    basis = torch.linalg.solve(change, frame @ change)[:, :m, :m]
    rows = torch.linalg.svd(basis.flatten(1), full_matrices=False).Vh
    return rows.unflatten(1, (m, m)), cosets[:, :m, :m]
