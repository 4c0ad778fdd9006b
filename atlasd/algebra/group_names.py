"""Names of groups: that of the algebra, what the other components do, and translations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from atlasd.algebra.finite import FiniteGroup
from atlasd.algebra.identify import Identification, gather, identify, is_described
from atlasd.algebra.lie import LieAlgebra
from atlasd.algebra.membership import gap, orthogonal_form, orthogonal_parts
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
    if is_described(algebra_name):
        parts = "" if group.components == 1 else f" with {group.components} components"
        return algebra_name.replace("algebra", "group") + parts, evidence
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
    if (together := _rotations_together(group, algebra_name)) is not None:
        return together, {}
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


def _rotations_together(group: Group, algebra_name: str) -> str | None:
    r"""The name of rotations of several planes with their mirrors: in one sense for all of them, or each by itself."""
    if algebra_name == "u(1)" and group.components == 2:
        rotation, mirror = group.algebra.basis[0], group.cosets[1]
        reverses = (mirror @ rotation + rotation @ mirror).norm() <= group.tolerance * (mirror @ rotation).norm()
        # Any other map that reverses the rotations has the square -1.
        return f"O(2) on {group.size // 2} planes" if reverses and (mirror @ mirror).trace() > 0 else None
    parts = [_SUMMAND.fullmatch(summand) for summand in algebra_name.split("+")]
    sizes = [int(m[2]) for m in parts if m is not None and m[1] == "so" and "," not in m[2]]
    # Of two spaces of the same odd dimension, an exchange reverses the orientation as a mirror of one does.
    clear = len(parts) == len(sizes) == 2 and sum(sizes) == group.size and (sizes[0] != sizes[1] or sizes[0] % 2 == 0)
    if not clear or group.component_group != "V4" or int((torch.linalg.det(group.cosets) < 0).sum()) != 2:
        return None
    return "x".join(f"O({m})" for m in sizes)


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


_NOISE = 0.1
"""Share of a unit generator below which its linear part, or what moves a fixed point, is noise."""
_WITH_TRANSLATIONS = {"SO": "SE", "O": "E", "GL+": "Aff+", "GL": "Aff", "SO+": "ISO+"}
"""What a linear group becomes together with all translations."""
_NAMED = re.compile(r"([A-Z+]+)\(([0-9,]+)\)(xR\+)?")


def identify_affine(group: Group, noise: float = 0.03) -> Identification:
    r"""Names a group of homogeneous matrices up to affine changes of coordinates.

    T(k) stands for k independent translations. A group that leaves a point where it is has the name of its linear part.

    Arguments:
        group: The group; its matrices have a last row (0, ..., 0, 1), those of its algebra a last row of zeros. The
            unit of length should be about the spread of the data, and the origin near them: it tells what is noise.
        noise: Relative error to expect in each generator, see :func:`atlasd.identify`.

    Example:
        >>> from atlasd.algebra.group import Group
        >>> from atlasd.algebra.known import euclidean, galilei
        >>> Group(euclidean(3), affine=True).name, Group(galilei(1), affine=True).name
        ('SE(3)', 'Galilei(1)')
    """

    algebra, n = group.algebra, group.size - 1
    if not group.dimension:
        return identify_group(group, identify(algebra, noise))
    frame = algebra.frame()
    u, sizes, _ = torch.linalg.svd(frame[:, :n, :n].flatten(1), full_matrices=False)
    rank = int((sizes > _NOISE).sum())
    shifts = group.dimension - rank
    linear = torch.einsum("kr,kij->rij", u[:, :rank], frame)[:, :n, :n]
    inner = _linear_group(linear, group.cosets[:, :n, :n], group.tolerance)
    name = inner.name
    if not shifts and fixed_point(group) is not None:
        return replace(inner.identification, dimension=group.dimension)
    if shifts == n and rank and identify(algebra, noise).name.startswith(("galilei", "heisenberg")):
        name = f"Galilei({n - 1})"
    elif shifts == n:
        name = _with_all_translations(name, n)
    elif shifts:
        name = _with_translations(name, shifts)
    else:
        algebra_name = identify(inner.algebra, noise).name
        said = f"{algebra_name} with translations"
        name = said.replace("algebra", "group") if is_described(algebra_name) else f"exp({said})"
        name += "" if group.components == 1 else f", {group.components} components"
    evidence = gather(algebra) | {"translations": shifts, "linear": inner.name, "algebra": _algebra_name(name)}
    evidence |= {"components": group.components, "component_group": group.component_group}
    return Identification(
        name=name,
        dimension=group.dimension,
        closure_error=algebra.closure_error(),
        signature=evidence["killing_signature"],
        forms=f"{evidence['symmetric_forms']} symmetric, {evidence['antisymmetric_forms']} antisymmetric",
        confidence=inner.identification.confidence if rank else 1.0,
        invariants=evidence,
    )


def fixed_point(group: Group) -> Tensor | None:
    r"""A point `(n,)` that an affine group leaves where it is, the one nearest to the origin; `None` without one.

    Arguments:
        group: The group, in units in which data lie about the origin with a spread of about 1.
    """
    n = group.size - 1
    parts = torch.cat([group.algebra.frame(), group.cosets[1:] - torch.eye(n + 1, dtype=torch.float64)])
    if not len(parts):
        return None
    a, b = parts[:, :n, :n].flatten(0, 1), parts[:, :n, n].flatten()
    # Directions in which only noise moves points tell nothing about the centre.
    point = -torch.linalg.pinv(a, atol=_NOISE, rtol=0.0) @ b
    moved = (a @ point + b).norm() / len(parts) ** 0.5
    return point if float(moved) < _NOISE else None


def read_group(content: Mapping[str, Any], generators: Tensor, cosets: Tensor) -> Group:
    r"""Reads the group of a file. It keeps the name stored there, which was found in the units of the data.

    In raw units, a rotation of columns whose spreads differ by a million looks like a shear.
    """
    from atlasd.algebra.group import Group

    group = Group(LieAlgebra(generators), cosets, affine=bool(content.get("affine", False)), noise=_noise(content))
    found = group.identification
    known = {**found.invariants, "algebra": str(content["algebra"])}
    group.__dict__["identification"] = replace(found, name=str(content["name"]), invariants=known)
    return group


def _linear_group(linear: Tensor, cosets: Tensor, tolerance: float) -> Group:
    r"""The group of the linear parts; components that differ by translations alone are one."""
    from atlasd.algebra.group import Group

    algebra = LieAlgebra(linear)
    algebra = algebra.nearest_algebra() if algebra.closure_error() > 1e-9 else algebra
    return Group.close(algebra, cosets, tolerance=tolerance)


def _with_all_translations(linear: str, n: int) -> str:
    match = _NAMED.fullmatch(linear)
    if match is None or match[1] not in _WITH_TRANSLATIONS or sum(map(int, match[2].split(","))) != n:
        return _with_translations(linear, n)
    if match[3]:
        return {"SO": f"Sim+({n})", "O": f"Sim({n})"}.get(match[1], f"{linear}xT({n})")
    return f"{_WITH_TRANSLATIONS[match[1]]}({match[2]})"


def _with_translations(linear: str, shifts: int) -> str:
    if linear == "trivial":
        return f"T({shifts})"
    return f"T({shifts}) with {spoken(linear)}" if "," in linear or " " in linear else f"{linear}xT({shifts})"


def spoken(name: str) -> str:
    r"""The name of a group as it stands in a sentence.

    Example:
        >>> spoken("O(2)"), spoken("abelian group of dimension 2")
        ('O(2)', 'an abelian group of dimension 2')
    """
    if name.startswith("unknown"):
        return f"a group without a clear name{name.removeprefix('unknown')}"
    if not is_described(name) or name[0].isupper():
        return name
    return f"an {name}" if name.startswith("abelian") else f"a {name}"


def _algebra_name(name: str) -> str:
    head, _, tail = name.partition("(")
    known = {"SE": "euclidean", "E": "euclidean", "Aff": "affine", "Aff+": "affine", "Galilei": "galilei"}
    return f"{known[head]}({tail}" if head in known else "translations" if head == "T" else "affine"


def _noise(content: Mapping[str, Any]) -> float:
    """The error of generators with which a stored group was named; 0.03 where a file does not say."""
    noise = content.get("noise", 0.03)
    return noise if isinstance(noise, float) and 0 < noise < 0.3 else 0.03
