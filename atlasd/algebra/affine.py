r"""Names of affine groups: translations, and what the linear parts make of them."""

from __future__ import annotations

__all__ = ["fixed_point", "identify_affine", "read_group"]

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from atlasd.algebra.identify import Identification, gather, identify
from atlasd.algebra.lie import LieAlgebra

if TYPE_CHECKING:
    from atlasd.algebra.group import Group

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
    from atlasd.algebra.components import identify_group

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
        name = f"exp({identify(inner.algebra, noise).name} with translations)"
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
    r"""Reads the group of a file. An affine group keeps the name stored there: it depends on the units of the data."""
    from atlasd.algebra.group import Group

    group = Group(LieAlgebra(generators), cosets, affine=bool(content.get("affine", False)), noise=_noise(content))
    if group.affine:
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
    return f"T({shifts}) with {linear}" if "," in linear or " " in linear else f"{linear}xT({shifts})"


def _algebra_name(name: str) -> str:
    head, _, tail = name.partition("(")
    known = {"SE": "euclidean", "E": "euclidean", "Aff": "affine", "Aff+": "affine", "Galilei": "galilei"}
    return f"{known[head]}({tail}" if head in known else "translations" if head == "T" else "affine"


def _noise(content: Mapping[str, Any]) -> float:
    """The error of generators with which a stored group was named; 0.03 where a file does not say."""
    noise = content.get("noise", 0.03)
    return noise if isinstance(noise, float) and 0 < noise < 0.3 else 0.03
